"""What a run's status says: composed from the engine's state, for people and for the next restart. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from perdure.api.conditions import Condition, set_condition
from perdure.api.fields import format_time
from perdure.api.names import pod_name
from perdure.api.reasons import ConditionReason, ConditionType
from perdure.engine import history
from perdure.engine.events import AnyEvent, WorkflowExecutionCompleted, failure_of
from perdure.engine.failures import Failure
from perdure.engine.state import PendingActivity, RunStatus, State
from perdure.engine.step import next_wake
from perdure.language.interpreter import load_memory

Status = dict[str, Any]
"""The `status` of a WorkflowRun, as JSON."""

_PHASES = {
    RunStatus.RUNNING: "Running",
    RunStatus.COMPLETED: "Completed",
    RunStatus.FAILED: "Failed",
    RunStatus.TERMINATED: "Terminated",
    RunStatus.TIMED_OUT: "TimedOut",
}

_SUCCEEDED: Mapping[RunStatus, tuple[bool | None, ConditionReason]] = {
    RunStatus.RUNNING: (None, ConditionReason.RUNNING),
    RunStatus.COMPLETED: (True, ConditionReason.COMPLETED),
    RunStatus.FAILED: (False, ConditionReason.FAILED),
    RunStatus.TERMINATED: (False, ConditionReason.TERMINATED),
    RunStatus.TIMED_OUT: (False, ConditionReason.TIMED_OUT),
}


MAX_STATUS = 1024 * 1024
"""Bytes of JSON. etcd takes 1.5 MiB for an object as a whole, spec and metadata included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a status tells of a run beside its state."""

    name: str
    uid: str
    generation: int
    progress: str
    definition: Mapping[str, Any] | None
    """The definition as it was when the run started; None where it stands in the run's own spec."""


def waiting(old: Status, facts: RunFacts, reason: ConditionReason, message: str, now: datetime) -> Status:
    """The status of a run that cannot start, or go on, until somebody acts; and why."""
    return {
        **old,
        "observedGeneration": facts.generation,
        "phase": old.get("phase", "Pending"),
        "conditions": _conditions(old, facts, _Verdict(None, reason, message), now),
    }


def compose(old: Status, facts: RunFacts, state: State, new_events: Sequence[AnyEvent], now: datetime) -> Status:
    """The status of a run that has started.

    Args:
        old: the status so far; its history is continued.
        facts: what is told beside the state.
        state: where the run stands.
        new_events: events to append to the history.
        now: the time of this write.
    """
    succeeded, reason = _SUCCEEDED[state.status]
    closing = new_events[-1] if state.closed else None
    failure = failure_of(closing) if closing else None
    message = failure.message if failure else ""
    if state.task:
        reason, message = ConditionReason.WORKFLOW_TASK_FAILED, state.task.message
    status: Status = {
        "observedGeneration": facts.generation,
        "phase": _PHASES[state.status],
        "conditions": _conditions(old, facts, _Verdict(succeeded, reason, message), now),
        "runId": facts.uid,
        "firstRunId": facts.uid,
        "attempt": 1,
        "startTime": format_time(state.start_time),
        "progress": facts.progress,
        "pendingActivities": [_pending_activity(facts.name, a, now) for a in state.activities.values()],
        "pendingTimers": [{"step": t.timer_id, "fireTime": format_time(t.fire_time)} for t in state.timers.values()],
        "history": _history(old.get("history") or {}, state, new_events),
        "state": history.encode(state),
    }
    if facts.definition is not None:
        status["definition"] = facts.definition
    if state.close_time:
        status["completionTime"] = format_time(state.close_time)
    if isinstance(closing, WorkflowExecutionCompleted) and closing.result is not None:
        status["output"] = closing.result
    if failure:
        status["failure"] = failure_as_json(failure)
    return status


class DamagedStateError(Exception):
    """What a status keeps of its run cannot be gone on with: it was edited by hand, or restored in part."""


