"""A bucket in memory, in place of one on a server."""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from perdure.archive.rows import ArchiveUnavailableError
from perdure.bucket.archive import Found

_T = TypeVar("_T")
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class MemoryBucket:
    """Objects by key; see `Bucket`. Each request gets a later time."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.times: dict[str, datetime] = {}
        self.requests = 0
        self.is_down = False

    async def perform(self, apply: Callable[[], _T]) -> _T:
        """Do what a request asks for."""
        if self.is_down:
            raise ArchiveUnavailableError("the bucket did not respond")
        return apply()

    async def put(self, key: str, content: bytes) -> None:
        await self.perform(lambda: self._put(key, content))

    def _put(self, key: str, content: bytes) -> None:
        self.requests += 1
        self.objects[key] = content
        self.times[key] = _BEGIN + timedelta(seconds=self.requests)

    async def get(self, key: str, length: int | None = None) -> bytes | None:
        content = await self.perform(lambda: self.objects.get(key))
        return None if content is None else content[:length]

    async def each(self, folder: str, after: str = "") -> AsyncIterator[Found]:
        for found in await self.perform(lambda: self._listed(folder, after)):
            yield found

    def _listed(self, folder: str, after: str) -> list[Found]:
        keys = sorted(key for key in self.objects if key.startswith(f"{folder}/") and key > after)
        return [Found(key, self.times[key]) for key in keys]

    async def folders(self, folder: str) -> list[str]:
        return await self.perform(lambda: self._folders(f"{folder}/"))

    def _folders(self, prefix: str) -> list[str]:
        rest = [key.removeprefix(prefix) for key in self.objects if key.startswith(prefix)]
        return sorted({each.partition("/")[0] for each in rest if "/" in each})

    async def delete(self, keys: Sequence[str]) -> None:
        await self.perform(lambda: [self.objects.pop(key, None) for key in keys])
