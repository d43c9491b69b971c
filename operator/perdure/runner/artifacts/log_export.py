"""Write archived logs to the log of this pod, for `perdure logs`, which has no access to the store.

$PERDURE_KEYS      the keys of the logs: a JSON list
$PERDURE_STORE_…   the artifact store

For each key in order, one line of JSON says what follows: `{"found": key}` and the object as lines of base64; or nothing, after
`{"missing": key}`, `{"failed": key, "error": …}`, or `{"large": key}`. The program ends when the next log would make the log of
this pod too long: keys without a line are left.
"""

import base64
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from perdure.runner.artifacts.programs import ArtifactError, write_lines
from perdure.runner.artifacts.seals import split
from perdure.runner.artifacts.store import ArtifactStore

MAX_BYTES: Final = 6 * 1024 * 1024
"""Maximum bytes of all logs: their base64 must fit into a log, which nodes rotate at 10 MiB."""


def lines(store: ArtifactStore, keys: Iterable[str], limit: int = MAX_BYTES) -> Iterator[str]:
    """Yield the lines to write.

    Args:
        store: The artifact store.
        keys: The keys of the logs.
        limit: Maximum bytes of all logs.
    """
    left = limit
    for key in keys:
        content = bytearray()
        try:
            for piece in store.download(key):
                content += piece
                if len(content) > left:
                    break
        except ArtifactError as error:
            missing = error.kind == "ArtifactMissing"
            yield _line(missing=key) if missing else _line(failed=key, error=str(error))
            continue
        if len(content) > left:
            if left < limit:
                return
            yield _line(large=key)
            continue
        left -= len(content)
        yield _line(found=key)
        yield from (base64.b64encode(piece).decode() for piece in split([bytes(content)]))


def _line(**fields: Any) -> str:
    return json.dumps(fields, ensure_ascii=False)


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Write the logs, and return the exit code."""
    return write_lines(_lines(environ))


def _lines(environ: Mapping[str, str]) -> Iterator[str]:
    yield from lines(ArtifactStore(environ), json.loads(environ["PERDURE_KEYS"]))


if __name__ == "__main__":
    sys.exit(main())