def stored_state(status: Status) -> State | None:
    """Where a run stands by its status; None for one that has not begun.

    Raises:
        DamagedStateError: it does not say.
    """
    stored, events = status.get("state"), (status.get("history") or {}).get("nextEventId", 1)
    if stored is None and events == 1:
        return None
    try:
        state = history.decode_state(stored)
        load_memory(state.memory)
        next_wake(state, state.start_time)  # compares all its times
    except (msgspec.ValidationError, TypeError) as error:
        raise DamagedStateError(f"`status.state` cannot be read: {error}") from error
    if state.next_event_id != events:
        message = f"`status.state` is of event {state.next_event_id}, and `status.history` of event {events}"
        raise DamagedStateError(message)
    return state


def is_damaged(status: Status) -> bool:
    """Whether a status says that it was found damaged."""
    return any(c.get("reason") == ConditionReason.STATE_DAMAGED for c in status.get("conditions") or ())


def too_large(status: Status) -> str | None:
    """Why a status cannot be stored, None if it can."""
    size = len(msgspec.json.encode(status))
    if size <= MAX_STATUS:
        return None
    return (
        f"the run's status, which holds its history and outputs, would grow to {size // 1024} KiB; it may have "
        f"{MAX_STATUS // 1024} KiB: let activities return less, or divide the work into several runs"
    )


def refused_as_too_large(message: str) -> str:
    """Why a run cannot go on whose object the API server or etcd has refused for its size; `message` is their own."""
    return (
        "the run's object, which holds its spec, history and outputs, would become larger than the API server takes "
        f"({message}): give the run and its activities less, or divide the work into several runs"
    )


def bare(status: Status) -> Status:
    """The status of a closed run without what has room for it only in good times: how it ended, and no more."""
    state = {key: value for key, value in status["state"].items() if key != "memory"}
    kept = {key: value for key, value in status.items() if key != "definition"}
    return {**kept, "state": state, "history": {**status["history"], "events": []}}


def failure_as_json(failure: Failure) -> dict[str, Any]:
    """A failure tree as it stands in a status: every node has a `type`, which `catch` could name."""
    data: dict[str, Any] = msgspec.to_builtins(failure)
    data.setdefault("type", min(failure.type_names()))
    if failure.cause:
        data["cause"] = failure_as_json(failure.cause)
    return data


@dataclass(frozen=True, slots=True)
class _Verdict:
    succeeded: bool | None
    reason: ConditionReason
    message: str


def _conditions(old: Status, facts: RunFacts, verdict: _Verdict, now: datetime) -> list[dict[str, Any]]:
    before = [Condition.model_validate(c, by_alias=True) for c in old.get("conditions") or []]
    after = set_condition(
        before,
        ConditionType.SUCCEEDED,
        verdict.succeeded,
        verdict.reason,
        verdict.message,
        now=now,
        observed_generation=facts.generation,
    )
    return [condition.dump() for condition in after]


def _pending_activity(run: str, activity: PendingActivity, now: datetime) -> dict[str, Any]:
    backing_off = activity.scheduled_time > now
    entry: dict[str, Any] = {
        "step": activity.activity_id,
        "activity": activity.activity_type,
        "attempt": activity.attempt,
        "state": "BackingOff" if backing_off else "Started" if activity.started_time else "Scheduled",
        "scheduledTime": format_time(activity.first_scheduled_time),
    }
    if not backing_off:
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
        entry["lastFailure"] = failure_as_json(activity.last_failure)
    if backing_off:
        entry["nextAttemptTime"] = format_time(activity.scheduled_time)
    return entry


def _history(old: Mapping[str, Any], state: State, new_events: Sequence[AnyEvent]) -> dict[str, Any]:
    added = history.encode(new_events)
    return {
        **old,
        "events": [*old.get("events", ()), *added],
        "nextEventId": state.next_event_id,
        "segments": old.get("segments", 0),
        "sizeBytes": old.get("sizeBytes", 0) + sum(len(msgspec.json.encode(event)) for event in added),
    }
