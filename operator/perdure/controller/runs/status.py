"""Compose the status of a run from the engine's state, for users and for the next restart. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from perdure.api.kinds.status import read_conditions, set_condition
from perdure.api.names import pod_name
from perdure.api.reasons import ConditionReason, ConditionType
from perdure.api.times import format_time
from perdure.controller.reconcile.record import Status
from perdure.controller.runs.deciders import Pointer, RunDecider
from perdure.controller.workflows.definitions import Definition
from perdure.engine import history
from perdure.engine.events import AnyEvent, WorkflowExecutionCompleted, WorkflowExecutionSignaled
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.payloads import plain, size_of
from perdure.engine.state import PendingActivity, PendingChild, RunState, RunStatus, closing_failure
from perdure.engine.step import MAX_BYTES, MAX_EVENTS
from perdure.kube import client as kube
from perdure.language.interpreter import failing, progress
from perdure.language.memory import load_memory
from perdure.language.signals import Awaited, awaited
from perdure.language.step_failures import DEADLINE_EXCEEDED, as_json
from perdure.language.step_paths import Path
from perdure.runtime.segments import Damage

_PHASES = {
    RunStatus.RUNNING: "Running",
    RunStatus.COMPLETED: "Completed",
    RunStatus.CANCELLED: "Cancelled",
    RunStatus.CONTINUED_AS_NEW: "ContinuedAsNew",
    RunStatus.FAILED: "Failed",
    RunStatus.TERMINATED: "Terminated",
    RunStatus.TIMED_OUT: "TimedOut",
}

_SUCCEEDED: Mapping[RunStatus, tuple[bool | None, ConditionReason]] = {
    RunStatus.RUNNING: (None, ConditionReason.RUNNING),
    RunStatus.COMPLETED: (True, ConditionReason.COMPLETED),
    RunStatus.CANCELLED: (False, ConditionReason.CANCELLED),
    RunStatus.CONTINUED_AS_NEW: (None, ConditionReason.CONTINUED_AS_NEW),
    RunStatus.FAILED: (False, ConditionReason.FAILED),
    RunStatus.TERMINATED: (False, ConditionReason.TERMINATED),
    RunStatus.TIMED_OUT: (False, ConditionReason.TIMED_OUT),
}


_NEVER_STARTED = {
    reason.value: reason
    for reason in (
        ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED,
        ConditionReason.INVALID_WORKFLOW,
        ConditionReason.INVALID_INPUT,
        ConditionReason.LIMIT_REACHED,
    )
}
"""Failure types of runs that never started. They become the reason of the condition."""

_Entry = TypeVar("_Entry")

_MANY_LOSSES = 3
"""From how many lost attempts of an activity on the condition of its run reports them."""
_MAX_SIGNALS_NAMED = 3
"""Maximum number of awaited signals in the message of a condition."""
MAX_SHOWN = 100
"""Maximum number of open activities, timers, signals, and children to show; `state` has all of them."""
_NEAR = 0.5
MAX_STATUS = 1024 * 1024
"""Maximum size of a status, in bytes, as it is stored. etcd accepts 1.5 MiB for a whole object, including spec and metadata."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    succeeded: bool | None
    reason: ConditionReason
    message: str
    kind: ConditionType = ConditionType.SUCCEEDED


@dataclass(frozen=True, slots=True)
class Hindrances:
    """What keeps a run from continuing, although it has nothing to record."""

    unserved: str = ""
    """Work that has waited for a while in a task queue that no worker polls; empty if there is none."""
    turn: str = ""
    """Why the first workflow task waits for a WorkflowLimit; empty if it does not."""
    refused: str = ""
    """Why the API server rejects an object that the run creates; empty if it rejects none."""


