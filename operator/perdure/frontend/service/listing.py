"""RPCs that list and count workflows."""

from collections import Counter
from collections.abc import Sequence

from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    CountWorkflowExecutionsResponse,
    ListWorkflowExecutionsRequest,
    ListWorkflowExecutionsResponse,
    ScanWorkflowExecutionsRequest,
    ScanWorkflowExecutionsResponse,
)

from perdure.frontend import payloads as data
from perdure.frontend.core import Core
from perdure.frontend.errors import invalid
from perdure.frontend.paging import page_of
from perdure.frontend.querylang import InvalidQueryError, Query, parse
from perdure.frontend.service.call import Call
from perdure.frontend.visibility import Record, is_known

PAGE = 1_000
_LIGHT = 2_048


class Listing:
    """Lists and counts."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def _page(self, namespace: str, text: str, token: bytes, size: int) -> tuple[Sequence[Record], bytes]:
        found, query = find(self._core, namespace, text)
        if query.group_by:
            raise invalid("invalid query: 'group by' clause is only supported for counting")
        return page_of(found, token, size, PAGE, _weight)

    async def list_workflow_executions(
        self, request: ListWorkflowExecutionsRequest, call: Call
    ) -> ListWorkflowExecutionsResponse:
        """The workflows that a filter takes, the newest first."""
        del call
        page, token = self._page(request.namespace, request.query, request.next_page_token, request.page_size)
        return ListWorkflowExecutionsResponse(executions=[r.info() for r in page], next_page_token=token)

    async def scan_workflow_executions(
        self, request: ScanWorkflowExecutionsRequest, call: Call
    ) -> ScanWorkflowExecutionsResponse:
        """The same."""
        del call
        page, token = self._page(request.namespace, request.query, request.next_page_token, request.page_size)
        return ScanWorkflowExecutionsResponse(executions=[r.info() for r in page], next_page_token=token)

    async def count_workflow_executions(
        self, request: CountWorkflowExecutionsRequest, call: Call
    ) -> CountWorkflowExecutionsResponse:
        """How many workflows a filter takes."""
        del call
        found, query = find(self._core, request.namespace, request.query)
        response = CountWorkflowExecutionsResponse(count=len(found))
        if query.group_by:
            for status, count in sorted(Counter(record.status for record in found).items()):
                group = response.groups.add(count=count)
                group.group_values.append(data.attribute(status))
        return response


def find(core: Core, namespace: str, text: str) -> tuple[list[Record], Query]:
    """The runs that a filter takes, and the filter as it was understood.

    Raises:
        RpcError: it was not.
    """
    types = core.attribute_types(namespace)
    try:
        query = parse(text)
        query.test(lambda name: _check(name, types))
        return core.visibility.find(namespace, query), query
    except InvalidQueryError as error:
        raise invalid(f"invalid query: {error}") from error


def _weight(record: Record) -> int:
    """Bytes of a run in a list: its memo is what can be large."""
    return record.info().ByteSize() if record.memo else _LIGHT


def _check(name: str, types: dict[str, str]) -> None:
    if not is_known(name, types):
        raise InvalidQueryError(f"{name} is not a valid search attribute")
