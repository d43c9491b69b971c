"""The errors that end a verb.

ClusterError            an error that the user can fix; printed without a traceback
└── CommandError        a command failed; carries its exit status and last lines
"""

from collections.abc import Sequence
from pathlib import Path


class ClusterError(Exception):
    """An error whose message explains it."""


class CommandError(ClusterError):
    """A command failed."""

    def __init__(self, command: Sequence[str], status: int, tail: str, log: Path | None = None) -> None:
        """Store what the message needs: which command failed, how, and where."""
        self.command = tuple(command)
        self.status = status
        self.tail = tail
        self.log = log
        where = f"\nFull log: {log}" if log else ""
        super().__init__(f"`{' '.join(command)}` failed with status {status}\n{tail}{where}")
