"""How programs that write lines about artifacts end."""

import sys
from collections.abc import Iterable

from perdure.runner.artifacts.errors import ArtifactError


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
