"""The Schedules that this process works on: their watch events, the requests to them, and their reconciliation."""

import asyncio
from collections.abc import Callable
from functools import partial

from perdure.api.reasons import ConditionReason
from perdure.controller.dispatch.index import Index
from perdure.controller.payloads import output_of
from perdure.controller.queue import Key, KeyedQueue, ScheduleKey
from perdure.controller.schedules.schedule import ReconciledSchedule
from perdure.controller.services import Peers, Services
from perdure.engine.inputs import Answer
from perdure.kube import client as kube
from perdure.language.reuse import reference_from
from perdure.observe import metrics
from perdure.schedule.inputs import ScheduleRequest


class Schedules:
    """The Schedules of this process."""

    def __init__(self, services: Services, index: Index, queue: KeyedQueue[Key], peers: Peers) -> None:
        """Create it without Schedules.

        Args:
            services: The shared services.
            index: The known objects, to which Schedules are added.
            queue: The queue that calls `advance`.
            peers: The runs.
        """
        self._services = services
        self._index = index
        self._queue = queue
        self._peers = peers

    # Watch events

    def update(self, obj: kube.Object) -> None:
        """Process the creation or change of a Schedule."""
        key = ScheduleKey(obj["metadata"]["namespace"], obj["metadata"]["uid"], obj["metadata"]["name"])
        self._index.update(obj)
        schedule = self._index.schedules.get(key.uid)
        if obj["metadata"].get("deletionTimestamp"):
            if schedule is not None:
                self.delete_missed(schedule)
            return
        if schedule is None:
            self._index.schedules[key.uid] = ReconciledSchedule(
                self._services.client,
                self._services.recorder,
                self._peers,
                self._services.policies,
                obj,
                definitions=self._services.definitions,
                output_of=partial(output_of, blobs=self._services.blobs, workers=self._services.workers),
            )
        elif not schedule.update(obj):
            return
        self._queue.wake(key)

    def delete(self, obj: kube.Object) -> None:
        """Process the deletion of a Schedule."""
        self._index.delete(obj["metadata"]["uid"])
        schedule = self._index.schedules.get(obj["metadata"]["uid"])
        if schedule is not None:
            self.delete_missed(schedule)

    def delete_missed(self, schedule: ReconciledSchedule) -> None:
        """Process a deletion, even if no watch has reported it."""
        schedule.mark_deleted()
        if self._services.shards.holds(schedule.namespace, schedule.name):
            self._wake(schedule)
        else:
            schedule.refuse_pending()
            self._forget(schedule)

    def reassign(self) -> None:
        """Wake the Schedules that this process has gained."""
        for schedule in self._index.schedules.values():
            if self._services.shards.owns(schedule.namespace, schedule.name):
                self._wake(schedule)

    def update_workflow(self, namespace: str, name: str) -> None:
        """Make Schedules check a Workflow that was created, changed, or deleted."""
        for schedule in self._index.schedules.values():
            if schedule.update_workflow(reference_from(schedule.namespace, namespace, name)):
                self._wake(schedule)

    def update_defaults(self, namespace: str) -> None:
        """Make the Schedules of a namespace check the definitions of their runs with its changed WorkflowDefaults."""
        for schedule in self._index.schedules.values():
            if schedule.namespace == namespace:
                schedule.update_defaults()
                self._wake(schedule)

    def update_policies(self, namespace: str) -> None:
        """Make Schedules check the changed RetryPolicies of a namespace."""
        for schedule in self._index.schedules.values():
            if schedule.namespace == namespace and schedule.waits_for_policy:
                self._wake(schedule)

    def recompute(self) -> None:
        """Recompute due times after the wall clock was set."""
        for schedule in self._index.schedules.values():
            self._wake(schedule)

    def _wake(self, schedule: ReconciledSchedule) -> None:
        self._queue.wake(self._key(schedule))

    def _forget(self, schedule: ReconciledSchedule) -> None:
        self._index.schedules.pop(schedule.uid, None)
        self._queue.forget(self._key(schedule))

    @staticmethod
    def _key(schedule: ReconciledSchedule) -> ScheduleKey:
        return ScheduleKey(schedule.namespace, schedule.uid, schedule.name)

    # Requests

    async def request(self, namespace: str, name: str, request: ScheduleRequest) -> Answer:
        """Deliver a request to a Schedule, and return its answer once the answer is recorded.

        A Schedule processes each request ID once, so a caller that does not know the answer may send the request again.

        Raises:
            RequestError: The Kubernetes API request failed.
        """
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        await self.deliver(
            namespace, name, request, lambda result: None if answer.done() else answer.set_result(result)
        )
        return await answer

    async def deliver(
        self, namespace: str, name: str, request: ScheduleRequest, then: Callable[[Answer], None]
    ) -> None:
        """Deliver a request to a Schedule, like `request`; `then` is called with the answer once the answer is recorded.

        Raises:
            RequestError: The Kubernetes API request failed.
        """
        schedule = await self.find(namespace, name)
        if schedule is None:
            message = f"there is no Schedule `{name}` in namespace `{namespace}`"
            then(Answer(ok=False, reason=ConditionReason.TARGET_NOT_FOUND, message=message))
            return
        schedule.inbox.put(request, then)
        self._wake(schedule)

    def withdraw(self, namespace: str, name: str, request_id: str) -> None:
        """Withdraw a request to a Schedule, unless it was already recorded."""
        for schedule in self._named(namespace, name):
            schedule.withdraw(request_id)

    async def find(self, namespace: str, name: str) -> ReconciledSchedule | None:
        """Find a Schedule by name, even if no watch has shown it yet.

        Raises:
            RequestError: The Kubernetes API request failed.
        """
        if (known := self._known(namespace, name)) is not None:
            return known
        try:
            self.update(await self._services.client.get(kube.path(kube.PERDURE, namespace, "schedules", name)))
        except kube.NotFoundError:
            return None
        return self._known(namespace, name)

    def _known(self, namespace: str, name: str) -> ReconciledSchedule | None:
        return next((each for each in self._named(namespace, name) if not each.deleted), None)

    def _named(self, namespace: str, name: str) -> list[ReconciledSchedule]:
        """The known Schedules with a name: the existing one, and deleted ones that are still being processed."""
        return [each for each in self._index.schedules.values() if (each.namespace, each.name) == (namespace, name)]

    # Work

    async def advance(self, key: ScheduleKey) -> None:
        """Reconcile a Schedule, or drop a deleted one.

        Raises:
            NotYetError: The definition in its template is being compiled.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        schedule = self._index.schedules.get(key.uid)
        if schedule is None:
            return
        deleted = schedule.deleted  # a deletion during `advance` needs another call, which answers the pending requests
        wake = await schedule.advance()
        if deleted:
            self._forget(schedule)
        else:
            self._queue.wake_at(key, wake)
        metrics.SCHEDULES_KNOWN.set(len(self._index.schedules))
