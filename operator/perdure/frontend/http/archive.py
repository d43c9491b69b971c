"""Serve the WorkflowRuns of the archive over HTTP, for readers of objects, with the admission of RPCs."""

import re
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import hdrs, web

from perdure.frontend.errors import RpcError, invalid
from perdure.frontend.http import messages
from perdure.frontend.http.server import HTTP_STATUSES, IncomingRequest, refuse_web_pages
from perdure.frontend.transport.rpc import Rpc
from perdure.frontend.visibility.archived import GetArchivedRunRequest, ListArchivedRunsRequest

_PATH: Final = re.compile(r"/perdure/v1/namespaces/(?P<namespace>[^/]+)/(?P<what>archived-runs?)")
_LIST: Final = "archived-runs"
_PAGE: Final = 100
_SIZE: Final = re.compile(r"\d{0,9}", re.ASCII)


class ArchiveGateway:
    """Serves requests for runs of the archive."""

    def __init__(self, get: Rpc, list_: Rpc) -> None:
        self._get = get
        self._list = list_

    @staticmethod
    def serves(request: web.BaseRequest) -> bool:
        """Whether a request is for a run of the archive, or for a list of them."""
        return request.method == "GET" and _PATH.fullmatch(request.rel_url.raw_path) is not None

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer a request."""
        found = _PATH.fullmatch(request.rel_url.raw_path)
        assert found is not None, "it is served"
        namespace = unquote(found["namespace"])
        try:
            refuse_web_pages(request)
            if found["what"] == _LIST:
                content = await self._list.answer(_ListCall(request, namespace))
            else:
                content = await self._get.answer(_GetCall(request, namespace))
        except RpcError as error:
            status = HTTP_STATUSES.get(error.code, 500)
            body = messages.write(error.status(), shorthand=True, pretty=False)
            return web.Response(body=body, status=status, headers={hdrs.CONTENT_TYPE: "application/json"})
        return web.Response(body=content, headers={hdrs.CONTENT_TYPE: "application/json"})


class _Call(IncomingRequest):
    """A call whose request is in the query of the URL."""

    def __init__(self, request: web.BaseRequest, namespace: str) -> None:
        super().__init__(request)
        self._namespace = namespace
        self.seconds_left: float | None = None


class _GetCall(_Call):
    """A call for one run."""

    async def decode(self, _: bytes) -> Any:
        """Build the request."""
        query = self._request.query
        return GetArchivedRunRequest(self._namespace, query.get("name", ""), query.get("workflowId", ""))


class _ListCall(_Call):
    """A call for a list of runs."""

    async def decode(self, _: bytes) -> Any:
        """Build the request."""
        query = self._request.query
        size = query.get("pageSize", "")
        if not _SIZE.fullmatch(size):
            raise invalid(f"pageSize: {size[:20]!r} is not a number of up to 9 digits")
        return ListArchivedRunsRequest(
            self._namespace,
            query.get("query", ""),
            query.get("month", ""),
            int(size or _PAGE),
            query.get("nextPageToken", ""),
        )
