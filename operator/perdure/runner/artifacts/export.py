"""Write an artifact to the log of this container, for `perdure artifacts get`, which has no access to the store.

$PERDURE_KEY       the key of the object
$PERDURE_RANGE     the first byte, and the one after the last, such as `0-1000`; default: the whole object
$PERDURE_STORE_…   the artifact store

The log has the object as lines of base64.
"""

import base64
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from perdure.runner.artifacts.programs import write_lines
from perdure.runner.artifacts.store import ArtifactStore

_LINE: Final = 6_000
"""Bytes in a line, which has 8,000 characters: container runtimes split lines of 16 KiB."""


def encoded(pieces: Iterable[bytes]) -> Iterator[str]:
    """Encode an object as lines.

    Args:
        pieces: The object, in pieces of any size.
    """
    rest = b""
    for piece in pieces:
        rest += piece
        complete = len(rest) - len(rest) % _LINE
        for start in range(0, complete, _LINE):
            yield base64.b64encode(rest[start : start + _LINE]).decode()
        rest = rest[complete:]
    if rest:
        yield base64.b64encode(rest).decode()


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Write the artifact, and return the exit code."""
    return write_lines(_lines(environ))


def _lines(environ: Mapping[str, str]) -> Iterator[str]:
    first, _, end = environ.get("PERDURE_RANGE", "").partition("-")
    part = (int(first), int(end)) if end else None
    yield from encoded(ArtifactStore(environ).download(environ["PERDURE_KEY"], part))


if __name__ == "__main__":
    sys.exit(main())
