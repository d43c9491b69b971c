"""Read collections of objects from the API server page by page."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import msgspec

from perdure.kube.connection import Connection, Object
from perdure.kube.decoding import (
    ListPage,
    Stored,
    Undecodable,
    UndecodableError,
    decode_object,
    decode_page,
    metadata_of,
    undecodable,
)
from perdure.kube.paths import ONLY_METADATA_LIST

_PAGE_BYTES: Final = 16 * 1024 * 1024
"""A larger page is requested again with fewer objects, so that memory does not depend on the size of objects."""
_FIRST_PAGE: Final = 100
_LARGEST_PAGE: Final = 500
"""The most objects of a page."""


def namespace_of(obj: Object) -> str:
    """The namespace of an object; empty if it has none."""
    return str((obj.get("metadata") or {}).get("namespace") or "")


class ObjectLists:
    """Reads the collections of one API server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.skipped: Callable[[Undecodable], None] = lambda _: None
        """Called with each object of a list that is left out because it cannot be decoded."""
        self.serves: Callable[[str], bool] = lambda _: True
        """Whether this client serves a namespace; lists leave out objects of other namespaces."""

    async def all(self, url: str, **selectors: str) -> list[Object]:
        """Read all objects of a collection. Selectors: ``labelSelector="a=b"``, ``fieldSelector=…``.

        Use this only for few and small objects that are needed together; `each` holds one object at a time.
        """
        return [obj async for obj in self.each(url, **selectors)]

    async def each(self, url: str, **selectors: str) -> AsyncIterator[Object]:
        """Read the objects of a collection one by one, decoded as in `objects`."""
        async for page in self.pages(url, **selectors):
            for _, obj in self.objects(page):
                yield obj

    def objects(self, page: ListPage) -> Iterator[tuple[msgspec.Raw, Object]]:
        """The objects of a page in the namespaces that this client serves, encoded and decoded.

        Undecodable objects are reported to `skipped`.
        """
        for raw in page.items:
            try:
                obj: Object = decode_object(memoryview(raw))
            except UndecodableError as error:
                self.skip(undecodable(raw, str(error), kind=page.kind, api_version=page.api_version))
            else:
                if self.concerns(namespace_of(obj)):
                    yield raw, obj

    def concerns(self, namespace: str) -> bool:
        """Whether this client serves a namespace, or the object has none."""
        return not namespace or self.serves(namespace)

    def skip(self, found: Undecodable) -> None:
        """Report an undecodable object, if this client serves its namespace."""
        if found.stored is None or self.concerns(found.stored.namespace):
            self.skipped(found)

    async def versions(self, url: str, **selectors: str) -> AsyncIterator[list[Stored]]:
        """Read only the identities and versions of the objects in a collection, page by page."""
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
        """Read the metadata of the objects in a collection one by one."""
        async for page in self.pages(url, accept=ONLY_METADATA_LIST, **selectors):
            for _, obj in self.objects(page):
                yield obj

    async def pages(self, url: str, *, accept: str = "application/json", **selectors: str) -> AsyncIterator[ListPage]:
        """Read a collection page by page, without decoding the objects.

        A page has at most 16 MiB, or one object. The pages come from one consistent snapshot of the collection.
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
            page = decode_page(raw, f"GET {url}")
            if len(raw) < _PAGE_BYTES // 2:
                limit = min(limit * 2, _LARGEST_PAGE)
            del raw
            yield page
            following = page.following
            if not following:
                return
