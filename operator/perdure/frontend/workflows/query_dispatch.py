"""Dispatch queries to the worker that takes the workflow task, or that has the workflow in memory."""

import asyncio

from perdure.controller.directory import Entry
from perdure.engine.versioning import DeploymentVersion
from perdure.frontend.deployments.versions import Versions, queue_of
from perdure.frontend.matching.offers import Destination, Matching, key_of
from perdure.frontend.matching.queues import Kind, Offer, QueueName
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.visibility.index import Visibility
from perdure.frontend.workflows.queries import Query

_STICKY_SECONDS = 5.0
"""How long a query waits for the worker that has the workflow in memory."""


class QueryDispatch:
    """Offers queries to workers."""

    def __init__(self, runs: RunGateway, matching: Matching, versions: Versions, visibility: Visibility) -> None:
        self._runs = runs
        self._matching = matching
        self._versions = versions
        self._visibility = visibility

    def dispatch(self, entry: Entry, query: Query) -> None:
        """Let a worker answer a query, with a due workflow task or separately."""
        state = self._runs.state(entry.uid)
        code = state.code if state is not None else None
        if state is not None and code is not None and not state.closed:
            if code.task is not None and not code.deciding:
                query.attached = True
                return
            if code.deciding or not code.previous_started_event_id:
                query.attached = True  # sent with the next task or, if none follows, separately after this one
                return
        query.attached = False
        version = (
            self._versions.of_task(entry.namespace, state) if state is not None else self._version_of_closed(entry)
        )
        sticky_queue = ""
        if code is not None and version == code.versioning.version:
            sticky_queue = code.sticky_queue
        self._offer_query(entry, query, sticky_queue, version)

    def _version_of_closed(self, entry: Entry) -> DeploymentVersion | None:
        """Return the version whose workers answer queries about a closed run."""
        record = self._visibility.get(entry.namespace, entry.uid)
        if record is None:
            return None
        return self._versions.of_closed(
            record.namespace, record.task_queue, record.workflow_id, record.search_attributes
        )

    def _offer_query(self, entry: Entry, query: Query, sticky_queue: str, version: DeploymentVersion | None) -> None:
        record = self._visibility.get(entry.namespace, entry.uid)
        normal = QueueName(entry.namespace, Kind.WORKFLOW, record.task_queue if record is not None else "")
        normal = queue_of(normal, version)
        offer = Offer(entry.uid, query=query.query_id)
        key = key_of(offer)
        self._matching.settle(key, {offer: Destination(normal, sticky_queue)})
        query.answer.add_done_callback(lambda _: self._matching.settle(key, {}))
        if sticky_queue:
            asyncio.get_running_loop().call_later(_STICKY_SECONDS, self._leave_sticky, query, offer, normal)

    def _leave_sticky(self, query: Query, offer: Offer, normal: QueueName) -> None:
        if not query.answer.done():
            self._matching.settle(key_of(offer), {offer: Destination(normal)})