class StatusComposer:
    """Composes the status of one run, from its state and its definition."""

    def __init__(
        self,
        first_uid: str,
        hindrances: Callable[[Status, RunState, datetime], Hindrances] = lambda *_: Hindrances(),
    ) -> None:
        """Create it for a run whose decider is not known yet.

        Args:
            first_uid: The UID of the first run of the chain.
            hindrances: Returns what keeps the run from continuing; its arguments are the current status, the state, and the time.
        """
        self._first_uid = first_uid
        self.hindrances = hindrances
        self._decider = RunDecider(decider=None)

    def define(self, decider: RunDecider) -> None:
        """Set the decider of the run, with its definition."""
        self._decider = decider

    def waiting(self, run: kube.Object, reason: ConditionReason, message: str, now: datetime) -> Status:
        """Return the status of a run that cannot start or continue until someone acts, with the reason.

        Args:
            run: The run with its current status.
            reason: The reason of the condition.
            message: Its message.
            now: The time of this write.
        """
        old = run.get("status") or {}
        return {
            **old,
            "observedGeneration": generation_of(run),
            "phase": old.get("phase", "Pending"),
            "conditions": _conditions(run, [_Verdict(None, reason, message)], now),
        }

    def compose(self, run: kube.Object, state: RunState, new_events: Sequence[AnyEvent], now: datetime) -> Status:
        """Compose the status of a started run.

        Args:
            run: The run with its current status, whose history continues.
            state: The state of the run.
            new_events: Events to append to the history.
            now: The time of this write.
        """
        old, meta, definition = run.get("status") or {}, run["metadata"], self._decider.definition
        memory = load_memory(state.memory) if definition is not None else None
        closing = new_events[-1] if state.closed and new_events else None
        failure = closing_failure(state, closing) if closing else None
        delayed = not state.closed and state.is_delayed(now)
        phase = "Paused" if state.pause else "Pending" if delayed else _PHASES[state.status]
        status: Status = {
            "observedGeneration": generation_of(run),
            "phase": phase,
            "conditions": old["conditions"]
            if state.closed and not closing
            else _conditions(run, self._verdicts(old, state, failure, now, delayed=delayed), now),
            "runId": meta["uid"],
            "firstRunId": self._first_uid,
            "attempt": state.attempt,
            "startTime": format_time(state.began),
            "progress": "{}/{}".format(*progress(definition.program, memory)) if definition and memory else "",
            "pendingActivities": [_pending_activity(meta["name"], a, now) for a in _first(state.open_activities())],
            "pendingTimers": [
                {"step": t.timer_id, "fireTime": format_time(t.fire_time)} for t in _first(state.timers.values())
            ],
            "pendingSignals": [] if state.closed else _pending_signals(state),
            "awaitedSignals": [] if state.closed else list(map(_awaited_signal, _first(self._awaited(state)))),
            "pendingChildren": [] if state.closed else list(map(_pending_child, _first(state.children.values()))),
            "history": _history(old.get("history") or {}, state, new_events),
            "state": history.encode(state),
        }
        status |= {key: old[key] for key in _PINNED if key in old} or _pinned(definition)
        if state.close_time:
            status["completionTime"] = format_time(state.close_time)
        if isinstance(closing, WorkflowExecutionCompleted) and closing.result is not None:
            status["output"] = plain(closing.result) if state.for_clients else closing.result
        if failure:
            status["failure"] = as_json(failure)
        if state.closed and not closing:  # closed earlier: only pending work has changed
            status |= {key: old[key] for key in ("output", "failure") if key in old}
        return status

    def repaired(self, run: kube.Object, state: RunState, now: datetime) -> Status:
        """Return the status of a run after a repair, composed from its state again.

        Args:
            run: The run with its current status.
            state: The state of the run.
            now: The time of this write.
        """
        if not state.closed:
            return self.compose(run, state, (), now)
        old = run["status"]
        closing = history.decode_events(old["history"]["events"][-1:])
        failure = closing_failure(state, closing[0]) if closing else None
        return {
            **old,
            "conditions": _conditions(run, self._verdicts(old, state, failure, now, delayed=False), now),
        }

    def _verdicts(
        self, old: Status, state: RunState, failure: Failure | None, now: datetime, *, delayed: bool
    ) -> list[_Verdict]:
        """The conditions of a run."""
        decider = self._decider.decider
        if isinstance(decider, Pointer):
            message = f"`{decider.name}` has this workflow ID"
            verdicts = [_Verdict(True, ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED, message)]
        else:
            verdicts = [self._outcome(state, failure, self.hindrances(old, state, now), delayed=delayed)]
        if state.cancel_requested:
            when = state.defers_until(now)
            deferred = f"The cancellation takes effect {when}" if when else ""
            verdicts.append(_Verdict(True, ConditionReason.CANCEL_REQUESTED, deferred, ConditionType.CANCEL_REQUESTED))
        if state.pause:
            verdicts.append(_Verdict(True, ConditionReason.PAUSED, state.pause.reason, ConditionType.PAUSED))
        elif any(c["type"] == ConditionType.PAUSED for c in old.get("conditions") or ()):
            verdicts.append(_Verdict(False, ConditionReason.NOT_PAUSED, "", ConditionType.PAUSED))
        return verdicts

    def _outcome(self, state: RunState, failure: Failure | None, hindrances: Hindrances, *, delayed: bool) -> _Verdict:
        """The condition for the outcome of a run, or for the reason why it is blocked."""
        succeeded, reason = _SUCCEEDED[state.status]
        message = failure.full_message if failure else "" if state.closed else self._progresses(state)
        if failure is not None and failure.kind is FailureKind.TIMEOUT and failure.type == DEADLINE_EXCEEDED:
            reason = ConditionReason.DEADLINE_EXCEEDED
        if failure and failure.type in _NEVER_STARTED:
            reason, message = _NEVER_STARTED[failure.type], failure.message
        if delayed:
            reason, message = (
                ConditionReason.START_DELAYED,
                f"starts at {format_time(state.first_decision_time or state.start_time)}",
            )
        if hindrances.refused and not state.closed:
            reason, message = ConditionReason.CREATE_REFUSED, hindrances.refused
        reason, message = _blocked_attempts(state) or _lost_attempts(state) or (reason, message)
        failing = state.code.failure if state.code is not None and state.code.task is not None and not delayed else ""
        if failing and not state.closed:
            reason, message = ConditionReason.WORKFLOW_TASK_FAILED, f"the workflow task is retried: {failing}"
        reason, message = _unoffered(state, hindrances, failing) or (reason, message)
        if state.pause:
            reason, message = ConditionReason.PAUSED, state.pause.reason
        if state.successor_refused:
            succeeded, reason, message = False, ConditionReason.SUCCESSOR_REFUSED, state.successor_refused
        if state.task:
            reason, message = (
                ConditionReason(state.task.reason or ConditionReason.WORKFLOW_TASK_FAILED),
                state.task.message,
            )
        return _Verdict(succeeded, reason, message)

    def _progresses(self, state: RunState) -> str:
        """Why an open run will fail, and the signals that it waits for."""
        failed = failing(load_memory(state.memory)) if not state.for_clients else ""
        return "; ".join(filter(None, (failed, _waits_for(self._awaited(state)))))

    def _awaited(self, state: RunState) -> Sequence[Awaited]:
        """The signals that the run waits for."""
        definition = self._decider.definition
        return awaited(definition.program, load_memory(state.memory), state.timers) if definition is not None else ()


