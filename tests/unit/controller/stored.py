"""An API server of a few kinds on loopback that compares and swaps."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from perdure.api import labels
from support import http_server

Json = dict[str, Any]


class Store:
    """The API server: objects of the namespace `shop`."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.address = ""
        self.writes = 0
        self.conflicts = 0
        self._version = 0

    def put(self, plural: str, name: str, **content: Any) -> Json:
        self._version += 1
        meta = {"name": name, "namespace": "shop", "uid": f"{plural}-{name}", "generation": 1}
        obj = {
            "apiVersion": labels.API_VERSION,
            "kind": plural,
            "metadata": {**meta, "resourceVersion": str(self._version)},
            **content,
        }
        self.objects[f"{plural}/{name}"] = obj
        return copy.deepcopy(obj)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        key = request.path.split("/namespaces/shop/")[1].removesuffix("/status")
        obj = self.objects.get(key)
        if obj is None:
            return web.json_response({"reason": "NotFound", "message": "gone"}, status=404)
        if request.method == "PUT":
            body = orjson.loads(await request.read())
            if body["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                self.conflicts += 1
                return web.json_response({"reason": "Conflict", "message": "changed"}, status=409)
            self.writes += 1
            self._version += 1
            obj["metadata"]["resourceVersion"] = str(self._version)
            obj["status"] = body["status"]
            return web.json_response({"metadata": obj["metadata"]})
        return web.json_response(obj)

    @property
    def circuit(self) -> Json:
        found: Json = self.objects["retrypolicies/shared"]["status"]["circuit"]
        return found

    def conditions(self, name: str = "shared") -> dict[str, tuple[str, str]]:
        found = self.objects[f"retrypolicies/{name}"]["status"]["conditions"]
        return {c["type"]: (c["status"], c["reason"]) for c in found}


@asynccontextmanager
async def serving(store: Store | None = None) -> AsyncIterator[Store]:
    """A store that answers requests at its address."""
    found = store or Store()
    async with http_server.serving(found.answer) as found.address:
        yield found
