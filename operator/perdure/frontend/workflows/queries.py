"""Queries that wait for a worker. They are not recorded."""

import asyncio
import uuid
from dataclasses import dataclass, field

from temporalio.api.common.v1 import Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.api.query.v1 import WorkflowQuery

from perdure.frontend.errors import not_found

MAX_WAITING = 10
"""Maximum number of queries that wait for the same workflow task. (Temporal's server allows one.)"""


@dataclass(slots=True)
class Query:
    """One query."""

    query: WorkflowQuery
    query_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    answer: "asyncio.Future[Payloads]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    attached: bool = False
    """Whether it waits for a workflow task, or is attached to one."""

    def answered(self, result: Payloads) -> None:
        """Pass the response of a worker to the caller."""
        if not self.answer.done():
            self.answer.set_result(result)

    def failed(self, failure: Failure) -> None:
        """Pass the failure that a worker has reported to the caller."""
        if not self.answer.done():
            self.answer.set_exception(QueryFailedError(failure))

    def abort(self) -> None:
        """End the query with an error, because no worker can answer it anymore."""
        if not self.answer.done():
            self.answer.set_exception(not_found("the workflow was deleted"))


class QueryFailedError(Exception):
    """The workflow's code has answered a query with a failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Queries:
    """The queries of all runs, by run ID and query ID."""

    def __init__(self) -> None:
        self._of_run: dict[str, dict[str, Query]] = {}

    def add(self, run_id: str, query: WorkflowQuery) -> Query:
        """Add a query."""
        made = Query(query)
        self._of_run.setdefault(run_id, {})[made.query_id] = made
        return made

    def get(self, run_id: str, query_id: str) -> Query | None:
        """A query that is still waiting."""
        return self._of_run.get(run_id, {}).get(query_id)

    def attached(self, run_id: str) -> list[Query]:
        """The queries attached to the next or current workflow task of a run."""
        return [query for query in self._of_run.get(run_id, {}).values() if query.attached]

    def abort(self, run_id: str) -> None:
        """Abort the queries of a deleted run."""
        for query in self._of_run.pop(run_id, {}).values():
            query.abort()

    def leave(self, run_id: str) -> None:
        """End the waiting queries of a run that another operator owns now; they are sent there."""
        self._of_run.pop(run_id, None)

    def drop(self, run_id: str, query_id: str) -> None:
        """Remove a query whose caller no longer waits."""
        known = self._of_run.get(run_id, {})
        known.pop(query_id, None)
        if not known:
            self._of_run.pop(run_id, None)
