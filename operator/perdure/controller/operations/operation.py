"""One Operation: its keys in the queue, the action that it requires, and its reconciliation.

Its request is delivered once, and the answer is recorded in its status:

Pending ─▶ the targeted run is recorded ─▶ Delivered ─▶ the run records the Operation's UID ─▶ Answered ─▶ Recorded
   ▲         └ killed here: delivered again               └ killed here: delivered again; the run recognizes it
   └─────────────── the run had closed, and the next run of its chain must get the request ───────┘

A reset or a retry creates a run: Pending ─▶ the new run is recorded ─▶ Created ─▶ it has begun ─▶ Answered ─▶ Recorded
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, assert_never

import pydantic
import structlog

from perdure.api.kinds.operation import OperationSpec, Reset, Retry, TargetKind
from perdure.api.labels import API_VERSION
from perdure.api.models import mistakes_by_path, unknown_field
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.controller.directory import Entry
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.dispatch.schedules import Schedules
from perdure.controller.errors import RefusedError
from perdure.controller.operations.status import (
    OperationAnswer,
    finished,
    identity,
    newer_part,
    record_answer,
    running,
)
from perdure.controller.operations.targets import HoldError, RunResets, Targets, check_age
from perdure.controller.queue import ExpiryKey
from perdure.controller.reconcile.newer_states import NewerStateError, NewerStateReports
from perdure.controller.reconcile.reconciler import Reconciler
from perdure.controller.reconcile.record import Record, Status
from perdure.controller.services import OVER, Services
from perdure.controller.state_versions import state_versions
from perdure.engine import inputs
from perdure.engine.inputs import Answer, Request
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.chains import created_by
from perdure.runtime.operation_requests import arrival, request_of, too_much
from perdure.schedule.inputs import ScheduleRequest
from perdure.schedule.inputs import request_of as schedule_request_of

_SOON: Final = timedelta(milliseconds=200)
"""Delay before an Operation looks again for a run that is about to be created or to begin."""
_BEGIN_WITHIN: Final = timedelta(seconds=20)
"""After this time, a reset or a retry is complete even if its run has not begun, so that it does not block later Operations."""


@dataclass(frozen=True, slots=True)
class TargetKey:
    """Process the pending Operations of a target in order."""

    namespace: str
    kind: str
    field: str
    """The field of `spec.target`: ``name`` or ``workflowId``."""
    value: str

    @property
    def sharded_by(self) -> str:
        """The workflow ID or name, which selects the shard of the target, unless a run's name differs from its workflow ID."""
        return self.value

    @classmethod
    def of(cls, obj: kube.Object) -> "TargetKey":
        """The key of the target of an Operation."""
        target = obj["spec"]["target"]
        field = "name" if "name" in target else "workflowId"
        return cls(obj["metadata"]["namespace"], target["kind"], field, target[field])


@dataclass(frozen=True, slots=True)
class OperationKey:
    """Reconcile an Operation whose request was answered."""

    namespace: str
    uid: str
    sharded_by: str = field(compare=False)
    """The same as for its target."""


@dataclass(frozen=True, slots=True)
class ForgetKey:
    """Let a run drop an answered Operation."""

    namespace: str
    run_id: str
    uid: str


Key = TargetKey | OperationKey | ForgetKey | ExpiryKey


@dataclass(frozen=True, slots=True)
class DeliverToRun:
    """Deliver a request to the run that the Operation targets."""

    request: Request


@dataclass(frozen=True, slots=True)
class DeliverToSchedule:
    """Deliver a request to a Schedule."""

    name: str
    request: ScheduleRequest


@dataclass(frozen=True, slots=True)
class DeleteRun:
    """Delete the run that the Operation targets."""


@dataclass(frozen=True, slots=True)
class ResetRun:
    """Reset or retry the run that the Operation targets."""

    wanted: Reset | Retry


@dataclass(frozen=True, slots=True)
class RedriveDeadLetter:
    """Start a run that repeats the activity of a DeadLetter."""

    name: str


Action = DeliverToRun | DeliverToSchedule | ResetRun | DeleteRun | RedriveDeadLetter


