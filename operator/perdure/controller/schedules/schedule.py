"""The reconciliation of one Schedule.

    observed  (watch: the schedule, its runs) ─┐
    requested (trigger, backfill, pause)      ─┼─▶ step ─▶ commit ─▶ effects (runs created, stopped, removed) ─▶ next wake
    the clock                                 ─┘             │
                                              conflict ──────┘ another client has written: read again, decide again

Crash windows. Before the commit, the times are still due. Between commit and effects, the committed state names the runs. The
next operator creates them before its first decision, so that they get the last result as of the commit. Their names are locks. A
run is removed only once its end is recorded, so a free name means that the run never existed.

`TemplateCheck` checks whether a run of the template could start, for the condition of the Schedule.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import msgspec
import pydantic
import structlog

from perdure.api import labels
from perdure.api.kinds.schedule import ScheduleSpec, WorkflowRunTemplate
from perdure.api.labels import API_VERSION
from perdure.api.models import mistakes
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.api.state_versions import BACKFILLS
from perdure.api.stored import newer_annotation
from perdure.controller.errors import NotReadyError
from perdure.controller.reconcile.newer_states import NewerStateReports
from perdure.controller.reconcile.reconciler import Inbox, Reconciler
from perdure.controller.reconcile.record import Record
from perdure.controller.retry_policies import Policies
from perdure.controller.schedules.runs import ScheduledRuns
from perdure.controller.services import Peers
from perdure.controller.state_versions import state_versions
from perdure.controller.workflows.definitions import Definitions, input_error
from perdure.engine.inputs import Answer
from perdure.engine.retry import PolicyReference
from perdure.engine.starts import StartExtras
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.kube.events import Recorder
from perdure.language import checks
from perdure.language.expressions import ExpressionError
from perdure.language.program import Finding, InvalidWorkflowError, Severity, retry_policy, with_defaults
from perdure.language.schedule_input import is_evaluated, sample_input
from perdure.observe import metrics
from perdure.runtime.commits import OF_SCHEDULES, Commit, Witness
from perdure.schedule import inputs as inp
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.inputs import Rules, RunOutcome
from perdure.schedule.state import ScheduleState, load_state, newer_state
from perdure.schedule.status import Problem, compose, not_ready
from perdure.schedule.step import ScheduleTransition, next_wake, step
from perdure.schedule.times import Times, times_hash


class TemplateCheck:
    """Checks the template of one Schedule, and repeats this when a dependency has changed."""

    def __init__(self, definitions: Definitions, namespace: str, name: str) -> None:
        """Create it without a result.

        Args:
            definitions: Finds and compiles the definition of the template.
            namespace: Namespace of the Schedule.
            name: Name of the Schedule.
        """
        self._definitions = definitions
        self._namespace = namespace
        self._name = name
        self._checked = False
        self._libraries: frozenset[str] | None = None
        """The Workflows from which the definition copies parts; None: not known yet."""
        self.problem: Problem | None = None
        """Why a run would not start now, according to the last check."""
        self.warning = ""
        """What is probably a mistake, although runs start."""

    def expire(self) -> None:
        """Record that the template or its Workflow has changed."""
        self._checked = False

    def uses(self, workflow: str) -> bool:
        """Whether a change of a Workflow (`<namespace>/<name>` in another namespace) can change the result."""
        return self._libraries is None or workflow in self._libraries

    async def check(self, template: WorkflowRunTemplate, stored: Mapping[str, Any], zone: str) -> bool:
        """Check whether a run could start; return whether the result has changed.

        Due runs start in any case, because the Workflow may be created or fixed by then.

        Args:
            template: The template.
            stored: Its spec, as stored in the API server.
            zone: The time zone of the Schedule.

        Raises:
            NotYetError: The Workflow is being compiled.
            RequestError: The Kubernetes API request failed.
        """
        if self._checked:
            return False
        self._checked, self._libraries = True, None  # before the request: a change during it makes this False again
        try:
            found = await self._find(template, stored, zone)
        except BaseException:
            self._checked = False
            raise
        before = self.problem, self.warning
        self.problem = found
        if is_evaluated(template.spec):
            doubts = [each for each in _of_input(template, zone) if each.severity is Severity.WARNING]
        else:
            doubts = _unevaluated(template)
        doubts += checks.annotations(template.metadata, "spec.workflowRunTemplate.metadata")
        self.warning = "; ".join(map(str, doubts))
        return (self.problem, self.warning) != before

    async def _find(self, template: WorkflowRunTemplate, stored: Mapping[str, Any], zone: str) -> Problem | None:
        if template.spec.workflow is not None and template.spec.workflow.name is None:
            self._libraries = frozenset()
            return None  # code, whose input only its workers can check
        path = "spec.workflowRunTemplate"
        try:
            definition = await self._definitions.find(self._namespace, self._name, template.spec, stored.get("inline"))
        except NotReadyError as error:
            self._libraries = error.libraries
            return Problem(error.reason, error.message)
        except InvalidWorkflowError as error:  # of an inline definition, together with what it copies
            return Problem(
                ConditionReason.INVALID_WORKFLOW, "; ".join(str(each.moved(f"{path}.spec")) for each in error.findings)
            )
        self._libraries = definition.libraries
        try:
            sample = sample_input(template.spec, zone)
        except ExpressionError:
            return None  # it may depend on the result of the previous run
        wrong = definition.program.check_input(with_defaults(definition.program, sample))
        message = "; ".join(str(each.moved(path)) for each in wrong)
        return Problem(ConditionReason.INVALID_INPUT, message) if wrong else None

    def mistakes(self, template: WorkflowRunTemplate, stored: Mapping[str, Any], zone: str) -> list[str]:
        """The errors of the template that prevent every run from starting.

        Args:
            template: The template.
            stored: Its spec, as stored in the API server.
            zone: The time zone of the Schedule.

        Raises:
            NotYetError: The definition is being compiled.
        """
        path = "spec.workflowRunTemplate.spec"
        found = [
            *checks.labels(template.metadata, "spec.workflowRunTemplate.metadata"),
            *checks.options(template.spec, path),
            *input_error(template.spec.input, f"{path}.input"),
            *(each for each in _of_input(template, zone) if each.severity is Severity.ERROR),
            *(_unevaluated(template) if is_evaluated(template.spec) else ()),
        ]
        if (inline := stored.get("inline")) is not None:
            checked = self._definitions.findings(self._namespace, inline)
            found += [each.moved(f"{path}.inline") for each in checked if each.severity is Severity.ERROR]
        return list(map(str, found))


def _of_input(template: WorkflowRunTemplate, zone: str) -> list[Finding]:
    """What is wrong with the expressions in the input of a template, in a time zone."""
    return list(checks.scheduled_input(template.spec, "spec.workflowRunTemplate.spec", zone))


def _unevaluated(template: WorkflowRunTemplate) -> list[Finding]:
    """The expressions of a template that are not evaluated. Those of code may be data of a Temporal client."""
    return list(checks.unevaluated(template.spec, "spec.workflowRunTemplate.spec", evaluates_input=True))


_SHOWN = ("observedGeneration", "conditions", "spec", "nextScheduledTimes")
"""Parts of the status whose changes are written immediately."""

_COUNTED: Final = {
    "actions": "Started",
    "missed_catchup_window": "MissedCatchupWindow",
    "overlap_skipped": "OverlapSkipped",
    "buffer_dropped": "BufferDropped",
}
_WARNED = {
    ConditionReason.RETRY_POLICY_NOT_FOUND: EventReason.RETRY_POLICY_NOT_FOUND,
    ConditionReason.WORKFLOW_NOT_FOUND: EventReason.WORKFLOW_NOT_FOUND,
    ConditionReason.INVALID_WORKFLOW: EventReason.INVALID_WORKFLOW,
    ConditionReason.INVALID_INPUT: EventReason.INVALID_INPUT,
}


class ReconciledSchedule:
    """A Schedule in this process. `advance` is called by one task at a time; everything else at any time."""

    def __init__(
        self,
        client: kube.Client,
        recorder: Recorder,
        peers: Peers,
        policies: Policies,
        obj: kube.Object,
        *,
        definitions: Definitions,
        output_of: Callable[[kube.Object], Awaitable[Any]],
    ) -> None:
        """`output_of` reads the output of a run."""
        meta = obj["metadata"]
        self.namespace: str = meta["namespace"]
        self.name: str = meta["name"]
        self.uid: str = meta["uid"]
        self._policies = policies
        self._template = TemplateCheck(definitions, self.namespace, self.name)
        self._event_recorder = ScheduleEventRecorder(recorder, self.namespace, self.name, self.uid)
        self.waits_for_policy = False
        """Whether its RetryPolicy is missing."""
        self._record = Record(client, obj, "schedules")
        self._runs = ScheduledRuns(client, self._record, peers, warn=self._event_recorder.warn, output_of=output_of)
        self._witness = Witness(OF_SCHEDULES, self.uid, starts_work=False)
        self._newer = NewerStateReports("Schedule", self.namespace)
        self._try_again: datetime | None = None
        self._state: ScheduleState | None = None
        self._rules: tuple[int, Rules, Problem | None] | None = None
        self._log = structlog.get_logger("perdure.schedule")
        self.inbox: Inbox[inp.ScheduleRequest] = Inbox("the schedule")
        """The pending requests. The answer to a request follows once it is recorded."""
        self.advance = Reconciler(self, self._record).advance
        """Reconcile the Schedule; see there."""

    @property
    def deleted(self) -> bool:
        """Whether the Schedule was deleted."""
        return self._record.deleted

    @property
    def created(self) -> str:
        """The time of its creation."""
        return str(self._record.object["metadata"]["creationTimestamp"])

    def update(self, obj: kube.Object) -> bool:
        """Process a watch event of the Schedule; returns whether it is new."""
        return self._record.update(obj)

    def mark_deleted(self) -> None:
        """Process the deletion of the Schedule. The garbage collector removes or keeps its runs, as the client requested."""
        self._record.deleted = True

    def update_workflow(self, name: str) -> bool:
        """Process a change of a Workflow; return whether runs of the schedule use it."""
        if not self._template.uses(name):
            return False
        self._template.expire()
        return True

    def update_defaults(self) -> None:
        """Process a change of the WorkflowDefaults of the namespace."""
        self._template.expire()

    def waits_for(self, run_id: str) -> bool:
        """Whether the end of a run (the UID of the first run of its chain) is not recorded yet."""
        if self._state is None:
            return True
        return any(run_id == self._runs.id_of(run) for run in self._state.running)

    def withdraw(self, request_id: str) -> None:
        """Withdraw a request, unless it was already recorded."""
        for each in self.inbox.withdraw(request_id):
            each.then(Answer(ok=False, reason=ConditionReason.TARGET_NOT_FOUND, message="the request was withdrawn"))

    # Reconciliation

    async def finalize(self) -> None:
        """Answer the pending requests. A deleted Schedule has nothing to release."""
        self.refuse_pending()

    def refuse_pending(self) -> None:
        """Refuse the pending requests, because the Schedule was deleted."""
        self.inbox.refuse_all(ConditionReason.TARGET_NOT_FOUND, f"Schedule `{self.name}` was deleted")

    async def read_again(self) -> None:
        """Read the Schedule from the API server."""
        if await self._record.read_again():
            self._state = None

    def full(self, error: kube.TooLargeError) -> None:
        """Report that the spec leaves no room for the status."""
        message = f"the spec is too large to leave room for the status ({error.message}); shorten the template"
        self._event_recorder.warn(EventReason.PAYLOAD_TOO_LARGE, message, "Commit")
        self.inbox.refuse_all(ConditionReason.PAYLOAD_TOO_LARGE, message)

    async def broken(self, error: Exception) -> None:
        """Report that the operator cannot process the Schedule, and start over from the recorded state."""
        self._state = None
        message = f"the operator cannot process the schedule: {type(error).__name__}: {error}; it retries with backoff"
        problem = Problem(ConditionReason.INTERNAL_ERROR, message)
        with suppress(kube.RequestError):
            await self._report_problem(problem, EventReason.INTERNAL_ERROR, wall_clock())

    async def reconcile(self, now: datetime) -> datetime | None:
        """Observe, decide, commit, and apply the effects."""
        changed = self._rules is None or self._rules[0] != self._generation
        if (self._state is None or changed) and not await self._load(now):
            return self._try_again
        rules, problem = self._rules_now()
        if self._state is not None:
            await self._runs.start(rules, self._state, now)
        if self._state is None and (self._runs.any_started or self._witness.is_accepted(self._record.latest())):
            # Its status was removed, or replaced on purpose: the times since its creation were processed before.
            rules = replace(rules, created=now)
        rules = replace(rules, shows_backfills=state_versions().writes >= BACKFILLS)
        rules, missing = await _with_policy(self._policies, self.namespace, rules)
        self.waits_for_policy = missing is not None
        problem = problem or missing or self._template.problem
        observed = list(self._runs.observed)
        requests = self.inbox.next()
        closed = await self._runs.closed(self._state) if self._state is not None else []
        happened = [*observed, *closed, *(each.request for each in requests)]
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
            happened = [*observed, *closed, *(each.request for each in requests)]
            transition = step(rules, self._state, happened, now)
            wake = next_wake(rules, transition.state, now)
        except Exception as error:
            if not self.inbox.refuse_failing(requests, error):
                raise
            return now
        before = self._state
        await self._commit(rules, transition, problem, now)
        self._state = transition.state
        del self._runs.observed[: len(observed)]
        self._event_recorder.committed(before, transition)
        self.inbox.mark_recorded(requests)
        self.inbox.answer(requests, transition.answers)
        await self._runs.apply(rules, transition.state, now)
        await self._runs.remove_old(rules.spec, transition.state)
        again = await self._template.check(
            rules.spec.workflow_run_template, self._stored_template(), rules.spec.time_zone or "UTC"
        )
        return now if transition.more or self._runs.observed or self.inbox.one_by_one or again else wake

    async def _load(self, now: datetime) -> bool:
        """Resume from the stored status, and return whether the Schedule can continue."""
        status, self._state, self._try_again = self._record.status, None, None
        damage = self._witness.damage(self._record.latest())
        why = state_versions().unreadable(status)  # regardless of the digest, which may have another form
        why = why or newer_annotation(self._record.object, labels.START_ANNOTATION, StartExtras)
        if not damage and not self._witness.accepted and Commit.of(status):
            why = why or newer_state(status)
        if why:
            verdicts = {ConditionType.READY: False}
            self._try_again = await self._newer.report(self._record, why, verdicts, self._event_recorder.warn, now)
            return False
        try:
            self._state = None if damage else load_state(status)
        except (msgspec.ValidationError, AttributeError) as error:
            if not self._witness.is_accepted(self._record.latest()):  # otherwise it starts over from now
                damage = f"`status.state` cannot be read: {error}; {self._witness.remedy(status)}"
        if damage:
            problem = Problem(ConditionReason.STATE_DAMAGED, damage)
            await self._report_problem(problem, EventReason.STATE_DAMAGED, now)
            return False
        try:
            spec = ScheduleSpec.parse(self._record.object["spec"])
            wrong = self._template.mistakes(
                spec.workflow_run_template, self._stored_template(), spec.time_zone or "UTC"
            )
        except pydantic.ValidationError as error:
            # The API server accepted it by the rules of an earlier or a later version.
            wrong = mistakes(error)
        if wrong:
            problem = Problem(ConditionReason.INVALID_SPEC, "; ".join(wrong))
            await self._report_problem(problem, EventReason.INVALID_SPEC, now)
            self._state = None
            return False
        self._template.expire()
        return True

    async def _report_problem(self, problem: Problem, reason: EventReason, now: datetime) -> None:
        """Report once why the Schedule cannot continue."""
        self.inbox.refuse_all(problem.reason, problem.message)
        status = not_ready(self._record.status, problem, self._generation, now)
        if status != self._record.status:
            await self._record.write(status)
            self._event_recorder.warn(reason, problem.message, "Load")
            if problem.reason is ConditionReason.STATE_DAMAGED:
                metrics.DAMAGED.labels(self.namespace, "Schedule").inc()

    async def _commit(
        self, rules: Rules, transition: ScheduleTransition, problem: Problem | None, now: datetime
    ) -> None:
        """Record the transition with one write, which fails if another client has written since."""
        before = self._record.status
        status = compose(
            before,
            rules,
            transition.state,
            problem=problem,
            warning=self._template.warning,
            generation=self._generation,
            now=now,
        )
        if not transition.durable and all(status.get(key) == before.get(key) for key in _SHOWN):
            return
        ready = _ready(before)
        await self._record.write(self._witness.commit(state_versions().stamp(status, before), before))
        self._witness.recorded(self._record.status)
        if problem is not None and _ready(status) != ready:
            self._event_recorder.warn(_WARNED.get(problem.reason, EventReason.INVALID_SPEC), problem.message, "Read")

    @property
    def _generation(self) -> int:
        return int(self._record.object["metadata"].get("generation", 1))

    def _stored_template(self) -> dict[str, Any]:
        """The spec of its template, as stored in the API server."""
        spec: dict[str, Any] = self._record.object["spec"]["workflowRunTemplate"].get("spec") or {}
        return spec

    # Spec

    def _rules_now(self) -> tuple[Rules, Problem | None]:
        if self._rules is None or self._rules[0] != self._generation:
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
                times_hash=times_hash(spec),
                times=times,
                created=datetime.fromisoformat(self.created),
            )
            self._rules = (self._generation, rules, problem)
        return self._rules[1], self._rules[2]


async def _with_policy(policies: Policies, namespace: str, rules: Rules) -> tuple[Rules, Problem | None]:
    """Add the current RetryPolicy to the rules; also return a problem if it is missing."""
    choice = retry_policy(rules.spec.retry_policy) if rules.spec.retry_policy else None
    if not isinstance(choice, PolicyReference):
        return replace(rules, retry_policy=choice), None
    if not await policies.missing(namespace, [choice.name]):
        return replace(rules, retry_policy=policies.of(namespace)[choice.name]), None
    message = (
        f"there is no valid RetryPolicy `{choice.name}`; failed runs are retried once there is one, unless the next run is "
        "due first"
    )
    return rules, Problem(ConditionReason.RETRY_POLICY_NOT_FOUND, message)


def _is_due(rules: Rules, state: ScheduleState, now: datetime) -> bool:
    wake = next_wake(rules, state, now)
    return wake is not None and wake <= now


def _has_failed(observed: inp.ScheduleInput) -> bool:
    return isinstance(observed, inp.RunClosed) and observed.outcome in {RunOutcome.FAILED, RunOutcome.TIMED_OUT}


def _ready(status: dict[str, Any]) -> tuple[Any, ...]:
    return next(
        ((c["status"], c["reason"], c.get("message")) for c in status.get("conditions") or () if c["type"] == "Ready"),
        (),
    )


class ScheduleEventRecorder:
    """Records the Events and metrics of one Schedule about its commits. They are best effort and follow the commit."""

    def __init__(self, recorder: Recorder, namespace: str, name: str, uid: str) -> None:
        self._recorder = recorder
        self._namespace = namespace
        self._about = {
            "apiVersion": API_VERSION,
            "kind": "Schedule",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
        }

    def warn(self, reason: EventReason, note: str, action: str) -> None:
        """Record a warning."""
        self._recorder.record(self._about, kind="Warning", reason=reason, note=note, action=action)

    def committed(self, before: ScheduleState | None, transition: ScheduleTransition) -> None:
        """Record the changes of a commit.

        Args:
            before: The previous state; None for a new Schedule.
            transition: The committed transition.
        """
        for name, outcome in _COUNTED.items():
            more = getattr(transition.state.counts, name) - (getattr(before.counts, name) if before else 0)
            if more > 0:
                metrics.SCHEDULE_ACTIONS.labels(self._namespace, outcome).inc(more)
        for note in transition.notes:
            kind = "Warning" if note.warning else "Normal"
            self._recorder.record(self._about, kind=kind, reason=note.reason, note=note.text, action="Schedule")
