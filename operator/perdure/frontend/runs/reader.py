"""Read the recorded state and history of runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from perdure.controller.directory import Entry
from perdure.controller.manager import Manager
from perdure.controller.reconcile.newer_states import NewerStateError, message_for
from perdure.controller.recorded_state import DamagedStateError, stored_state
from perdure.controller.runs.history_segments import past_of
from perdure.controller.runs.run import Run
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.state import RunState
from perdure.frontend.errors import damaged, unavailable
from perdure.frontend.runs.changes import RunChanges
from perdure.frontend.runs.finder import gone
from perdure.kube import client as kube

_RECORDED_WITHIN = 20.0
"""How long a client waits for the record of a workflow's start, in seconds."""


@dataclass(frozen=True, slots=True)
class View:
    """The recorded state of a run."""

    entry: Entry
    object: kube.Object
    state: RunState | None
    """The state; None before the run has begun."""
    start: Sequence[ev.AnyEvent] = ()
    """The whole history of a run whose start is not recorded yet; only workers see it."""

    @property
    def tail(self) -> list[kube.Object]:
        """The unsealed end of the history, as JSON."""
        found: list[kube.Object] = ((self.object.get("status") or {}).get("history") or {}).get("events") or []
        return found

    @property
    def by_step(self) -> bool:
        """Whether the IDs in its events are paths of steps, because it runs a Workflow."""
        return self.state is not None and self.state.code is None and not self.state.standalone

    @property
    def unsealed(self) -> int:
        """The ID of the first unsealed event, or of the next event if all are sealed."""
        if self.tail:
            begins: int = self.tail[0]["eventId"]
            return begins
        return self.state.next_event_id if self.state is not None else 1


class RunReader:
    """Reads the runs of one operator."""

    def __init__(self, manager: Manager, changes: RunChanges) -> None:
        self._manager = manager
        self._changes = changes

    async def view(self, entry: Entry, followed: Run | None = None) -> View:
        """Return the recorded state of a run. A start that waits for the first decision is recorded first.

        Args:
            entry: The run.
            followed: The run in this process while it was open. If it has closed since, nothing is read.

        Raises:
            RpcError: The run was deleted, or the API server does not respond.
        """
        if followed is not None and followed.state is not None and followed.state.closed and not followed.gone:
            return View(entry, followed.object, followed.state)
        await self._changes.wait_until(entry.uid, partial(self._is_taken_up, entry.uid), _RECORDED_WITHIN)
        if self._manager.runs.record_start(entry):
            recorded = partial(self._is_recorded, entry.uid)
            if not await self._changes.wait_until(entry.uid, recorded, _RECORDED_WITHIN):
                raise unavailable("the start of the workflow has not been recorded yet; the operator keeps trying")
        return await self.view_of_worker(entry)

    def _is_taken_up(self, run_id: str) -> bool:
        """Whether a run has started here, or its status shows why not."""
        run = self._manager.runs.get(run_id)
        if run is None or run.gone or run.state is not None:
            return True
        return bool((run.object.get("status") or {}).get("conditions"))

    def _is_recorded(self, run_id: str) -> bool:
        run = self._manager.runs.get(run_id)
        return run is None or run.gone or not run.unrecorded

    async def view_of_worker(self, entry: Entry) -> View:
        """Return a run for the worker that takes its task, including a start that is not recorded yet.

        Raises:
            RpcError: The run was deleted, or the API server does not respond.
        """
        run = self._manager.runs.get(entry.uid)
        if run is not None and run.state is not None:
            return View(entry, run.object, run.state, run.unrecorded)
        try:
            url = kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name)
            obj = await self._manager.client.get(url)
            if obj["metadata"]["uid"] != entry.uid:
                raise gone(entry)
            return View(entry, obj, stored_state(obj))
        except kube.NotFoundError:
            raise gone(entry) from None
        except kube.RequestError as error:
            raise unavailable(str(error)) from error
        except DamagedStateError as error:
            raise damaged(str(error)) from error
        except NewerStateError as error:
            raise unavailable(message_for(str(error))) from error

    async def history(self, view: View, first: int = 1) -> tuple[ev.AnyEvent, ...]:
        """Return the history of a run starting at an event, including sealed events.

        Raises:
            RpcError: The API server does not respond, or a part of the history is missing.
        """
        if view.start:
            return tuple(view.start[first - 1 :])
        events, begins = view.tail, view.unsealed
        if first < begins:
            try:
                past = await past_of(self._manager.client, view.object)
            except kube.RequestError as error:
                raise unavailable(str(error)) from error
            if past.damage:
                raise damaged(past.damage[0].message)
            events, begins = past.events, 1
        try:
            return history.decode_events(events[max(first - begins, 0) :])
        except msgspec.ValidationError as error:
            raise unavailable(message_for(f"its history: {error}")) from error

    async def last(self, view: View) -> ev.AnyEvent:
        """Return the last event of a run that has begun.

        Raises:
            RpcError: As for `history`.
        """
        assert view.state is not None
        return (await self.history(view, view.state.next_event_id - 1))[-1]