def action_of(obj: kube.Object) -> Action:
    """Read the action from an Operation.

    Raises:
        NewerStateError: The spec has a field that only a newer version knows.
        RefusedError: The spec is invalid, or its payload is too large.
    """
    try:
        spec = OperationSpec.parse(obj["spec"])
    except pydantic.ValidationError as error:
        if why := unknown_field(error, "spec"):
            raise NewerStateError(why) from error
        found = (f"{f'spec.{path}'.removesuffix('.')}: {text}" for path, text in mistakes_by_path(error))
        raise RefusedError(ConditionReason.INVALID_SPEC, "; ".join(found)) from error
    uid = obj["metadata"]["uid"]
    if spec.target.kind is TargetKind.SCHEDULE:
        assert spec.target.name is not None
        return DeliverToSchedule(spec.target.name, schedule_request_of(spec, uid))
    if spec.target.kind is TargetKind.DEAD_LETTER:
        assert spec.target.name is not None
        return RedriveDeadLetter(spec.target.name)
    if (wanted := spec.reset or spec.retry) is not None:
        return ResetRun(wanted)
    if spec.delete is not None:
        return DeleteRun()
    request = request_of(spec, uid, identity(obj), created_by(obj))
    if (wrong := too_much(request)) is not None:
        raise RefusedError(ConditionReason.PAYLOAD_TOO_LARGE, wrong)
    return DeliverToRun(request)


@dataclass(frozen=True, slots=True)
class Pending:
    """The request must be delivered."""

    again: bool = False
    """Whether it was delivered to a closed run, so that the next run of the chain must get it."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A run or a Schedule has the request, and has not answered yet."""

    entry: Entry | None
    """The run; None for a Schedule."""