def generation_of(run: kube.Object) -> int:
    """The generation of the spec of a run."""
    generation: int = run["metadata"].get("generation", 1)
    return generation


def _conditions(run: kube.Object, verdicts: Sequence[_Verdict], now: datetime) -> list[dict[str, Any]]:
    """The conditions of a run, with some changed."""
    conditions = [each for each in read_conditions(run.get("status") or {}) if each.type != ConditionType.NEWER_STATE]
    for verdict in verdicts:
        conditions = set_condition(
            conditions,
            verdict.kind,
            verdict.succeeded,
            verdict.reason,
            verdict.message,
            now=now,
            observed_generation=generation_of(run),
        )
    return [condition.dump() for condition in conditions]


def without_sealed(status: Status, segment: Mapping[str, Any]) -> Status:
    """A status after its first events were moved to a HistorySegment, without the note that sealing was blocked."""
    stored, spec, name = status["history"], segment["spec"], segment["metadata"]["name"]
    kept = [
        condition
        for condition in status["conditions"]
        if condition["type"] != ConditionType.HISTORY_TRUNCATED or name not in condition["message"]
    ]
    return {
        **status,
        "conditions": kept,
        "history": {
            **stored,
            "events": stored["events"][len(spec["events"]) :],
            "segments": spec["index"] + 1,
            "lastSegmentHash": spec["hash"],
        },
    }


def truncated(status: Status, damage: Damage, now: datetime) -> Status:
    """A status with the condition that the history of its run is incomplete, and why. Unchanged if it already has that."""
    conditions = read_conditions(status)
    kind = ConditionType.HISTORY_TRUNCATED
    generation = status["observedGeneration"]
    marked = set_condition(
        conditions, kind, True, damage.reason, damage.message, now=now, observed_generation=generation
    )
    return status if marked == conditions else {**status, "conditions": [condition.dump() for condition in marked]}


