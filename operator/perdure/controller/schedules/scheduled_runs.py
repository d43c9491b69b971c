"""Create and stop the runs of one Schedule. Their names are locks."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, assert_never

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.api.reasons import EventReason
from perdure.controller.peers import Peers
from perdure.controller.reconcile.record import Record
from perdure.controller.run_entries import Standing
from perdure.controller.schedules.schedule_events import ScheduleEventRecorder
from perdure.controller.schedules.scheduled_chains import ScheduledChains
from perdure.engine import inputs as run_inputs
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.observe import metrics
from perdure.schedule import inputs as inp
from perdure.schedule.run_manifests import is_of, not_handed_on, scheduled_run
from perdure.schedule.state import Running, ScheduleState
from perdure.schedule.step import Effect, StartRun, StopRun, effects

_SHORTEST_TRY: Final = timedelta(seconds=5)
_LONGEST_TRY: Final = timedelta(hours=1)
"""How long a run that the API server rejects temporarily is retried: the catch-up window, within these limits (Temporal:
service/worker/scheduler, startWorkflow)."""
_LATE: Final = timedelta(minutes=5)
"""Delay after its time from which a run counts as caught up with, and not as delayed by the operator."""


class ScheduledRuns:
    """The runs of one Schedule."""

    def __init__(
        self,
        client: kube.Client,
        record: Record,
        peers: Peers,
        event_recorder: ScheduleEventRecorder,
        chains: ScheduledChains,
    ) -> None:
        """Create it without runs.

        Args:
            client: The client of the API server.
            record: The stored record of the Schedule.
            peers: The runs of this operator.
            event_recorder: Records Events.
            chains: The existing runs.
        """
        meta = record.object["metadata"]
        self._namespace: str = meta["namespace"]
        self._name: str = meta["name"]
        self._uid: str = meta["uid"]
        self._client = client
        self._record = record
        self._peers = peers
        self._event_recorder = event_recorder
        self._chains = chains
        self._made: dict[str, str] = {}
        """UIDs of the known runs, by name."""
        self._stopped: set[tuple[str, str]] = set()
        """The sent requests, with the UID of each run of a chain."""
        self.observed: list[inp.ScheduleInput] = []
        """The results of effects, for the next reconciliation."""

    @property
    def any_started(self) -> bool:
        """Whether a run of the schedule is known."""
        return bool(self._chains.entries())

    def id_of(self, run: Running) -> str:
        """The UID of the first run of a chain; empty if the run is not known to exist."""
        return run.run_id or self._made.get(run.name, "")

    # Applying effects

    async def start(self, state: ScheduleState, now: datetime) -> None:
        """Create the runs of the committed state that are not known to exist.

        Args:
            state: The committed state.
            now: The time.

        Raises:
            ConflictError: The Schedule is not as it was read.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        await self._apply([effect for effect in effects(state) if isinstance(effect, StartRun)], state, now)

    async def apply(self, state: ScheduleState, now: datetime) -> None:
        """Apply all effects of the committed state. Arguments and exceptions are those of `start`."""
        await self._apply(effects(state), state, now)

    async def _apply(self, wanted: Sequence[Effect], state: ScheduleState, now: datetime) -> None:
        self._forget_all_but(state)
        there = {entry.name for entry in self._chains.entries()}
        for effect in wanted:
            match effect:
                case StartRun(run):
                    await self._start(run, state, now, is_there=run.name in there)
                case StopRun(run):
                    await self._stop(run)
                case _:
                    assert_never(effect)

    def _forget_all_but(self, state: ScheduleState) -> None:
        names = {run.name for run in state.running}
        self._made = {name: uid for name, uid in self._made.items() if name in names}
        for run in state.running:
            if run.run_id:
                self._made.setdefault(run.name, run.run_id)
        known = {entry.uid for entry in self._chains.entries()}
        self._stopped = {(uid, how) for uid, how in self._stopped if uid in known}

    async def _start(self, run: Running, state: ScheduleState, now: datetime, *, is_there: bool) -> None:
        """Create a run that is not known to exist."""
        if is_there and run.name not in self._made:
            with suppress(kube.NotFoundError):  # it was deleted, and is created below
                await self._adopt(run)  # an operator created it, but was killed before it recorded this
        if run.name not in self._made and not any(_about(each, run.name) for each in self.observed):
            await self._record.confirm()
            await self._make(run, state, now)

    async def _make(self, run: Running, state: ScheduleState, now: datetime) -> None:
        made = scheduled_run(self._record.object, run, state)
        if left_out := not_handed_on(made, state):
            note = f"Run `{run.name}` does not receive {left_out}: the annotations of a run have at most 256 KiB"
            self._event_recorder.warn(EventReason.PAYLOAD_TOO_LARGE, note, "Start")
        try:
            obj = await self._client.create(self._url(), made)
        except kube.AlreadyExistsError:
            await self._adopt(run)
            return
        except (kube.InvalidError, kube.TooLargeError) as error:
            self._refuse(run, error.message)
            return
        except kube.ApiError as error:
            window = ScheduleSpec.parse(self._record.object["spec"]).catchup_window
            longest = min(max(window, _SHORTEST_TRY), _LONGEST_TRY)
            if error.status in {429, *range(500, 600)} or now - run.started < longest:
                raise
            self._refuse(run, error.message)
            return
        if run.attempt == 1 and now - run.start.actual < _LATE:
            metrics.SCHEDULE_DELAY.observe(max(0.0, (wall_clock() - run.start.actual).total_seconds()))
        self._note_made(run, obj)

    async def _adopt(self, run: Running) -> None:
        """Read the run with the name: an earlier try created it, or it is unrelated."""
        obj = await self._client.get(self._url(run.name))
        if is_of(obj, self._record.object, run):
            self._note_made(run, obj)
        else:
            self.observed.append(inp.NameTaken(name=run.name, uid=obj["metadata"]["uid"]))

    def _note_made(self, run: Running, obj: kube.Object) -> None:
        uid = obj["metadata"]["uid"]
        self._made[run.name] = uid
        if self._peers.directory.get(uid) is None:
            self._peers.directory.put(obj)  # no watch has shown it yet
        self.observed.append(inp.RunMade(name=run.name, run_id=uid))

    def _refuse(self, run: Running, message: str) -> None:
        metrics.SCHEDULE_ACTIONS.labels(self._namespace, "Refused").inc()
        self.observed.append(inp.RunRefused(name=run.name, message=message))

    async def _stop(self, run: Running) -> None:
        """Request a run that blocks the next one to stop, including each open run of its chain.

        If a run closes at that moment and another one follows, the next run gets the request when the watch reports it.
        """
        run_id, how = self.id_of(run), "terminate" if run.terminate else "cancel"
        reason = f"the next run of schedule `{self._name}` is due (overlapPolicy)"
        for entry in self._chains.entries():
            unasked = entry.standing is not Standing.CLOSED and (entry.uid, how) not in self._stopped
            if run_id and entry.first_uid == run_id and unasked:
                request_id = f"{self._uid}/{entry.uid}/{how}"
                request: run_inputs.Request = (
                    run_inputs.TerminateRequested(request_id=request_id, reason=reason)
                    if run.terminate
                    else run_inputs.CancelRequested(request_id=request_id, reason=reason)
                )
                await self._record.confirm(afresh=True)
                self._peers.ask(entry, request, lambda _: None)
                self._stopped.add((entry.uid, how))

    def _url(self, name: str | None = None) -> str:
        return kube.path(kube.PERDURE, self._namespace, "workflowruns", name)


def _about(observed: inp.ScheduleInput, name: str) -> bool:
    return isinstance(observed, inp.RunRefused | inp.NameTaken) and observed.name == name
