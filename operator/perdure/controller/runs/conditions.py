"""What a run reports besides its progress: conditions, Kubernetes Events, and metrics.

Conditions say why it does not start, why it waits, and why it cannot be processed. Events and metrics are about its commits. They
are best effort and follow the commit.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

from perdure.api.labels import API_VERSION
from perdure.api.names import LOG_ARTIFACT, RESULT_ARTIFACT
from perdure.api.pods import OUTPUTS
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.controller.errors import NotYetError
from perdure.controller.reconcile.newer_states import NewerStateReports
from perdure.controller.reconcile.record import Status
from perdure.controller.runs.status import Hindrances, StatusComposer, is_stuck, message_of, too_large
from perdure.controller.runs.store import RunStore
from perdure.controller.services import Peers
from perdure.controller.workflows.definitions import Definition
from perdure.engine import events as ev
from perdure.engine.failures import full_message_of
from perdure.engine.ledger import AttemptOutcome, Retired
from perdure.engine.state import DEAD_LETTER, TAKE_LIMITS, RunState, RunStatus, closing_failure
from perdure.engine.step import RunTransition
from perdure.kube import client as kube
from perdure.kube.events import Recorder
from perdure.language.program import ONLY_LOGGED, archives_log, no_output, result_warning
from perdure.observe import metrics
from perdure.runtime import status_encoding
from perdure.runtime.attempts import RunRef

_OPERATION_OUTCOMES: Mapping[type[ev.AnyEvent], str] = {
    ev.NexusOperationCompleted: "Completed",
    ev.NexusOperationFailed: "Failed",
    ev.NexusOperationTimedOut: "TimedOut",
    ev.NexusOperationCanceled: "Canceled",
}
_ACTIVITY_OUTCOMES: Mapping[type[ev.AnyEvent], str] = {
    ev.ActivityTaskCompleted: "Completed",
    ev.ActivityTaskFailed: "Failed",
    ev.ActivityTaskTimedOut: "TimedOut",
    ev.ActivityTaskCanceled: "Canceled",
}
_WELL = frozenset({RunStatus.COMPLETED, RunStatus.CONTINUED_AS_NEW})


def _by(
    what: str,
    event: ev.WorkflowExecutionCancelRequested | ev.WorkflowExecutionPaused | ev.WorkflowExecutionUnpaused,
) -> str:
    """Describe who made a request, and why."""
    why = event.cause if isinstance(event, ev.WorkflowExecutionCancelRequested) else event.reason
    return what + (f" by {who}" if (who := event.principal or event.identity) else "") + (f": {why}" if why else "")


def _took_limits(event: Any, before: RunState | None, events: Sequence[ev.AnyEvent]) -> bool:
    """Whether the end of an activity is the end of a wait for the limits of a step.

    Args:
        event: The end of the activity.
        before: The state in which it was open, unless `events` has scheduled it.
        events: The events of the transition.
    """
    found = None if before is None else before.activities.get(str(event.scheduled_event_id))
    if found is not None:
        return found.takes_limits
    scheduled = next((each for each in events if each.event_id == event.scheduled_event_id), None)
    if not isinstance(scheduled, ev.ActivityTaskScheduled):
        return False
    return scheduled.activity_type == TAKE_LIMITS and not scheduled.task_queue


def _measure(attempt: Retired) -> None:
    """Count an attempt that has ended, and measure one that ran."""
    outcome, executor = attempt.outcome, "Worker" if attempt.by_worker else "Pod"
    metrics.ATTEMPTS.labels(outcome=outcome.value).inc()
    if attempt.waited is None or attempt.ran is None or outcome is AttemptOutcome.CACHED:
        return
    metrics.ATTEMPT_WAIT.labels(executor=executor).observe(attempt.waited.total_seconds())
    metrics.ATTEMPT_DURATION.labels(executor=executor, outcome=outcome.value).observe(attempt.ran.total_seconds())


class RunEventRecorder:
    """Records the Events of one run."""

    def __init__(self, recorder: Recorder, run: RunRef, workflow: str) -> None:
        """Create it.

        Args:
            recorder: Records Events.
            run: The run.
            workflow: Its Workflow or workflow type, for metrics.
        """
        self._recorder = recorder
        self._run = run
        self._workflow = workflow
        self._doubted: set[tuple[str, str]] = set()
        self._about = {
            "apiVersion": API_VERSION,
            "kind": "WorkflowRun",
            "metadata": {"namespace": run.namespace, "name": run.name, "uid": run.uid},
        }

    def warn(self, reason: EventReason, note: str, action: str) -> None:
        """Record a warning."""
        self._record("Warning", reason, note, action)

    def pod_refused(self, note: str, pod: str) -> None:
        """Record why the pod of an attempt was not created."""
        related = {"apiVersion": "v1", "kind": "Pod", "namespace": self._run.namespace, "name": pod}
        self._record("Warning", EventReason.POD_REFUSED, note, "CreatePod", related)

    def create_refused(self, note: str) -> None:
        """Record why another object of the run was not created."""
        self._record("Warning", EventReason.CREATE_REFUSED, note, "Create")

    def result_not_cached(self, note: str) -> None:
        """Record why the result of an activity was not stored for later attempts."""
        self.warn(EventReason.RESULT_NOT_CACHED, note, "Cache")

    def pod_waits(self, note: str, pod: str) -> None:
        """Record what blocks an attempt's pod."""
        related = {"apiVersion": "v1", "kind": "Pod", "namespace": self._run.namespace, "name": pod}
        self._record("Warning", EventReason.ATTEMPT_NOT_STARTING, note, "StartPod", related)

    def committed(
        self, before: RunState | None, transition: RunTransition, progress: str, definition: Definition | None = None
    ) -> None:
        """Record the changes of a commit.

        Args:
            before: The previous state; None before the run started.
            transition: The committed transition.
            progress: The number of completed steps, for the final Event.
            definition: The definition of the run, if it has steps.
        """
        after = transition.state
        if before is None:
            self._record("Normal", EventReason.STARTED, self._started(), "Start")
        for event in transition.events:
            self._happened(event)
            if type(event) in _ACTIVITY_OUTCOMES and _took_limits(event, before, transition.events):
                continue  # it had no attempt
            self._count(event)
            if definition is not None and isinstance(event, ev.ActivityTaskCompleted):
                self._doubt(definition, event)
                self._archived(definition, event)
        if after.closed and transition.events:
            self._closed(transition, progress, definition)
        for attempt in transition.retired:
            self._retired(attempt, after)
        if after.successor_refused and before is not None and not before.successor_refused:
            self.warn(EventReason.SUCCESSOR_REFUSED, after.successor_refused, "Continue")
        failure = after.code.failure if after.code is not None and not after.closed else ""
        if failure and not (before is not None and before.code is not None and before.code.failure):
            self.warn(EventReason.WORKFLOW_TASK_FAILED, f"The workflow task is retried: {failure}", "Decide")
        if after.task and (before is None or before.task is None):
            reason = EventReason(after.task.reason or EventReason.WORKFLOW_TASK_FAILED)
            self.warn(reason, after.task.message, "Decide")

    def _count(self, event: ev.AnyEvent) -> None:
        """Count what an event closes."""
        if (outcome := _OPERATION_OUTCOMES.get(type(event))) is not None:
            metrics.NEXUS_OPERATIONS.labels(self._run.namespace, outcome).inc()
        if (outcome := _ACTIVITY_OUTCOMES.get(type(event))) is not None:
            metrics.ACTIVITIES.labels(outcome).inc()
        if isinstance(event, ev.ActivityTaskCompleted) and RESULT_ARTIFACT in event.artifacts and not event.cached:
            metrics.STORED_RESULTS.labels(self._run.namespace).inc()

    def _started(self) -> str:
        workflow_id = self._run.workflow_id
        return "The run has started" + (f", with workflow ID `{workflow_id}`" if workflow_id != self._run.name else "")

    def _happened(self, event: ev.AnyEvent) -> None:
        """Record requests, and events that need attention."""
        match event:
            case ev.WorkflowExecutionCancelRequested():
                self._record("Normal", EventReason.CANCEL_REQUESTED, _by("Cancellation requested", event), "Cancel")
            case ev.WorkflowExecutionPaused():
                self._record("Normal", EventReason.PAUSED, _by("Paused", event), "Pause")
            case ev.WorkflowExecutionUnpaused():
                self._record("Normal", EventReason.UNPAUSED, _by("Unpaused", event), "Unpause")
            case ev.MarkerRecorded() if event.marker_name == DEAD_LETTER:
                note = (
                    f"Step {event.details['step']}: stored as a DeadLetter: {full_message_of(event.details['failure'])}"
                )
                self.warn(EventReason.DEAD_LETTERED, note, "SetAside")
            case _:
                pass

    def _doubt(self, definition: Definition, event: ev.ActivityTaskCompleted) -> None:
        """Record a doubtful result, once for all items of a loop."""
        step, _, rest = event.activity_id.partition("[")
        doubtful = result_warning(definition.program, event.activity_id, event.result)
        if doubtful and (step, rest.partition("/")[2]) not in self._doubted:
            self._doubted.add((step, rest.partition("/")[2]))
            how = f"; {ONLY_LOGGED}" if event.result is None else ""
            self.warn(EventReason.DOUBTFUL_RESULT, f"Step {event.activity_id}: {doubtful}{how}", "Complete")

    def _archived(self, definition: Definition, event: ev.ActivityTaskCompleted) -> None:
        """Record whether the log of an attempt was stored."""
        if event.cached or not archives_log(definition.program, event.activity_id):
            return
        stored = LOG_ARTIFACT in event.artifacts
        metrics.LOG_ARCHIVES.labels(self._run.namespace, "Stored" if stored else "NotStored").inc()
        if not stored:
            note = f"Step {event.activity_id}: the log of attempt {event.attempt} is not archived; see the log of its container"
            self.warn(EventReason.LOG_NOT_ARCHIVED, f"{note} `{OUTPUTS}`", "Archive")

    def _closed(self, transition: RunTransition, progress: str, definition: Definition | None) -> None:
        outcome = transition.state.status
        end = transition.state.close_time
        seconds = None if end is None else (end - transition.state.began).total_seconds()
        metrics.count_closed_run(self._run.namespace, self._workflow, outcome.value, seconds)
        failure = closing_failure(transition.state, transition.events[-1])
        done = f"{outcome.value} after {progress} steps" if progress else outcome.value  # code has no steps to count
        note = (failure.full_message if failure else "") or done  # a termination may have no reason
        closing = transition.events[-1]
        if definition is not None and isinstance(closing, ev.WorkflowExecutionCompleted):
            without = no_output(definition.program, closing.result)
            note += f"; {without}" if without else ""
        following = getattr(transition.events[-1], "new_workflow_run", "")
        if following:
            note = f"{note}; continues as {following}"
        kind = "Normal" if outcome in _WELL else "Warning"
        self._record(kind, EventReason(outcome.value), note, "Close")

    def _retired(self, attempt: Retired, after: RunState) -> None:
        _measure(attempt)
        again = after.activity(attempt.scheduled_event_id)
        if again is not None and again.last_failure is not None:
            note = (
                f"Step {again.activity_id}: attempt {attempt.attempt} ended: {again.last_failure.full_message}; "
                f"attempt {again.attempt} at {again.scheduled_time:%H:%M:%S} UTC"
            )
            self.warn(EventReason.ATTEMPT_FAILED, note, "Retry")

    def _record(
        self, kind: str, reason: EventReason, note: str, action: str, related: kube.Object | None = None
    ) -> None:
        self._recorder.record(self._about, kind=kind, reason=reason, note=note, action=action, related=related)