_STUCK: Final = frozenset(
    {
        ConditionReason.STATE_DAMAGED,
        ConditionReason.REVISION_NOT_FOUND,
        ConditionReason.NEWER_STATE,
        ConditionReason.INTERNAL_ERROR,
    }
)
"""Reasons for which an operator does not process a run."""


def is_stuck(status: Status) -> bool:
    """Whether a status says that the run cannot be processed, for example because it is damaged."""
    return any(c.get("reason") in _STUCK for c in status.get("conditions") or ())


def message_of(status: Status, reason: ConditionReason) -> str:
    """The message of a status's condition with a reason; empty if there is none."""
    found = (c["message"] for c in status.get("conditions") or () if c.get("reason") == reason)
    return next(found, "")


def is_near_limit(state: RunState, size: int) -> bool:
    """Whether the history or the status of a run has reached half of its limit.

    Args:
        state: The state of the run.
        size: The size of its status, in bytes.
    """
    return max((state.next_event_id - 1) / MAX_EVENTS, state.history_size / MAX_BYTES, size / MAX_STATUS) >= _NEAR


def too_large(size: int) -> str | None:
    """Why a status of this size in bytes cannot be stored; None if it can."""
    if size <= MAX_STATUS:
        return None
    return (
        f"the run's status, which holds its history and outputs, would grow to {size // 1024} KiB, but the limit "
        f"is {MAX_STATUS // 1024} KiB: return less from activities, or divide the work into several runs"
    )


_PINNED: Final = ("revision", "definition", "sources")
"""The fields of a status with the definition of a run, which never changes."""


def _pinned(definition: Definition | None) -> Status:
    """The definition of a run that starts, as its status has it."""
    if definition is None:
        return {}
    pinned: Status = {"sources": list(definition.sources)} if definition.sources else {}
    if definition.revision is not None:
        pinned["revision"] = definition.revision.stored()
    elif definition.content is not None:
        pinned["definition"] = definition.content.definition
    return pinned


def refused_as_too_large(message: str) -> str:
    """The message for a run whose object the API server or etcd rejects as too large; `message` is their message."""
    return (
        "the run's object, which holds its spec, history and outputs, would become larger than the API server accepts "
        f"({message}): reduce the input and the results, or divide the work into several runs"
    )


def bare(status: Status) -> Status:
    """The minimal status of a closed run that is too large, with only its outcome."""
    state = {key: value for key, value in status["state"].items() if key != "memory"}
    kept = {key: value for key, value in status.items() if key != "definition"}
    return {**kept, "state": state, "history": {**status["history"], "events": []}}


def _unoffered(state: RunState, hindrances: Hindrances, failing: str) -> tuple[ConditionReason, str] | None:
    """Why no worker gets the work of the run: it waits for a limit, or no worker polls for it."""
    if hindrances.turn and not state.closed:
        return ConditionReason.LIMIT_REACHED, hindrances.turn
    if not hindrances.unserved:
        return None
    failed = f"; the last attempt of the workflow task failed: {failing}" if failing else ""
    return ConditionReason.NO_WORKER, hindrances.unserved + failed


def _blocked_attempts(state: RunState) -> tuple[ConditionReason, str] | None:
    """Why attempts do not start: one is stuck, or waits for its turn in a WorkflowLimit."""
    stuck = next(state.stuck(), None)
    if stuck is not None:
        attempt = "" if stuck.takes_limits else f": attempt {stuck.attempt}"
        message = f"step `{_step_of(stuck)}`{attempt} does not start: {stuck.waiting_reason}"
        return ConditionReason.ATTEMPT_NOT_STARTING, message
    queued = list(state.queued())
    if not queued:
        return None
    more = f" (and {len(queued) - 1} more)" if len(queued) > 1 else ""
    return ConditionReason.LIMIT_REACHED, f"step `{_step_of(queued[0])}`{more} waits: {queued[0].waiting_reason}"


