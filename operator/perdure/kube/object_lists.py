"""Collections of objects in the API server, read page by page."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import aiohttp
import msgspec

from perdure.kube.connection import Connection, Object
from perdure.kube.decoding import (
    ListPage,
    Stored,
    Undecodable,
    UndecodableError,
    decode,
    decode_page,
    metadata_of,
    undecodable,
)
from perdure.kube.paths import ONLY_METADATA_LIST

_PAGE_BYTES: Final = 16 * 1024 * 1024
"""A page that is larger is requested again with fewer objects: memory must not depend on how large objects are."""
_FIRST_PAGE: Final = 100
_LARGEST_PAGE: Final = 500
"""Objects of a page."""


def namespace_of(obj: Object) -> str:
    """The namespace of an object; empty where it has none."""
    return str((obj.get("metadata") or {}).get("namespace") or "")


class ObjectLists:
    """Reads the collections of one API server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.skipped: Callable[[Undecodable], None] = lambda _: None
        """Called with each object of a list that cannot be decoded, and is left out."""
        self.serves: Callable[[str], bool] = lambda _: True
        """Whether objects of a namespace concern this client; lists leave out all others."""

    async def all(self, url: str, **selectors: str) -> list[Object]:
        """Read all objects of a collection. Selectors: ``labelSelector="a=b"``, ``fieldSelector=…``.

        Only for what is few and small, and needed at the same time; `each` holds one object at a time.
        """
        return [obj async for obj in self.each(url, **selectors)]

    async def each(self, url: str, **selectors: str) -> AsyncIterator[Object]:
        """Read the objects of a collection one after the other, as `objects` gives them."""
        async for page in self.pages(url, **selectors):
            for _, obj in self.objects(page):
                yield obj

    def objects(self, page: ListPage) -> Iterator[tuple[msgspec.Raw, Object]]:
        """The objects of a page that concern this client, encoded and decoded.

        What cannot be decoded is reported to `skipped`.
        """
        for raw in page.items:
            try:
                obj: Object = decode(memoryview(raw))
            except UndecodableError as error:
                self.skip(undecodable(raw, str(error), kind=page.kind, api_version=page.api_version))
            else:
                if self.concerns(namespace_of(obj)):
                    yield raw, obj

    def concerns(self, namespace: str) -> bool:
        """Whether an object of a namespace concerns this client; one without a namespace does."""
        return not namespace or self.serves(namespace)

    def skip(self, found: Undecodable) -> None:
        """Report an object that cannot be decoded, if it concerns this client."""
        if found.stored is None or self.concerns(found.stored.namespace):
            self.skipped(found)

    async def versions(self, url: str, **selectors: str) -> AsyncIterator[list[Stored]]:
        """Read which objects a collection has, and their versions, page by page; nothing else crosses the wire."""
        async for page in self.pages(url, accept=ONLY_METADATA_LIST, **selectors):
            found = []
            for raw in page.items:
                try:
                    stored = metadata_of(memoryview(raw))
                except UndecodableError as error:
                    self.skip(undecodable(raw, str(error), kind=page.kind, api_version=page.api_version))
                else:
                    if self.concerns(stored.namespace):
                        found.append(stored)
            yield found

    async def each_metadata(self, url: str, **selectors: str) -> AsyncIterator[Object]:
        """Read the objects of a collection one after the other, only their metadata."""
        async for page in self.pages(url, accept=ONLY_METADATA_LIST, **selectors):
            for _, obj in self.objects(page):
                yield obj

    async def pages(self, url: str, *, accept: str = "application/json", **selectors: str) -> AsyncIterator[ListPage]:
        """Read a collection page by page, the objects still encoded.

        A page has at most 16 MiB, or one object. The pages belong to one state of the collection.
        """
        limit, following = _FIRST_PAGE, ""
        while True:
            query = {"limit": str(limit), **selectors, **({"continue": following} if following else {})}
            raw = await self._connection.read(
                "GET", url, query=query, headers={"Accept": accept}, most=_PAGE_BYTES * (limit > 1)
            )
            if raw is None:
                limit = max(limit // 4, 1)
                continue
            page = decode_page(raw, f"GET {url}", aiohttp.ClientPayloadError)
            if len(raw) < _PAGE_BYTES // 2:
                limit = min(limit * 2, _LARGEST_PAGE)
            del raw
            yield page
            following = page.following
            if not following:
                return
