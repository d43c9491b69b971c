"""Write an artifact to the log of this container, for `perdure artifacts get`, which has no access to the store.

$PERDURE_KEY       the key of the object
$PERDURE_RANGE     the first byte, and the one after the last, such as `0-1000`; default: the whole object
$PERDURE_READER    the public key of the reader
$PERDURE_STORE_…   the artifact store

Only the reader can decrypt the lines of the log.
"""

import os
import sys
from collections.abc import Iterator, Mapping

from perdure.runner.artifacts.programs import write_lines
from perdure.runner.artifacts.seals import seal
from perdure.runner.artifacts.store import ArtifactStore


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Write the artifact, and return the exit code."""
    return write_lines(_lines(environ))


def _lines(environ: Mapping[str, str]) -> Iterator[str]:
    first, _, end = environ.get("PERDURE_RANGE", "").partition("-")
    part = (int(first), int(end)) if end else None
    yield from seal(ArtifactStore(environ).download(environ["PERDURE_KEY"], part), environ["PERDURE_READER"])


if __name__ == "__main__":
    sys.exit(main())
