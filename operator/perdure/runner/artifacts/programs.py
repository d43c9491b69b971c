"""The error of the programs about artifacts, and the exit code of those that write lines."""

import sys
from collections.abc import Iterable


class ArtifactError(Exception):
    """An artifact cannot be prepared or stored; the message says which one and why."""

    def __init__(self, message: str, kind: str = "ArtifactFailed") -> None:
        """`kind`: the type of the failure."""
        super().__init__(message)
        self.kind = kind


def write_lines(lines: Iterable[str]) -> int:
    """Write lines to stdout as they are produced, and return the exit code of the program.

    Args:
        lines: The lines. If producing them raises an ArtifactError, its message is written to stderr, and the exit code is 1.
    """
    try:
        for line in lines:
            sys.stdout.write(f"{line}\n")
    except ArtifactError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