@dataclass(frozen=True, slots=True)
class Created:
    """A reset or a retry has created its run, which has not begun yet."""

    outcome: OperationAnswer
    """The answer, to be recorded when the run has begun."""
    until: datetime
    """When the answer is recorded even if the run has not begun."""

    @property
    def run_id(self) -> str:
        """UID of the new run."""
        assert self.outcome.result is not None
        return str(self.outcome.result["runId"])


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer must be recorded in the status."""

    outcome: OperationAnswer


@dataclass(frozen=True, slots=True)
class Recorded:
    """The status contains the answer."""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """The spec leaves no room for an answer in the status. An Event reports the answer."""


Progress = Pending | Delivered | Created | Answered | Recorded | NoRoom


class OperationContext:
    """The services that all Operations share."""

    def __init__(self, services: Services, runs: WorkflowRuns, schedules: Schedules) -> None:
        self.services = services
        self.runs = runs
        self.schedules = schedules
        self.targets = Targets(services.client, runs)
        self.resets = RunResets(services, runs, self.targets)
        self.newer: dict[str, NewerStateReports] = {}
        """The reports about pending Operations that only a newer version of the operator can read, by UID."""


class ReconciledOperation:
    """An Operation in this process. `advance` is called by one task at a time; everything else at any time."""

    def __init__(self, context: OperationContext, obj: kube.Object, answered: Callable[[], None]) -> None:
        """`answered` is called when the run or the Schedule has answered, so that `advance` must be called."""
        self.uid: str = obj["metadata"]["uid"]
        self.target = TargetKey.of(obj)
        self.progress: Progress = Pending()
        self.earlier = ""
        """UID of the run with unanswered requests of earlier Operations for the same target; empty if there is none."""
        self._context = context
        self._answered = answered
        self._record = Record(context.services.client, obj, "operations")
        self._log = structlog.get_logger("perdure.operations")
        self.advance = Reconciler(self, self._record).advance
        """Reconcile the Operation; see there."""

    @property
    def object(self) -> kube.Object:
        """The Operation as it was last written or read."""
        return self._record.latest()

    @property
    def deleted(self) -> bool:
        """Whether the Operation was deleted."""
        return self._record.deleted

    @property
    def is_pending(self) -> bool:
        """Whether the request must be delivered."""
        return isinstance(self.progress, Pending)

    @property
    def must_reach_next_run(self) -> bool:
        """Whether the request was delivered to a run that had closed."""
        return isinstance(self.progress, Pending) and self.progress.again

    @property
    def requested_run(self) -> str:
        """UID of the run whose answer is missing or not recorded yet; empty if there is none."""
        match self.progress:
            case Delivered(Entry() as entry) | Answered(OperationAnswer(entry=Entry() as entry)):
                return entry.uid
            case Created(run_id=run_id):
                return run_id
            case _:
                return ""

    def mark_deleted(self) -> None:
        """Process the deletion of the Operation: withdraw its request, unless the run has recorded it."""
        self._record.deleted = True
        self.withdraw()

    def withdraw(self) -> None:
        """Withdraw the request, unless it was already recorded."""
        if not isinstance(self.progress, Delivered):
            return
        if self.progress.entry is not None:
            self._context.runs.withdraw(self.progress.entry.uid, self.uid)
        else:
            self._context.schedules.withdraw(self.target.namespace, self.target.value, self.uid)

    # Reconciliation

    async def reconcile(self, time: datetime) -> datetime | None:
        """Deliver the request, or record its answer."""
        if why := newer_part(self.object):
            return await self._leave(why, time)
        match self.progress:
            case Pending():
                return await self._process(time)
            case Created(outcome=outcome, until=until, run_id=run_id):
                await self._note_new_run(outcome)
                if time < until and not await self._context.resets.has_begun(run_id):
                    return now() + _SOON
                self.progress = Answered(outcome)
                await self._write(outcome, time)
            case Answered(outcome):
                return await self._settle(outcome, time)
            case Delivered() | Recorded() | NoRoom():
                pass
            case _:
                assert_never(self.progress)
        return None

    async def finalize(self) -> None:
        """Do nothing more: the Operation was deleted."""

    async def read_again(self) -> None:
        """Read the Operation, because another operator may have recorded the answer."""
        await self._record.read_again()
        if self._record.status.get("completionTime"):
            self.progress = Recorded()

    def full(self, error: kube.TooLargeError) -> None:
        """Report the answer in an Event only."""
        outcome = self.progress.outcome if isinstance(self.progress, Created | Answered) else _failed(error)
        self.progress = NoRoom()
        record_answer(self._context.services.recorder, self.object, outcome)

    async def broken(self, error: Exception) -> None:
        """Fail the Operation, so that it does not block later ones. An existing answer is recorded with backoff."""
        if not isinstance(self.progress, Pending):
            return
        self._log.warning("Could not process an Operation", name=self.object["metadata"]["name"], exc_info=error)
        outcome = _failed(error)
        self.progress = Answered(outcome)
        with suppress(kube.RequestError):
            await self._write(outcome, now())

    async def _process(self, time: datetime) -> datetime | None:
        """Perform the action of the Operation; return when to check again if it must wait."""
        try:
            outcome = await self._apply(action_of(self.object), time)
        except NewerStateError as error:
            if (
                "arrival" not in self._record.status
            ):  # the report changes the resourceVersion, which would be its position
                await self._commit({**self._record.status, "arrival": arrival(self.object)})
            return await self._leave(str(error), time)
        except HoldError as held:
            return None if held.until_answered else now() + _SOON
        except RefusedError as error:
            outcome = OperationAnswer(Answer(ok=False, reason=error.reason.value, message=error.message))
        except (kube.TooLargeError, kube.UnreadableError) as error:
            outcome = _failed(error)
        if outcome is not None:
            self.progress = Answered(outcome)
            await self._write(outcome, time)
        return now() if isinstance(self.progress, Created) else None

    async def _leave(self, why: str, time: datetime) -> datetime | None:
        """Leave the Operation, and later ones for its target, to a newer operator; return when to report this again."""
        self.progress = Pending()
        namespace = self.target.namespace
        reports = self._context.newer.setdefault(self.uid, NewerStateReports("Operation", namespace))
        return await reports.report(self._record, why, {ConditionType.NEWER_STATE: True}, self._warn, time)

    def _warn(self, reason: EventReason, note: str, action: str) -> None:
        about = {"apiVersion": API_VERSION, "kind": "Operation", "metadata": self.object["metadata"]}
        self._context.services.recorder.record(about, kind="Warning", reason=reason, note=note, action=action)

    async def _apply(self, action: Action, time: datetime) -> OperationAnswer | None:
        """Apply an action; return its outcome, or None if a run or Schedule determines it later.

        Raises:
            RefusedError: The action cannot be applied.
            HoldError: The Operation and later ones must wait.
            ConflictError: The Operation has changed or was deleted.
        """
        match action:
            case DeliverToRun(request):
                await self._deliver(request, time)
                return None
            case DeliverToSchedule(name, request):
                await self._deliver_to_schedule(name, request)
                return None
            case ResetRun(wanted):
                if self.earlier:
                    raise HoldError(until_answered=True)
                await self._begin(wanted, time)
                return None
            case DeleteRun():
                if self.earlier:
                    raise HoldError(until_answered=True)
                return await self._delete(time)
            case RedriveDeadLetter(name):
                # The run records the UID, so a repeated request starts no second run.
                run = await self._context.services.letters.redrive(self.target.namespace, name, self.uid)
                return OperationAnswer(
                    Answer(ok=True, message=f"runs again as WorkflowRun `{run}`"), None, {"workflowRun": run}
                )
            case _:
                assert_never(action)

    async def _begin(self, wanted: Reset | Retry, time: datetime) -> None:
        """Create the run of a reset or a retry, unless an operator has recorded that it exists."""
        outcome = await self._context.resets.created(self.object)
        if outcome is None:
            entry = await self._context.targets.find(self.object, None, again=False)
            await self._note(entry, time)
            outcome = await self._context.resets.reset(self.object, wanted, entry)
        self.progress = Created(outcome, time + _BEGIN_WITHIN)

    async def _delete(self, time: datetime) -> OperationAnswer:
        """Delete the targeted run, which is recorded first: a run that replaces it is not deleted after a crash."""
        entry = None
        if not self._record.status.get("runId"):
            entry = await self._context.targets.find(self.object, None, again=False)
            await self._note(entry, time)
        name, uid = self._record.status["workflowRun"], self._record.status["runId"]
        url = kube.path(kube.PERDURE, self.target.namespace, "workflowruns", name)
        await self._context.services.client.delete(url, uid=uid)
        answer = Answer(ok=True, message=f"`{name}` is deleted")
        return OperationAnswer(answer, entry, {"workflowRun": name, "runId": uid})

    async def _deliver(self, request: inputs.Request, time: datetime) -> None:
        entry = await self._context.targets.find(self.object, request, again=self.must_reach_next_run)
        if self.earlier not in {"", entry.uid}:
            raise HoldError(until_answered=True)
        await self._note(entry, time)
        self.progress = Delivered(entry)
        try:
            await self._context.runs.deliver(entry, request, self._process_answer)
        except BaseException:
            self.progress = Pending()
            raise

    async def _deliver_to_schedule(self, name: str, request: ScheduleRequest) -> None:
        schedule = await self._context.schedules.find(self.target.namespace, name)
        if schedule is not None:
            check_age(self.object, f"Schedule `{name}`", schedule.created)
        self.progress = Delivered(None)
        try:
            await self._context.schedules.deliver(self.target.namespace, name, request, self._process_answer)
        except BaseException:
            self.progress = Pending()
            raise

    async def _note(self, entry: Entry, time: datetime) -> None:
        """Record the targeted run, so that the same run gets the request after a crash."""
        if self._record.status.get("runId") != entry.uid:
            await self._commit(running(self.object, entry, time))

    async def _note_new_run(self, outcome: OperationAnswer) -> None:
        """Record the new run, so that it is not created again after a crash, even if it is deleted."""
        if "result" not in self._record.status:
            await self._commit({**self._record.status, "result": outcome.result})

    def _process_answer(self, answer: Answer) -> None:
        """Process the answer of a run or a Schedule."""
        if not isinstance(self.progress, Delivered):
            return
        entry = self.progress.entry
        self.progress = Answered(OperationAnswer(answer, entry, (answer.result or None) if entry is None else None))
        self._answered()

    async def _settle(self, outcome: OperationAnswer, time: datetime) -> datetime | None:
        """Record an answer, unless the next run of the chain must get the request."""
        entry, targets, obj = outcome.entry, self._context.targets, self.object
        if entry is not None and outcome.answer.reason in OVER and "workflowId" in obj["spec"]["target"]:
            await targets.read_runs(entry.namespace, entry.workflow_id)
            if targets.continues(obj, entry):
                self.progress = Pending(again=True)
                return now()
        await self._write(outcome, time)
        return None

    async def _write(self, outcome: OperationAnswer, time: datetime) -> None:
        """Record an answer, and emit an Event.

        Raises:
            ConflictError: The Operation has changed or was deleted.
            TooLargeError: The spec leaves no room for an answer.
        """
        await self._commit(finished(self.object, outcome, time))
        self.progress = Recorded()
        record_answer(self._context.services.recorder, self.object, outcome)

    async def _commit(self, status: Status) -> None:
        await self._record.write(state_versions().stamp(status, self._record.status))


def _failed(error: Exception) -> OperationAnswer:
    message = f"the operator cannot process it: {type(error).__name__}: {error}"
    return OperationAnswer(Answer(ok=False, reason=ConditionReason.INTERNAL_ERROR.value, message=message))
