"""Limit the space of finished runs in etcd: if a namespace exceeds it, remove its oldest runs."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from perdure.api.labels import API_VERSION
from perdure.api.reasons import EventReason
from perdure.controller.informers.index import Index
from perdure.controller.retention.end_recorded import EndRecorded
from perdure.controller.run_entries import Entry, Standing
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.kube.events import Recorder
from perdure.observe import metrics
from perdure.runtime.retention import Limits, surplus

_WAIT: Final = timedelta(seconds=10)
"""Minimum interval between two checks of a namespace, whose cost grows with the number of finished runs."""
_GRACE: Final = timedelta(minutes=1)
"""How long a finished run is kept at least, so that clients that wait for its result can read it."""
_MOST: Final = 500
"""Maximum number of runs to remove in one call, so that other work of the namespace gets its turn."""


class NamespaceRetention:
    """Limits the finished runs of all namespaces."""

    def __init__(
        self,
        client: kube.Client,
        recorder: Recorder,
        index: Index,
        limits: Limits,
        *,
        is_over: Callable[[kube.Object], bool],
        holds: Callable[[str, str], bool],
    ) -> None:
        """Create it without runs.

        Args:
            client: Reads and deletes runs.
            recorder: Records Events.
            index: The finished runs, and the objects that wait for them.
            limits: The limits of each namespace.
            is_over: Returns whether a run has no pending work.
            holds: Returns whether this process knows the dependencies of an object, by the namespace and the name that select
                its shard. The dependencies of other objects are read before a run is removed.
        """
        self._client = client
        self._recorder = recorder
        self._index = index
        self._limits = limits
        self._is_over = is_over
        self._holds = holds
        self._waiting: set[str] = set()
        self._log = structlog.get_logger("perdure.retention")

    def observe(self, namespace: str) -> datetime | None:
        """Record that a run of a namespace has finished or was deleted; return when to call `enforce`, or None for never."""
        tally = self._index.directory.finished.of(namespace)
        metrics.show_finished(namespace, tally.runs, tally.size)
        if namespace in self._waiting or not self._limits.exceeded_by(tally):
            return None
        self._waiting.add(namespace)
        return now() + _WAIT

    async def enforce(self, namespace: str) -> datetime | None:
        """Remove the oldest finished runs of a namespace with too many; return when to call again, or None for never.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        why = self._limits.exceeded_by(self._index.directory.finished.of(namespace))
        if not why:
            self._waiting.discard(namespace)
            return None
        latest = (now() - _GRACE).isoformat()
        found = surplus(
            self._index.directory.finished_runs(namespace),
            self._limits,
            lambda run: run.closed < latest and not self._is_waited_for(run),
        )
        removed, failed = await self._remove_all(found[:_MOST])
        if removed:
            self._report(removed, why)
        elif failed is not None:
            raise failed
        return now() + _WAIT

    def _is_waited_for(self, run: Entry) -> bool:
        """Whether, according to this process, a finished run has pending work or another object needs its result."""
        if run.uid in self._index.runs or run.successor:
            return True
        if any(other.standing is Standing.WAITING for other in self._index.directory.sharing(run)):
            return True  # that run may begin with the history of this one
        schedule, parent = self._index.schedules.get(run.schedule_uid), self._index.runs.get(run.parent_uid)
        if schedule is not None and self._holds(run.namespace, schedule.name) and schedule.waits_for(run.first_uid):
            return True
        if parent is None:
            known = self._index.directory.get(run.parent_uid)
            if known is None or known.standing is Standing.CLOSED:
                return False
            return self._holds(run.namespace, known.workflow_id)
        children = parent.state.children.values() if parent.state is not None else None
        return children is None or any(child.initiated_event_id == run.initiated_event_id for child in children)

    async def _remove_all(self, runs: Sequence[Entry]) -> tuple[list[Entry], Exception | None]:
        """Remove runs; return the removed ones and the last error. A run that cannot be removed does not block the others."""
        recorded, removed, failed = EndRecorded(self._client), list[Entry](), None
        for run in runs:
            try:
                if await self._remove(run, recorded):
                    removed.append(run)
            except kube.RequestError as error:
                failed = error
        return removed, failed

    async def _remove(self, run: Entry, recorded: EndRecorded) -> bool:
        """Remove a run if it is still finished and its end is recorded everywhere; return whether it was removed."""
        url = kube.path(kube.PERDURE, run.namespace, "workflowruns", run.name)
        try:
            obj = await self._client.get(url)
        except (kube.NotFoundError, kube.UnreadableError):
            return False
        meta = obj["metadata"]
        if meta["uid"] != run.uid or not self._is_over(obj) or not await recorded.everywhere(obj):
            return False
        return await self._client.delete(url, uid=meta["uid"], version=meta["resourceVersion"])

    def _report(self, removed: list[Entry], why: str) -> None:
        namespace, oldest = removed[0].namespace, removed[0]
        metrics.FINISHED_REMOVED.labels(namespace).inc(len(removed))
        self._log.warning("Removed the oldest finished runs", namespace=namespace, runs=len(removed), reason=why)
        about = {
            "apiVersion": API_VERSION,
            "kind": "WorkflowRun",
            "metadata": {"namespace": namespace, "name": oldest.name, "uid": oldest.uid},
        }
        note = f"Removed {len(removed)} finished runs before their TTL, the oldest `{oldest.name}`: {why}"
        self._recorder.record(
            about, kind="Warning", reason=EventReason.FINISHED_RUNS_REMOVED, note=note, action="Remove"
        )
