"""One schedule: the pass that takes it further, and the runs that it makes.

    observed  (watch: the schedule, its runs) ─┐
    asked for (trigger, backfill, pause)      ─┼─▶ step ─▶ commit ─▶ effects (runs made, asked to stop, removed) ─▶ next wake
    the clock                                 ─┘             │
                                              conflict ──────┘ someone else moved: read again, decide again

Crash windows. Before the commit the times are still due. Between commit and effects, the committed state names the runs: they
are made by whoever comes next, before anything else is decided, so that they are given the result that was the last one then.
Their names are locks. A run is removed only once its end is recorded, so a name that is free means that there was no run yet.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pydantic
import structlog

from perdure.api.common import API_VERSION, mistakes
from perdure.api.labels import SCHEDULE_LABEL
from perdure.api.names import label_value
from perdure.api.reasons import ConditionReason, EventReason
from perdure.api.schedule import ScheduleSpec, WorkflowRunTemplate
from perdure.controller.child_outcomes import failure_in, has_successor
from perdure.controller.commit import Record
from perdure.controller.definitions import Definitions, NotReadyError, unfit_input
from perdure.controller.directory import Entry, Standing
from perdure.controller.errors import NotYetError
from perdure.controller.expiry import remove_finished
from perdure.controller.peers import Peers
from perdure.controller.policies import Policies
from perdure.engine import inputs as run_inputs
from perdure.engine.retry import PolicyReference
from perdure.kube import client as api
from perdure.kube.clock import now as wall_clock
from perdure.kube.events import Recorder
from perdure.language.checks import labels, options
from perdure.language.program import Severity, retry_policy, with_defaults
from perdure.observe import metrics
from perdure.runtime.commits import OF_RUNS, OF_SCHEDULES, Witness, edited
from perdure.schedule import inputs as inp
from perdure.schedule.errors import InvalidTimesError
from perdure.schedule.inputs import Answer, Outcome
from perdure.schedule.runs import is_of, not_handed_on, scheduled_run
from perdure.schedule.state import Running, State, load_state
from perdure.schedule.status import Problem, compose, not_ready
from perdure.schedule.step import Rules, Transition, next_wake, not_taken, step
from perdure.schedule.times import Times

_SHOWN = ("observedGeneration", "conditions", "spec", "nextScheduledTimes")
"""Parts of the status that are worth a write of their own."""

_SHORTEST_TRY, _LONGEST_TRY = timedelta(seconds=5), timedelta(hours=1)
"""How long a run that the API server refuses for now is tried again: the catch-up window, within these (Temporal:
service/worker/scheduler, startWorkflow)."""

_WARNED = {
    ConditionReason.RETRY_POLICY_NOT_FOUND: EventReason.RETRY_POLICY_NOT_FOUND,
    ConditionReason.WORKFLOW_NOT_FOUND: EventReason.WORKFLOW_NOT_FOUND,
    ConditionReason.INVALID_WORKFLOW: EventReason.INVALID_WORKFLOW,
    ConditionReason.INVALID_INPUT: EventReason.INVALID_INPUT,
}

_COUNTED = {
    "actions": "Started",
    "missed_catchup_window": "MissedCatchupWindow",
    "overlap_skipped": "OverlapSkipped",
    "buffer_dropped": "BufferDropped",
}


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, and who wants to know what becomes of it."""

    request: inp.Request
    then: Callable[[Answer], None]


