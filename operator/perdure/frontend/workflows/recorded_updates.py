"""Synchronize the updates in memory with the recorded updates of runs."""

import asyncio
from collections.abc import Coroutine
from functools import partial

from temporalio.api.update.v1 import Outcome

from perdure.controller.workers import Followed
from perdure.engine import events as ev
from perdure.engine.history import decode_events
from perdure.engine.state import RunState
from perdure.frontend.errors import RpcError
from perdure.frontend.messages import failures
from perdure.frontend.messages.histories import update_request
from perdure.frontend.messages.payloads import payloads
from perdure.frontend.runs.gateway import RunGateway, View
from perdure.frontend.runs.large_payloads import LargePayloads
from perdure.frontend.workflows.updates import Update, Updates
from perdure.kube import client as kube
from perdure.runtime.callbacks import UPDATE_LOST


class RecordedUpdates:
    """Admits the updates that a run has recorded, and ends those of a closed run."""

    def __init__(self, runs: RunGateway, updates: Updates, payloads: LargePayloads) -> None:
        self._updates = updates
        self._runs = runs
        self._payloads = payloads
        self._tasks: set[asyncio.Task[None]] = set()

    async def readmit(self, view: View) -> None:
        """Admit the updates that a reset has passed to a run, and no worker has accepted or rejected."""
        code, run_id = view.state.code if view.state is not None else None, view.entry.uid
        admitted = code.admitted if code else {}
        wanted = {name: event_id for name, event_id in admitted.items() if self._updates.get(run_id, name) is None}
        for event in await self._runs.history(view, min(wanted.values())) if wanted else ():
            if isinstance(event, ev.WorkflowExecutionUpdateAdmitted) and event.update_id in wanted:
                request = await self._payloads.whole(view.entry.namespace, partial(update_request, event))
                self._updates.admit(run_id, event.update_id, request, event.principal)

    def closed(self, run: Followed, state: RunState) -> None:
        """Answer the updates of a closed run: accepted ones without an outcome fail."""
        records = state.code.updates if state.code else {}
        for update in self._updates.open(run.ref.uid):
            record = records.get(update.update_id)
            if record is None:
                update.abort()
            elif record.completed_event_id:
                event = next((e for e in _tail_of(run) if e.event_id == record.completed_event_id), None)
                if isinstance(event, ev.WorkflowExecutionUpdateCompleted):
                    self._spawn(self._end_update(run.ref.namespace, update, event))
            else:
                update.end(Outcome(failure=failures.to_proto(UPDATE_LOST)))

    async def _end_update(self, namespace: str, update: Update, event: ev.WorkflowExecutionUpdateCompleted) -> None:
        """Pass the outcome of an update to its callers. If it cannot be read now, clients retry."""
        try:
            update.end(await self._payloads.whole(namespace, lambda: outcome_of(event)))
        except (RpcError, kube.RequestError):
            update.abort()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="end of an update")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _tail_of(run: Followed) -> tuple[ev.AnyEvent, ...]:
    """The end of the history of a run that this process owns."""
    return decode_events(run.object["status"]["history"]["events"])


def outcome_of(event: ev.WorkflowExecutionUpdateCompleted) -> Outcome:
    """The outcome of an update."""
    if event.failure is not None:
        return Outcome(failure=failures.to_proto(event.failure))
    outcome = Outcome()
    outcome.success.SetInParent()
    found = payloads(event.result)
    if found is not None:
        outcome.success.CopyFrom(found)
    return outcome
