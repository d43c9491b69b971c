"""The errors that end a verb.

ClusterError            something the user can act on; printed without a traceback
└── CommandError        a command failed; carries its exit status and last lines
"""

from collections.abc import Sequence
from pathlib import Path


class ClusterError(Exception):
    """A failure that is explained by its message."""


class CommandError(ClusterError):
    """A command failed."""

    def __init__(self, command: Sequence[str], status: int, tail: str, log: Path | None = None) -> None:
        """Keep what is needed to tell the user which command failed, how and where."""
        self.command = tuple(command)
        self.status = status
        self.tail = tail
        self.log = log
        where = f"\nFull log: {log}" if log else ""
        super().__init__(f"`{' '.join(command)}` failed with status {status}\n{tail}{where}")
