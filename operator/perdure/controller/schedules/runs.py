"""The runs of one Schedule: create them, stop them, follow each chain of runs to its end, and remove old ones.

Their names are locks. A run is removed only once its end is recorded, so a free name means that the run never existed.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.api.labels import SCHEDULE_LABEL
from perdure.api.names import label_value
from perdure.api.reasons import EventReason
from perdure.controller.directory import Entry, Standing
from perdure.controller.expiry import remove_finished
from perdure.controller.reconcile.record import Record
from perdure.controller.recorded_state import distrust
from perdure.controller.runs.effects.relations import failure_in
from perdure.controller.services import Peers
from perdure.engine import inputs as run_inputs
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.language.expressions import ExpressionError
from perdure.language.schedule_input import evaluated_input
from perdure.observe import metrics
from perdure.runtime.chains import next_run
from perdure.schedule import inputs as inp
from perdure.schedule.inputs import Rules, RunOutcome
from perdure.schedule.run_manifests import is_of, omitted_data, schedule_scope, scheduled_run
from perdure.schedule.state import ScheduledRun, ScheduleState
from perdure.schedule.step import Effect, StartRun, StopRun, effects

_SHORTEST_TRY: Final = timedelta(seconds=5)
_LONGEST_TRY: Final = timedelta(hours=1)
"""How long a run that the API server rejects temporarily is retried: the catch-up window, within these limits (Temporal:
service/worker/scheduler, startWorkflow)."""
_LATE: Final = timedelta(minutes=5)
"""Delay after its time from which a run counts as caught up with, and not as delayed by the operator."""


class ScheduledRuns:
    """The runs of one Schedule, each with all runs that continue it."""

    def __init__(
        self,
        client: kube.Client,
        record: Record,
        peers: Peers,
        *,
        warn: Callable[[EventReason, str, str], None],
        output_of: Callable[[kube.Object], Awaitable[Any]],
    ) -> None:
        """Create it without runs.

        Args:
            client: The client of the API server.
            record: The stored record of the Schedule.
            peers: The runs of this operator.
            warn: Records a warning as an Event: its reason, its text, and the action.
            output_of: Reads the output of a run.
        """
        meta = record.object["metadata"]
        self._namespace: str = meta["namespace"]
        self._name: str = meta["name"]
        self._uid: str = meta["uid"]
        self._client = client
        self._record = record
        self._peers = peers
        self._warn = warn
        self._output_of = output_of
        self._created: dict[str, str] = {}
        """UIDs of the known runs, by name."""
        self._stopped: set[tuple[str, str]] = set()
        """The sent requests, with the UID of each run of a chain."""
        self.observed: list[inp.ScheduleInput] = []
        """The results of effects, for the next reconciliation."""

    @property
    def any_started(self) -> bool:
        """Whether a run of the schedule is known."""
        return bool(self._entries())

    def id_of(self, run: ScheduledRun) -> str:
        """The UID of the first run of a chain; empty if the run is not known to exist."""
        return run.run_id or self._created.get(run.name, "")

    # Applying effects

    async def start(self, rules: Rules, state: ScheduleState, now: datetime) -> None:
        """Create the runs of the committed state that are not known to exist.

        Args:
            rules: The Schedule's spec.
            state: The committed state.
            now: The time.

        Raises:
            ConflictError: The Schedule is not as it was read.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        await self._apply([effect for effect in effects(state) if isinstance(effect, StartRun)], rules, state, now)

    async def apply(self, rules: Rules, state: ScheduleState, now: datetime) -> None:
        """Apply all effects of the committed state. Arguments and exceptions are those of `start`."""
        await self._apply(effects(state), rules, state, now)

    async def _apply(self, wanted: Sequence[Effect], rules: Rules, state: ScheduleState, now: datetime) -> None:
        self._forget_all_but(state)
        existing = {entry.name for entry in self._entries()}
        for effect in wanted:
            match effect:
                case StartRun(run):
                    await self._start(run, rules, state, now, exists=run.name in existing)
                case StopRun(run):
                    await self._stop(run)
                case _:
                    assert_never(effect)

    def _forget_all_but(self, state: ScheduleState) -> None:
        names = {run.name for run in state.running}
        self._created = {name: uid for name, uid in self._created.items() if name in names}
        for run in state.running:
            if run.run_id:
                self._created.setdefault(run.name, run.run_id)
        known = {entry.uid for entry in self._entries()}
        self._stopped = {(uid, how) for uid, how in self._stopped if uid in known}

    async def _start(
        self, run: ScheduledRun, rules: Rules, state: ScheduleState, now: datetime, *, exists: bool
    ) -> None:
        """Create a run that is not known to exist."""
        if exists and run.name not in self._created:
            with suppress(kube.NotFoundError):  # it was deleted, and is created below
                await self._adopt(run)  # an operator created it, but was killed before it recorded this
        if run.name not in self._created and not any(_about(each, run.name) for each in self.observed):
            await self._record.confirm()
            await self._create(run, rules, state, now)

    async def _create(self, run: ScheduledRun, rules: Rules, state: ScheduleState, now: datetime) -> None:
        body = scheduled_run(self._record.object, run, state, rules.times)
        if left_out := omitted_data(body, state):
            note = f"Run `{run.name}` does not receive {left_out}: the annotations of a run have at most 256 KiB"
            self._warn(EventReason.PAYLOAD_TOO_LARGE, note, "Start")
        try:
            _evaluate_input(rules.spec, body)
        except ExpressionError as error:
            self._refuse(run, f"spec.workflowRunTemplate.spec.{error}")
            return
        try:
            obj = await self._client.create(self._url(), body)
        except kube.AlreadyExistsError:
            await self._adopt(run)
            return
        except (kube.InvalidError, kube.TooLargeError) as error:
            self._refuse(run, error.message)
            return
        except kube.ApiError as error:
            longest = min(max(rules.spec.catchup_window, _SHORTEST_TRY), _LONGEST_TRY)
            if error.status in {429, *range(500, 600)} or now - run.started < longest:
                raise
            self._refuse(run, error.message)
            return
        if run.attempt == 1 and now - run.start.actual < _LATE:
            metrics.SCHEDULE_DELAY.observe(max(0.0, (wall_clock() - run.start.actual).total_seconds()))
        self._note_created(run, obj)

    async def _adopt(self, run: ScheduledRun) -> None:
        """Read the run with the name: an earlier try created it, or it is unrelated."""
        obj = await self._client.get(self._url(run.name))
        if is_of(obj, self._record.object, run):
            self._note_created(run, obj)
        else:
            self.observed.append(inp.NameTaken(name=run.name, uid=obj["metadata"]["uid"]))

    def _note_created(self, run: ScheduledRun, obj: kube.Object) -> None:
        uid = obj["metadata"]["uid"]
        self._created[run.name] = uid
        if self._peers.directory.get(uid) is None:
            self._peers.directory.put(obj)  # no watch has shown it yet
        self.observed.append(inp.RunCreated(name=run.name, run_id=uid))

    def _refuse(self, run: ScheduledRun, message: str) -> None:
        metrics.SCHEDULE_ACTIONS.labels(self._namespace, "Refused").inc()
        self.observed.append(inp.RunRefused(name=run.name, message=message))

    async def _stop(self, run: ScheduledRun) -> None:
        """Request a run that blocks the next one to stop, including each open run of its chain.

        If a run closes at that moment and another one follows, the next run gets the request when the watch reports it.
        """
        run_id, how = self.id_of(run), "terminate" if run.terminate else "cancel"
        reason = f"the next run of schedule `{self._name}` is due (overlapPolicy)"
        for entry in self._entries():
            unsent = entry.standing is not Standing.CLOSED and (entry.uid, how) not in self._stopped
            if run_id and entry.first_uid == run_id and unsent:
                request_id = f"{self._uid}/{entry.uid}/{how}"
                request: run_inputs.Request = (
                    run_inputs.TerminateRequested(request_id=request_id, reason=reason)
                    if run.terminate
                    else run_inputs.CancelRequested(request_id=request_id, reason=reason)
                )
                await self._record.confirm(afresh=True)
                self._peers.send(entry, request, lambda _: None)
                self._stopped.add((entry.uid, how))

    # Following the chains to their ends, and removing them

    async def closed(self, state: ScheduleState) -> list[inp.RunClosed]:
        """The runs that have closed since the last commit.

        Args:
            state: The committed state.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        followed = [(run, run_id) for run in state.running if (run_id := self.id_of(run))]
        chains = self._chains() if followed else {}
        if any(run_id not in chains for _, run_id in followed):
            chains = await self._listed_chains()
        ends = [await self._end_of(run, chains.get(run_id, [])) for run, run_id in followed]
        return [end for end in ends if end is not None]

    async def _end_of(self, run: ScheduledRun, chain: list[Entry]) -> inp.RunClosed | None:
        """The end of a run and of all runs that continue it; None if the chain is open."""
        deleted = inp.RunClosed(name=run.name, outcome=RunOutcome.TERMINATED, time=wall_clock())
        if not chain:
            return deleted  # another client has deleted it
        last = max(chain, key=lambda entry: (entry.closed, entry.uid))
        if last.successor or any(entry.standing is not Standing.CLOSED for entry in chain):
            return None  # one is open or about to be created
        try:
            obj = await self._client.get(self._url(last.name))
        except kube.NotFoundError:
            chain = (await self._listed_chains()).get(last.first_uid, [])
            return None if any(entry.standing is not Standing.CLOSED for entry in chain) else deleted
        status = obj.get("status") or {}
        if distrust(obj):
            self._peers.suspect(obj)
            return None
        following = next_run(status)
        if following and await self._exists(following):
            return None
        phase = status.get("phase", "")
        return inp.RunClosed(
            name=run.name,
            outcome=RunOutcome(phase) if phase in set(RunOutcome) else RunOutcome.TERMINATED,
            time=datetime.fromisoformat(status["completionTime"]),
            result=await self._output_of(obj),
            failure=failure_in(status),
            status_failure=status.get("failure"),
        )

    async def _exists(self, name: str) -> bool:
        try:
            await self._client.get(self._url(name))
        except kube.NotFoundError:
            return False
        return True

    async def remove_old(self, spec: ScheduleSpec, state: ScheduleState) -> None:
        """Remove closed runs beyond the history limits, each with its whole chain.

        Raises:
            ConflictError: The Schedule has changed since it was read.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        open_ = {self.id_of(run) for run in state.running}
        closed = [
            chain
            for first, chain in self._chains().items()
            if first not in open_ and all(entry.standing is Standing.CLOSED and not entry.successor for entry in chain)
        ]
        closed.sort(key=lambda chain: max((entry.closed, entry.uid) for entry in chain), reverse=True)
        well = [chain for chain in closed if _ended_well(chain)]
        badly = [chain for chain in closed if not _ended_well(chain)]
        extra = [*well[spec.successful_runs_history_limit :], *badly[spec.failed_runs_history_limit :]]
        if extra:  # check that the limits and the recorded ends are current
            await self._record.confirm(afresh=True)
        for entry in (entry for chain in extra for entry in chain):
            await remove_finished(self._client, self._url(entry.name), entry.uid, self._peers.is_archived)

    def _entries(self) -> list[Entry]:
        """The known runs."""
        return self._peers.directory.of_schedule(self._namespace, self._uid)

    def _chains(self) -> dict[str, list[Entry]]:
        """The known runs by the first run of their chain."""
        chains: dict[str, list[Entry]] = {}
        for entry in self._entries():
            chains.setdefault(entry.first_uid, []).append(entry)
        return chains

    async def _listed_chains(self) -> dict[str, list[Entry]]:
        """The chains, including runs that no watch has shown yet: only runs that the API server does not list were deleted."""
        async for obj in self._client.lists.each(
            self._url(), labelSelector=f"{SCHEDULE_LABEL}={label_value(self._name)}"
        ):
            self._peers.publish(obj)
        return self._chains()

    def _url(self, name: str | None = None) -> str:
        return kube.path(kube.PERDURE, self._namespace, "workflowruns", name)


def _evaluate_input(spec: ScheduleSpec, body: kube.Object) -> None:
    """Evaluate the input of a new run.

    Raises:
        ExpressionError: An expression is not valid, or has no value.
    """
    evaluated = evaluated_input(spec.workflow_run_template.spec, schedule_scope(body))
    if evaluated is not None:
        body["spec"]["input"] = evaluated


def _about(observed: inp.ScheduleInput, name: str) -> bool:
    return isinstance(observed, inp.RunRefused | inp.NameTaken) and observed.name == name


def _ended_well(chain: list[Entry]) -> bool:
    return max(chain, key=lambda entry: (entry.closed, entry.uid)).phase == "Completed"