_COMPILING_QUIETLY: Final = timedelta(seconds=2)
"""How long a definition may compile before the run reports that it waits."""


class RunConditions:
    """Writes the conditions of one run that are not part of a commit."""

    def __init__(
        self,
        run: RunRef,
        store: RunStore,
        peers: Peers,
        event_recorder: RunEventRecorder,
        composer: StatusComposer,
    ) -> None:
        """Create it.

        Args:
            run: The run.
            store: The stored record of the run.
            peers: The other runs, which are notified of each write.
            event_recorder: Records Events.
            composer: Composes the status of the run.
        """
        self._run = run
        self._store = store
        self._peers = peers
        self._event_recorder = event_recorder
        self._composer = composer
        self._compiling_since: datetime | None = None
        self._newer = NewerStateReports("WorkflowRun", run.namespace)
        self._needs = ""
        """The last report of something of a newer version that the run needs."""

    async def wait(self, reason: ConditionReason, message: str, now: datetime) -> None:
        """Record once why the run does not start or continue.

        Raises:
            ConflictError, TooLargeError: As for `Record.write`.
        """
        record = self._store.record
        before = record.status
        status = self._composer.waiting(record.latest(), reason, message, now)
        if status != before:
            await record.write(status)
            self._peers.publish(record.latest())
        if status["conditions"] != before.get("conditions"):
            self._event_recorder.warn(EventReason(reason.value), message, "Start")
            if reason is ConditionReason.STATE_DAMAGED:
                metrics.DAMAGED.labels(self._run.namespace, "WorkflowRun").inc()

    async def report_newer(self, why: str, now: datetime) -> datetime | None:
        """Report that a newer version has written the run. Everything else about it stays as it is, and its requests pending.

        Args:
            why: What this version cannot read.
            now: The time.

        Returns:
            When to call again, because the newer operator has removed the report; None to wait for an event.

        Raises:
            ConflictError: As for `Record.write`.
        """
        verdicts: dict[ConditionType, bool | None] = {ConditionType.NEWER_STATE: True}
        if self._store.record.status.get("completionTime"):  # its outcome stays visible, and nothing is left to do
            if self._newer.has_reported:
                return None
        else:
            verdicts[ConditionType.SUCCEEDED] = None
        return await self._newer.report(self._store.record, why, verdicts, self._event_recorder.warn, now)

    async def wait_for_newer(self, message: str, now: datetime) -> None:
        """Report that the run needs something that a newer version has stored; only in an Event if it is closed.

        Raises:
            ConflictError, TooLargeError: As for `Record.write`.
        """
        if not self._store.record.status.get("completionTime"):
            await self.wait(ConditionReason.NEWER_STATE, message, now)
        elif message != self._needs:  # its outcome stays visible
            self._event_recorder.warn(EventReason.NEWER_STATE, message, "Load")
        self._needs = message

    async def wait_for_definition(self, error: NotYetError, now: datetime) -> NoReturn:
        """Wait until the definition is compiled, and report this if it takes a while.

        Raises:
            NotYetError: Always.
        """
        since = self._compiling_since = self._compiling_since or now
        if now - since < _COMPILING_QUIETLY:
            raise NotYetError(error.awaited, until=since + _COMPILING_QUIETLY) from error
        message = "the definition waits to be compiled; a namespace compiles one at a time, and large ones take seconds"
        await self.wait(ConditionReason.COMPILING, message, now)
        raise error

    async def recovered(self, state: RunState, now: datetime) -> None:
        """Remove the condition that the run cannot be processed, because it continues."""
        status = self._store.record.status
        if self._store.restored or is_stuck(status):
            await self._store.write(self._composer.repaired(self._store.record.latest(), state, now))

    async def report_blocked(self, state: RunState, now: datetime, *, offers: bool) -> None:
        """Report why the run waits, although there is nothing else to record.

        It waits for a polling worker, or for an object that the API server rejects.

        Args:
            state: The committed state.
            now: The time.
            offers: Whether something waits for a worker. The next commit records that a worker polls.
        """
        before = self._store.record.status
        hindrances, reported = self._composer.hindrances(before, state, now), _hindrances(before)
        if (hindrances.refused, hindrances.turn) == (reported.refused, reported.turn) and (
            hindrances.unserved == reported.unserved or not offers
        ):
            return
        status = self._composer.compose(self._store.record.latest(), state, (), now)
        if _hindrances(status) == reported or too_large(status_encoding.Texts().size_of(status)) is not None:
            return
        with suppress(kube.TooLargeError):  # it is not necessary to report this if there is no room
            await self._store.write(status)
            self._peers.publish(self._store.record.latest())
            self.report_missing_workers(before)

    def report_missing_workers(self, before: Status) -> None:
        """Record an Event that no worker polls for waiting work, once the condition reports it.

        Args:
            before: The status before the condition was recorded.
        """
        lacking = lacks_worker(self._store.record.status)
        if lacking and not lacks_worker(before):
            self._event_recorder.warn(EventReason.NO_WORKER, lacking, "Decide")


def lacks_worker(status: Status) -> str:
    """The part of a status about work that no worker polls for; empty if there is none."""
    return message_of(status, ConditionReason.NO_WORKER)


def _hindrances(status: Status) -> Hindrances:
    """What a status reports."""
    return Hindrances(
        unserved=lacks_worker(status),
        refused=message_of(status, ConditionReason.CREATE_REFUSED),
        turn=message_of(status, ConditionReason.LIMIT_REACHED),
    )
