"""The artifact store: an S3-compatible bucket, configured by the variables of `perdure.bucket.store`."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import BaseError

from perdure.bucket.store import open_bucket, reason_of
from perdure.runner.artifacts.archives import PIECE
from perdure.runner.artifacts.programs import ArtifactError

if TYPE_CHECKING:
    from obstore import GetOptions

_PARALLEL: Final = 3
"""How many parts are uploaded concurrently."""
_PATIENCE: Final = timedelta(minutes=3)
"""How long a request is retried if the store does not respond, or responds with a server error."""
_CODE: Final = re.compile("<Code>([^<]*)</Code>")
"""The error code in the response of a server. Status 404 alone can also mean that the bucket does not exist."""


class ArtifactStore:
    """Uploads and downloads objects, with only a few pieces in memory."""

    def __init__(self, environ: Mapping[str, str], *, patience: timedelta = _PATIENCE) -> None:
        with _translate_errors("the settings of the artifact store are not valid"):
            self._store = open_bucket(environ, patience=patience)

    def upload(self, key: str, pieces: Iterator[bytes]) -> None:
        """Store an object, either completely or not at all.

        Args:
            key: The key of the object.
            pieces: The content in pieces of `PIECE` bytes; the last one may be shorter.

        Raises:
            ArtifactError: The store has not accepted the object.
        """
        with _translate_errors(f"the artifact store rejected `{key}`"):
            first = next(pieces, b"")
            if len(first) < PIECE:
                next(pieces, None)  # raises the error of a folder that cannot be packed
                obstore.put(self._store, key, first)
            else:
                obstore.put(self._store, key, chain([first], pieces), chunk_size=PIECE, max_concurrency=_PARALLEL)

    def copy(self, key: str, target: str) -> None:
        """Copy an object within the store, in place of one that exists at the target.

        Raises:
            ArtifactError: The store has not copied the object.
        """
        with _translate_errors(f"the artifact store did not copy `{key}` to `{target}`"):
            obstore.copy(self._store, key, target)

    def download(self, key: str, part: tuple[int, int] | None = None) -> Iterator[bytes]:
        """Read an object in pieces.

        Args:
            key: The key of the object.
            part: The first byte, and the one after the last; None for the whole object.

        Raises:
            ArtifactError: The store does not return the object.
        """
        with _translate_errors(f"the artifact store did not return `{key}`", may_be_missing=True):
            options: GetOptions = {} if part is None else {"range": part}
            for piece in obstore.get(self._store, key, options=options).stream(min_chunk_size=1024 * 1024):
                yield bytes(piece)

    def delete(self, folder: str) -> int:
        """Delete all objects of a folder, and return how many there were.

        Args:
            folder: The prefix of their keys, without the slash after it.

        Raises:
            ArtifactError: Some objects may be left.
        """
        count = 0
        with _translate_errors(f"the artifact store did not delete `{folder}`"):
            for found in obstore.list(self._store, prefix=folder):
                obstore.delete(self._store, [each["path"] for each in found])
                count += len(found)
        return count


@contextmanager
def _translate_errors(message: str, *, may_be_missing: bool = False) -> Iterator[None]:
    try:
        yield
    except (BaseError, FileNotFoundError, ValueError) as error:
        code = _CODE.search(str(error))
        if may_be_missing and isinstance(error, FileNotFoundError) and (code is None or code[1] == "NoSuchKey"):
            raise ArtifactError(f"{message}: it does not exist", "ArtifactMissing") from error
        raise ArtifactError(f"{message}: {reason_of(error)}", "ArtifactStoreFailed") from error