def _lost_attempts(state: RunState) -> tuple[ConditionReason, str] | None:
    """Why an activity makes no progress although its attempts start: the last ones were lost."""
    worst = max(state.open_activities(), key=lambda each: each.losses, default=None)
    if worst is None or worst.losses < _MANY_LOSSES or worst.last_failure is None:
        return None
    if worst.last_failure.kind is not FailureKind.SERVER:
        return None
    maximum = worst.retry_policy.maximum_losses
    bound = (
        "set `maximumLosses` in its retry policy to limit this" if maximum is None else f"`maximumLosses` is {maximum}"
    )
    lost = f"step `{_step_of(worst)}` has lost {worst.losses} attempts to the infrastructure ({bound})"
    return ConditionReason.ATTEMPTS_LOST, f"{lost}; the last one: {worst.last_failure.message}"


def _step_of(activity: PendingActivity) -> str:
    """Return the step of an activity, or the one that takes its limits by it."""
    return Path.parse(activity.activity_id).owner.text if activity.takes_limits else activity.activity_id


def _first(entries: Iterable[_Entry]) -> list[_Entry]:
    """The first of many items, so that a status stays small and readable."""
    return list(islice(entries, MAX_SHOWN))


def _pending_signals(state: RunState) -> list[dict[str, Any]]:
    if state.code is not None:
        return []
    buffered = [(signal.name, signal.time) for signal in load_memory(state.memory).signals]
    deferred = [(e.signal_name, e.event_time) for e in state.undecided if isinstance(e, WorkflowExecutionSignaled)]
    return [{"name": name, "receivedTime": format_time(time)} for name, time in _first([*buffered, *deferred])]


def _awaited_signal(awaited: Awaited) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": awaited.signal, "step": awaited.step}
    if awaited.until is not None:
        entry["until"] = format_time(awaited.until)
    return entry


def _waits_for(awaited: Sequence[Awaited]) -> str:
    """The signals that a run waits for, and until when; empty if it waits for none."""
    named = [
        f"`{each.signal}` (step `{each.step}`"
        + (f", until {format_time(each.until.replace(microsecond=0))})" if each.until else ")")
        for each in awaited[:_MAX_SIGNALS_NAMED]
    ]
    if not named:
        return ""
    more = len(awaited) - len(named)
    return f"waits for signal {', '.join(named)}" + (f" and {more} more" if more else "")


def _pending_child(child: PendingChild) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "step": child.child_id,
        "workflowId": child.workflow_id,
        "parentClosePolicy": child.parent_close_policy.value,
    }
    if child.run_id:
        entry["runId"] = child.run_id
    return entry


def _pending_activity(run: str, activity: PendingActivity, now: datetime) -> dict[str, Any]:
    backing_off = activity.scheduled_time > now
    states = {
        "CancelRequested": activity.cancel_requested,
        "Paused": activity.paused,
        "BackingOff": backing_off,
        "Started": activity.started_time is not None,
    }
    entry: dict[str, Any] = {
        "step": activity.activity_id,
        "activity": activity.activity_type,
        "attempt": activity.attempt,
        "state": next((name for name, so in states.items() if so), "Scheduled"),
        "scheduledTime": format_time(activity.first_scheduled_time),
    }
    if not (backing_off or activity.by_worker or activity.queued or activity.runs_nothing):
        entry["pod"] = pod_name(run, activity.scheduled_event_id, activity.attempt)
    if activity.waiting_reason:
        entry["waitingReason"] = activity.waiting_reason
    if activity.started_time:
        entry["startedTime"] = format_time(activity.started_time)
    if activity.last_heartbeat_time:
        entry["lastHeartbeatTime"] = format_time(activity.last_heartbeat_time)
    if activity.heartbeat_details is not None:
        entry["heartbeatDetails"] = activity.heartbeat_details
    if activity.last_failure:
        entry["lastFailure"] = as_json(activity.last_failure)
    if backing_off:
        entry["nextAttemptTime"] = format_time(activity.scheduled_time)
    return entry


def _history(old: Mapping[str, Any], state: RunState, new_events: Sequence[AnyEvent]) -> dict[str, Any]:
    added = history.encode(new_events)
    return {
        **old,
        "events": [*old.get("events", ()), *added],
        "nextEventId": state.next_event_id,
        "segments": old.get("segments", 0),
        "sizeBytes": old.get("sizeBytes", 0) + sum(size_of(msgspec.json.encode(event)) for event in added),
    }