class Schedule:
    """A Schedule in this process. `advance` is called by one task at a time; everything else at any time."""

    def __init__(
        self,
        client: api.Client,
        recorder: Recorder,
        peers: Peers,
        policies: Policies,
        obj: api.Object,
        *,
        definitions: Definitions,
    ) -> None:
        meta = obj["metadata"]
        self.namespace: str = meta["namespace"]
        self.name: str = meta["name"]
        self.uid: str = meta["uid"]
        self._client = client
        self._recorder = recorder
        self._peers = peers
        self._policies = policies
        self._definitions = definitions
        self.waits_for_policy = False
        """Whether the RetryPolicy that it names is missing."""
        self._template: Problem | None = None
        """Why a run of the template would not start now."""
        self._template_checked = False
        self._record = Record(client, obj, "schedules")
        self._witness = Witness(OF_SCHEDULES, self.uid, starts_work=False)
        self._state: State | None = None
        self._rules: tuple[int, Rules, Problem | None] | None = None
        self._log = structlog.get_logger("perdure.schedule")
        self._inbox: list[_Asked] = []
        self._news: list[inp.ScheduleInput] = []
        """What has come of the effects."""
        self._made: dict[str, str] = {}
        """Ids of the runs that are known to exist, by name."""
        self._stopped: set[tuple[str, str]] = set()
        """What runs were asked already: the uid of each link of a chain, and how."""

    @property
    def gone(self) -> bool:
        """Whether the Schedule was deleted."""
        return self._record.gone

    def observe(self, obj: api.Object) -> bool:
        """A watch shows the schedule; whether that is news."""
        return self._record.observe(obj)

    def observe_gone(self) -> None:
        """The Schedule was deleted. Its runs are removed by the garbage collector, or stay, as whoever deleted it wanted."""
        self._record.gone = True

    def observe_workflow(self, name: str) -> bool:
        """A Workflow was created, changed or deleted; whether the runs of the schedule run it."""
        reference = (self._record.object["spec"]["workflowRunTemplate"].get("spec") or {}).get("workflow") or {}
        if reference.get("name") != name:
            return False
        self._template_checked = False
        return True

    def ask(self, request: inp.Request, then: Callable[[Answer], None]) -> None:
        """Have the schedule take a request at its next pass; `then` is called with the answer, once that is recorded."""
        self._inbox.append(_Asked(request, then))

    def waits_for(self, run_id: str) -> bool:
        """Whether the end of a run, named by the first one of its chain, is not recorded yet."""
        if self._state is None:
            return True
        return any(run_id == (run.run_id or self._made.get(run.name)) for run in self._state.running)

    def withdraw(self, request_id: str) -> None:
        """Whoever has asked does not want it any more: it is not done, unless it was recorded already."""
        for each in [each for each in self._inbox if each.request.request_id == request_id]:
            self._inbox.remove(each)
            each.then(Answer(ok=False, reason=ConditionReason.TARGET_NOT_FOUND, message="it was withdrawn"))

    # The pass

    async def advance(self) -> datetime | None:
        """Take the schedule as far as it goes now; when it wants to be called again, None if only something outside can wake it.

        Raises:
            NotYetError: the definition in its template is being compiled.
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part; to be called again.
        """
        if self._record.gone:
            self._refuse_all(ConditionReason.TARGET_NOT_FOUND, f"Schedule `{self.name}` was deleted")
            return None
        try:
            return await self._advance(wall_clock())
        except api.ConflictError:
            metrics.COMMIT_CONFLICTS.inc()
            await self._read_again()
            return wall_clock()
        except api.TooLargeError as error:
            message = f"its spec leaves no room for its status ({error.message}); shorten its template"
            self._warn(EventReason.PAYLOAD_TOO_LARGE, message, "Commit")
            self._refuse_all(ConditionReason.PAYLOAD_TOO_LARGE, message)
            return None
        except Exception as error:
            if isinstance(error, (NotYetError, api.ApiError, *api.TRANSIENT)) and not isinstance(
                error, api.InvalidError
            ):
                raise
            self._state = None
            message = (
                f"the operator cannot process the schedule: {type(error).__name__}: {error}; it retries with backoff"
            )
            problem = Problem(ConditionReason.INTERNAL_ERROR, message)
            with suppress(api.ApiError, *api.TRANSIENT):
                await self._stand_still(problem, EventReason.INTERNAL_ERROR, wall_clock())
            raise

    async def _advance(self, now: datetime) -> datetime | None:
        self._record.doubt()
        if self._record.outdated:
            await self._read_again()
            if self._record.gone:
                return now
        changed = self._rules is None or self._rules[0] != self._generation
        if (self._state is None or changed) and not await self._load(now):
            return None
        if self._state is not None:
            await self._make_runs(self._state, now)
        rules, problem = self._rules_now()
        has_started = next(iter(self._peers.directory.of_schedule(self.namespace, self.uid)), None) is not None
        if self._state is None and (has_started or self._witness.is_accepted(self._record.latest())):
            # Its status was removed, or replaced on purpose: the times since its creation were processed before.
            rules = replace(rules, created=now)
        rules, missing = await self._with_policy(rules)
        self.waits_for_policy = missing is not None
        problem = problem or missing or self._template
        news = list(self._news)
        asked = list(self._inbox)
        closed = await self._closed()
        happened = [*news, *closed, *(each.request for each in asked)]
        try:
            if missing is not None and self._state is not None and not _is_due(rules, self._state, now):
                happened = [each for each in happened if not _has_failed(each)]
            transition = step(rules, self._state, happened, now)
            wake = next_wake(rules, transition.state, now)
        except InvalidTimesError as error:
            # Known only now that the search has come this far.
            problem = Problem(error.reason, error.message)
            rules = replace(rules, times=None)
            self._rules = (self._generation, rules, problem)
            happened = [*news, *closed, *(each.request for each in asked)]
            transition = step(rules, self._state, happened, now)
            wake = next_wake(rules, transition.state, now)
        except Exception:
            if not self._refuse_unfit(rules, asked, now):
                raise
            return now
        before = self._state
        await self._commit(rules, transition, problem, now)
        self._state = transition.state
        del self._news[: len(news)]
        self._tell(before, transition)
        self._answer(asked, transition)
        await self._make_runs(transition.state, now)
        await self._stop_runs(transition.state)
        await self._remove_old(rules.spec, transition.state)
        again = await self._check_template(rules.spec)
        return now if transition.more or self._news or again else wake

    async def _load(self, now: datetime) -> bool:
        """Go on where the stored status stands; whether the schedule can go on."""
        status, self._state = self._record.status, None
        damage = self._witness.damage(self._record.latest())
        try:
            self._state = None if damage else load_state(status)
        except (msgspec.ValidationError, AttributeError) as error:
            if not self._witness.is_accepted(self._record.latest()):  # else it starts over, from now on
                damage = f"`status.state` cannot be read: {error}; {self._witness.remedy(status)}"
        if damage:
            problem = Problem(ConditionReason.STATE_DAMAGED, damage)
            await self._stand_still(problem, EventReason.STATE_DAMAGED, now)
            return False
        try:
            spec = ScheduleSpec.parse(self._record.object["spec"])
            wrong = self._wrong_with(spec.workflow_run_template)
        except pydantic.ValidationError as error:
            # The API server has taken it by other rules, of an earlier or a later version.
            wrong = mistakes(error)
        if wrong:
            problem = Problem(ConditionReason.INVALID_SPEC, "; ".join(wrong))
            await self._stand_still(problem, EventReason.INVALID_SPEC, now)
            self._state = None
            return False
        self._template_checked = False
        return True

    async def _check_template(self, spec: ScheduleSpec) -> bool:
        """Find out whether a run of the template could start; whether that has changed.

        Runs start when they are due, whatever comes of it: the Workflow may be created or fixed until then.

        Raises:
            NotYetError: the Workflow is being compiled.
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server could not be asked.
        """
        if self._template_checked:
            return False
        self._template_checked = True  # before the request: a change during it makes this False again
        try:
            found = await self._problem_of(spec.workflow_run_template)
        except BaseException:
            self._template_checked = False
            raise
        before, self._template = self._template, found
        return found != before

    async def _problem_of(self, template: WorkflowRunTemplate) -> Problem | None:
        if template.spec.workflow is not None and template.spec.workflow.name is None:
            return None  # code: its workers know what it takes
        path, given = "spec.workflowRunTemplate", self._record.object["spec"]["workflowRunTemplate"]["spec"]
        try:
            definition = await self._definitions.find(self.namespace, self.name, template.spec, given.get("inline"))
        except NotReadyError as error:
            return Problem(error.reason, error.message)
        wrong = definition.program.check_input(with_defaults(definition.program, template.spec.input))
        message = "; ".join(str(each.moved(path)) for each in wrong)
        return Problem(ConditionReason.INVALID_INPUT, message) if wrong else None

    def _wrong_with(self, template: WorkflowRunTemplate) -> list[str]:
        """What keeps every run of the template from starting.

        Raises:
            NotYetError: its definition is being compiled.
        """
        path, given = "spec.workflowRunTemplate.spec", self._record.object["spec"]["workflowRunTemplate"]["spec"]
        found = [
            *labels(template.metadata, "spec.workflowRunTemplate.metadata"),
            *options(template.spec, path),
            *unfit_input(template.spec.input, f"{path}.input"),
        ]
        if (inline := given.get("inline")) is not None:
            checked = self._definitions.findings(self.namespace, inline)
            found += [each.moved(f"{path}.inline") for each in checked if each.severity is Severity.ERROR]
        return list(map(str, found))

    async def _stand_still(self, problem: Problem, reason: EventReason, now: datetime) -> None:
        """Say why nothing can be done; once, not at each try."""
        self._refuse_all(problem.reason, problem.message)
        status = not_ready(self._record.status, problem, self._generation, now)
        if status != self._record.status:
            await self._record.write(status)
            self._warn(reason, problem.message, "Load")
            if problem.reason is ConditionReason.STATE_DAMAGED:
                metrics.DAMAGED.labels(self.namespace, "Schedule").inc()

    async def _commit(self, rules: Rules, transition: Transition, problem: Problem | None, now: datetime) -> None:
        """Record the transition: one write, refused if anyone has written since."""
        before = self._record.status
        status = compose(before, rules, transition.state, problem=problem, generation=self._generation, now=now)
        if not transition.durable and all(status.get(key) == before.get(key) for key in _SHOWN):
            return
        ready = _ready(before)
        await self._record.write(self._witness.commit(status, before))
        self._witness.recorded(self._record.status)
        if problem is not None and _ready(status) != ready:
            self._warn(_WARNED.get(problem.reason, EventReason.INVALID_SPEC), problem.message, "Read")

    def _answer(self, asked: list[_Asked], transition: Transition) -> None:
        for each in asked:
            answer = transition.answers.get(each.request.request_id)
            if answer is not None and each in self._inbox:
                self._inbox.remove(each)
                each.then(answer)

    def _refuse_unfit(self, rules: Rules, asked: list[_Asked], now: datetime) -> bool:
        """Answer the requests that the pass cannot take, so that they do not stop the schedule; whether there were any."""
        unfit = not_taken(rules, self._state, [each.request for each in asked], now)
        for each in asked:
            error = unfit.get(each.request.request_id)
            if error is not None and each in self._inbox:
                self._log.error("A request cannot be taken", schedule=self.name, request=each.request, exc_info=error)
                self._inbox.remove(each)
                message = f"the schedule cannot take this: {error!r}"
                each.then(Answer(ok=False, reason=ConditionReason.INVALID_SPEC, message=message))
        return bool(unfit)

    def _refuse_all(self, reason: ConditionReason, message: str) -> None:
        asked, self._inbox = self._inbox, []
        for each in asked:
            each.then(Answer(ok=False, reason=reason.value, message=message))

    async def _read_again(self) -> None:
        if await self._record.read_again():
            self._state = None

    @property
    def _generation(self) -> int:
        return int(self._record.object["metadata"].get("generation", 1))

    # What it was told to do

    def _rules_now(self) -> tuple[Rules, Problem | None]:
        if self._rules is None or self._rules[0] != self._generation:
            meta = self._record.object["metadata"]
            spec = ScheduleSpec.parse(self._record.object["spec"])
            times, problem = None, None
            try:
                times = Times(spec)
            except InvalidTimesError as error:
                problem = Problem(error.reason, error.message)
            rules = Rules(
                name=self.name,
                seed=f"{self.namespace}/{self.name}",
                spec=spec,
                times=times,
                created=datetime.fromisoformat(meta["creationTimestamp"]),
            )
            self._rules = (self._generation, rules, problem)
        return self._rules[1], self._rules[2]

    async def _with_policy(self, rules: Rules) -> tuple[Rules, Problem | None]:
        """The rules with the RetryPolicy as it is now; what is wrong if there is none."""
        choice = retry_policy(rules.spec.retry_policy) if rules.spec.retry_policy else None
        if not isinstance(choice, PolicyReference):
            return replace(rules, retry_policy=choice), None
        if not await self._policies.missing(self.namespace, [choice.name]):
            return replace(rules, retry_policy=self._policies.of(self.namespace)[choice.name]), None
        message = f"there is no RetryPolicy `{choice.name}` that can be used; what fails waits for it until the next time is due"
        return rules, Problem(ConditionReason.RETRY_POLICY_NOT_FOUND, message)

    # Its runs

    async def _closed(self) -> list[inp.ScheduleInput]:
        """The runs that have closed since."""
        state = self._state
        if state is None or not state.running:
            return []
        followed = [(run, run_id) for run in state.running if (run_id := run.run_id or self._made.get(run.name))]
        chains = self._chains()
        if any(run_id not in chains for _, run_id in followed):
            chains = await self._listed_chains()
        ends = [await self._end_of(run, chains.get(run_id, [])) for run, run_id in followed]
        return [end for end in ends if end is not None]

    def _chains(self) -> dict[str, list[Entry]]:
        """The runs that are known, by the first one of their chain."""
        chains: dict[str, list[Entry]] = {}
        for entry in self._peers.directory.of_schedule(self.namespace, self.uid):
            chains.setdefault(entry.first_uid, []).append(entry)
        return chains

    async def _listed_chains(self) -> dict[str, list[Entry]]:
        """The same, with the runs that no watch has shown yet: only what the API server does not list was deleted."""
        url = api.path(api.PERDURE, self.namespace, "workflowruns")
        async for obj in self._client.each(url, labelSelector=f"{SCHEDULE_LABEL}={label_value(self.name)}"):
            self._peers.noted(obj)
        return self._chains()

    async def _end_of(self, run: Running, chain: list[Entry]) -> inp.RunClosed | None:
        """How a run has ended, with all that continues it; None while it continues."""
        gone = inp.RunClosed(name=run.name, outcome=Outcome.TERMINATED, time=wall_clock())
        if not chain:
            return gone  # someone else has deleted it
        last = max(chain, key=lambda entry: (entry.closed, entry.uid))
        if last.successor or any(entry.standing is not Standing.CLOSED for entry in chain):
            return None  # one is open, or about to be made
        try:
            obj = await self._client.get(api.path(api.PERDURE, self.namespace, "workflowruns", last.name))
        except api.NotFoundError:
            chain = (await self._listed_chains()).get(last.first_uid, [])
            return None if any(entry.standing is not Standing.CLOSED for entry in chain) else gone
        status = obj.get("status") or {}
        if edited(status, OF_RUNS):
            self._peers.suspect(obj)
            return None
        if has_successor(status) and not await self._successor_is_gone(status):
            return None
        phase = status.get("phase", "")
        return inp.RunClosed(
            name=run.name,
            outcome=Outcome(phase) if phase in set(Outcome) else Outcome.TERMINATED,
            time=datetime.fromisoformat(status["completionTime"]),
            result=status.get("output"),
            failure=failure_in(status),
            told=status.get("failure"),
        )

    async def _successor_is_gone(self, status: dict[str, Any]) -> bool:
        closing = status["history"]["events"][-1]
        name = closing.get("newWorkflowRun") or closing.get("resetRun")
        try:
            await self._client.get(api.path(api.PERDURE, self.namespace, "workflowruns", name))
        except api.NotFoundError:
            return True
        return False

    async def _make_runs(self, state: State, now: datetime) -> None:
        """Make the runs that the committed state names and that are not known to exist."""
        there = {entry.name for entry in self._peers.directory.of_schedule(self.namespace, self.uid)}
        for run in state.running:
            if run.run_id:
                self._made.setdefault(run.name, run.run_id)
            elif run.name in there and run.name not in self._made:
                with suppress(api.NotFoundError):  # deleted meanwhile: created below
                    await self._adopt(run)  # an operator that was killed before it wrote that has created it
            if run.name not in self._made and not any(_about(each, run.name) for each in self._news):
                await self._record.confirm()
                await self._make(run, state, now)
        names = {run.name for run in state.running}
        self._made = {name: uid for name, uid in self._made.items() if name in names}
        known = {entry.uid for entry in self._peers.directory.of_schedule(self.namespace, self.uid)}
        self._stopped = {(uid, how) for uid, how in self._stopped if uid in known}

    async def _make(self, run: Running, state: State, now: datetime) -> None:
        url = api.path(api.PERDURE, self.namespace, "workflowruns")
        made = scheduled_run(self._record.object, run, state)
        if left_out := not_handed_on(made, state):
            note = f"Run `{run.name}` is not given {left_out}: the annotations of a run have at most 256 KiB"
            self._warn(EventReason.PAYLOAD_TOO_LARGE, note, "Start")
        try:
            obj = await self._client.create(url, made)
            if run.attempt == 1 and now - run.start.actual < timedelta(minutes=5):
                metrics.SCHEDULE_DELAY.observe(max(0.0, (wall_clock() - run.start.actual).total_seconds()))
        except api.AlreadyExistsError:
            await self._adopt(run)
            return
        except (api.InvalidError, api.TooLargeError) as error:
            self._refuse(run, error.message)
            return
        except api.ApiError as error:
            longest = min(max(self._window(), _SHORTEST_TRY), _LONGEST_TRY)
            if error.status in {429, *range(500, 600)} or now - run.started < longest:
                raise
            self._refuse(run, error.message)
            return
        self._note_made(run, obj)

    async def _adopt(self, run: Running) -> None:
        """Find the run that has the name: this schedule has created it before, or someone else has created another."""
        obj = await self._client.get(api.path(api.PERDURE, self.namespace, "workflowruns", run.name))
        if is_of(obj, self._record.object, run):
            self._note_made(run, obj)
        else:
            self._news.append(inp.NameTaken(name=run.name, uid=obj["metadata"]["uid"]))

    def _note_made(self, run: Running, obj: api.Object) -> None:
        uid = obj["metadata"]["uid"]
        self._made[run.name] = uid
        if self._peers.directory.get(uid) is None:
            self._peers.directory.put(obj)  # no watch has shown it yet
        self._news.append(inp.RunMade(name=run.name, run_id=uid))

    def _window(self) -> timedelta:
        return ScheduleSpec.parse(self._record.object["spec"]).catchup_window

    def _refuse(self, run: Running, message: str) -> None:
        metrics.SCHEDULE_ACTIONS.labels(self.namespace, "Refused").inc()
        self._news.append(inp.RunRefused(name=run.name, message=message))

    async def _stop_runs(self, state: State) -> None:
        """Ask the runs that are in the way to stop: each link of their chains that is open.

        A link that closes at that very moment may be followed by another, which is asked when the watch tells of it.
        """
        for run in state.running:
            how = "terminate" if run.terminate else "cancel" if run.cancel else ""
            run_id = self._made.get(run.name)
            if not how or not run_id:
                continue
            reason = f"the next run of schedule `{self.name}` is due (overlapPolicy)"
            for entry in self._peers.directory.of_schedule(self.namespace, self.uid):
                unasked = entry.standing is not Standing.CLOSED and (entry.uid, how) not in self._stopped
                if entry.first_uid == run_id and unasked:
                    request_id = f"{self.uid}/{entry.uid}/{how}"
                    request: run_inputs.Request = (
                        run_inputs.TerminateRequested(request_id=request_id, reason=reason)
                        if how == "terminate"
                        else run_inputs.CancelRequested(request_id=request_id, reason=reason)
                    )
                    await self._record.confirm(afresh=True)
                    self._peers.ask(entry, request, lambda _: None)
                    self._stopped.add((entry.uid, how))

    async def _remove_old(self, spec: ScheduleSpec, state: State) -> None:
        """Keep so many closed runs of either sort, the newest, each with its whole chain."""
        open_ = {run.run_id or self._made.get(run.name) for run in state.running}
        closed = [
            chain
            for first, chain in self._chains().items()
            if first not in open_ and all(entry.standing is Standing.CLOSED for entry in chain)
        ]
        closed.sort(key=lambda chain: max((entry.closed, entry.uid) for entry in chain), reverse=True)
        well = [chain for chain in closed if _ended_well(chain)]
        badly = [chain for chain in closed if not _ended_well(chain)]
        extra = [*well[spec.successful_runs_history_limit :], *badly[spec.failed_runs_history_limit :]]
        if extra:  # the limits, and which runs are recorded as ended, are those of now
            await self._record.confirm(afresh=True)
        for entry in (entry for chain in extra for entry in chain):
            url = api.path(api.PERDURE, self.namespace, "workflowruns", entry.name)
            await remove_finished(self._client, url, entry.uid)

    # Telling

    def _tell(self, before: State | None, transition: Transition) -> None:
        for name, outcome in _COUNTED.items():
            more = getattr(transition.state.counts, name) - (getattr(before.counts, name) if before else 0)
            if more > 0:
                metrics.SCHEDULE_ACTIONS.labels(self.namespace, outcome).inc(more)
        for note in transition.notes:
            self._event("Warning" if note.warning else "Normal", note.reason, note.text, "Schedule")

    def _warn(self, reason: EventReason, note: str, action: str) -> None:
        self._event("Warning", reason, note, action)

    def _event(self, kind: str, reason: EventReason, note: str, action: str) -> None:
        about = {
            "apiVersion": API_VERSION,
            "kind": "Schedule",
            "metadata": {"namespace": self.namespace, "name": self.name, "uid": self.uid},
        }
        self._recorder.record(about, kind=kind, reason=reason, note=note, action=action)


def _is_due(rules: Rules, state: State, now: datetime) -> bool:
    wake = next_wake(rules, state, now)
    return wake is not None and wake <= now


def _has_failed(news: inp.ScheduleInput) -> bool:
    return isinstance(news, inp.RunClosed) and news.outcome in {Outcome.FAILED, Outcome.TIMED_OUT}


def _about(news: inp.ScheduleInput, name: str) -> bool:
    return isinstance(news, inp.RunRefused | inp.NameTaken) and news.name == name


def _ready(status: dict[str, Any]) -> tuple[Any, ...]:
    return next(
        ((c["status"], c["reason"], c.get("message")) for c in status.get("conditions") or () if c["type"] == "Ready"),
        (),
    )


def _ended_well(chain: list[Entry]) -> bool:
    return max(chain, key=lambda entry: (entry.closed, entry.uid)).phase == "Completed"
