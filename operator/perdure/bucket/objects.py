"""The objects of the archive in an S3-compatible bucket."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import BaseError

from perdure.archive.rows import ArchiveUnavailableError
from perdure.bucket.archive import Found
from perdure.bucket.store import open_bucket, reason_of

if TYPE_CHECKING:
    from obstore import GetOptions

_PATIENCE: Final = timedelta(seconds=5)
"""How long the store's library retries a request: the archive retries as well, and reports outages."""
_SECONDS: Final = 20.0
"""How long a request may take."""
_PAGE: Final = 1_000


class S3Bucket:
    """Reads and writes objects; see `Bucket`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """`environ`: the variables of `perdure.bucket.store`.

        Raises:
            ArchiveUnavailableError: The settings are not valid.
        """
        with _errors("the settings of the archive are not valid"):
            self._store = open_bucket(environ, patience=_PATIENCE)

    async def put(self, key: str, content: bytes) -> None:
        """Write an object; see `Bucket`."""
        with _errors(f"the bucket did not accept `{key}`"):
            async with asyncio.timeout(_SECONDS):
                await obstore.put_async(self._store, key, content)

    async def get(self, key: str, length: int | None = None) -> bytes | None:
        """Read an object; see `Bucket`."""
        options: GetOptions = {} if length is None else {"range": (0, length)}
        with _errors(f"the bucket did not return `{key}`"):
            async with asyncio.timeout(_SECONDS):
                try:
                    found = await obstore.get_async(self._store, key, options=options)
                    return bytes(await found.bytes_async())
                except FileNotFoundError as error:
                    if "NoSuchBucket" in str(error):
                        raise
                    return None

    async def each(self, folder: str, after: str = "") -> AsyncIterator[Found]:
        """List objects; see `Bucket`."""
        pages = obstore.list(self._store, folder, offset=after or None, chunk_size=_PAGE)
        while True:
            with _errors(f"the bucket did not list `{folder}`"):
                async with asyncio.timeout(_SECONDS):
                    try:
                        page = await anext(pages)
                    except StopAsyncIteration:
                        return
            for each in page:
                yield Found(each["path"], each["last_modified"])

    async def folders(self, folder: str) -> list[str]:
        """List folders; see `Bucket`."""
        with _errors(f"the bucket did not list `{folder}`"):
            async with asyncio.timeout(_SECONDS):
                found = await obstore.list_with_delimiter_async(self._store, folder)
        return [each.rpartition("/")[2] for each in found["common_prefixes"]]

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; see `Bucket`."""
        for at in range(0, len(keys), _PAGE):
            with _errors("the bucket did not delete objects"):
                async with asyncio.timeout(_SECONDS):
                    try:
                        await obstore.delete_async(self._store, keys[at : at + _PAGE])
                    except FileNotFoundError as error:
                        if "NoSuchBucket" in str(error):
                            raise


@contextmanager
def _errors(message: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise ArchiveUnavailableError(f"{message}: no answer within {_SECONDS:.0f} seconds") from error
    except (BaseError, FileNotFoundError, ValueError) as error:
        raise ArchiveUnavailableError(f"{message}: {reason_of(error)}") from error
