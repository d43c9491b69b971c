"""What a WorkflowRun says of itself, read once and named: the run, its steps, what is open.

Nothing here insists: a status may come from a newer operator, or be just half written by an older one. What cannot be
understood is left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.api.names import pod_name
from perdure.cli.view.page import elapsed
from perdure.cli.view.text import duration, read_time
from perdure.engine.state import PendingActivity as EngineActivity

Json = dict[str, Any]

CLOSED = frozenset({"Completed", "Failed", "Cancelled", "Terminated", "TimedOut", "ContinuedAsNew"})
"""The phases after which nothing more happens."""

_MAX_LOST = 20
"""How many pods of an activity may have disappeared for those after them to be found."""

_MODIFIERS = frozenset({"name", "needs", "when", "forEach", "catch", "compensate", "timeout", "deadLetter"})
_ENDED = {
    "ActivityTaskCompleted": "Succeeded",
    "ActivityTaskFailed": "Failed",
    "ActivityTaskTimedOut": "Failed",
    "TimerFired": "Succeeded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What the cluster shows of an attempt just now: the status of a run hears of it only with the next commit."""

    started: datetime | None = None
    ended: bool = False
    waits_for: str | None = None
    """Why the pod has not started the activity."""
    heartbeat: datetime | None = None
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the cluster shows of a run's attempts, by the names of their pods."""

    pods: frozenset[str] = frozenset()
    """The pods that exist; those of failed attempts stay for their logs."""
    sights: Mapping[str, Sight] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenActivity:
    """An activity that has not closed."""

    step: str
    activity: str
    state: str
    attempt: int
    maximum_attempts: int
    """0: no limit."""
    pod: str | None
    scheduled: datetime | None
    started: datetime | None
    next_attempt: datetime | None
    heartbeat: datetime | None
    heartbeat_timeout: timedelta | None
    details: Any
    last_failure: Json | None
    waits_for: str | None
    deadline: tuple[datetime, str] | None
    """The next deadline, and which timeout it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A timer that has not fired."""

    step: str
    fires: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of the definition, and how it stands."""

    name: str
    kind: str
    target: str
    """What it is about: the activity, the block, how long a sleep takes."""
    state: str
    attempt: int | None = None
    maximum_attempts: int = 0
    start: datetime | None = None
    end: datetime | None = None
    last_start: datetime | None = None
    """When its last attempt started."""
    failure: Json | None = None
    """Why it failed for good."""
    retry_state: str | None = None
    last_failure: Json | None = None
    """How the attempt before the last one ended."""
    pods: tuple[str, ...] = ()
    """The pods of its attempts, the first one first; whether they still exist is another question."""
    open: OpenActivity | None = None
    timer: Timer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Why a run cannot go on, and when that is tried again."""

    message: str
    attempt: int
    next_attempt: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run, as far as its object tells."""

    name: str
    namespace: str
    uid: str
    workflow: str | None
    """Name of the Workflow, or type; None where the definition stands in the run."""
    workflow_id: str
    phase: str
    reason: str
    message: str
    observed: bool
    """Whether an operator has seen it."""
    deleting: bool
    created: datetime | None
    start: datetime | None
    end: datetime | None
    progress: str
    input: Any
    output: Any
    failure: Json | None
    steps: tuple[Step, ...]
    activities: tuple[OpenActivity, ...]
    timers: tuple[Timer, ...]
    undecided: Undecided | None
    removed_at: datetime | None
    """When it will be removed, where it is closed."""
    seen: Seen | None
    """None where the cluster was not looked at."""

    @property
    def closed(self) -> bool:
        """Whether nothing more will happen."""
        return self.phase in CLOSED

    def duration(self, now: datetime) -> timedelta | None:
        """How long it took, or takes so far."""
        return elapsed(self.start, self.end, now)


@dataclass(slots=True)
class _Recorded:
    """What the history says of an activity or a timer; the newest one of that id."""

    kind: str
    target: str = ""
    scheduled_event_id: int | None = None
    maximum_attempts: int = 0
    attempt: int | None = None
    start: datetime | None = None
    last_start: datetime | None = None
    end: datetime | None = None
    ended: str | None = None
    failure: Json | None = None
    retry_state: str | None = None
    last_failure: Json | None = None


def read_run(obj: Mapping[str, Any], *, now: datetime, seen: Seen | None = None) -> Run:
    """Read a WorkflowRun.

    Args:
        obj: The object as the API server has it.
        now: The time.
        seen: What the cluster shows of its attempts, where it was looked at.

    Returns:
        The run.
    """
    return _Reader(obj, now, seen).run()


class _Reader:
    def __init__(self, obj: Mapping[str, Any], now: datetime, seen: Seen | None) -> None:
        self.metadata = _object(obj.get("metadata"))
        self.spec = _object(obj.get("spec"))
        self.status = _object(obj.get("status"))
        self.state = _object(self.status.get("state"))
        self.now = now
        self.seen = seen
        self.name = str(self.metadata.get("name") or "")
        self.phase = str(self.status.get("phase") or "Pending")
        self.closed = self.phase in CLOSED
        self.end = read_time(self.status.get("completionTime"))
        self.events = _objects(_object(self.status.get("history")).get("events"))
        self.recorded = _read_events(self.events)

    def run(self) -> Run:
        succeeded: Json = next((c for c in _objects(self.status.get("conditions")) if c.get("type") == "Succeeded"), {})
        reference = _object(self.spec.get("workflow"))
        first = self.events[0] if self.events and self.events[0].get("eventId") == 1 else {}
        activities = self.activities()
        timers = self.timers()
        return Run(
            name=self.name,
            namespace=str(self.metadata.get("namespace") or "default"),
            uid=str(self.metadata.get("uid") or ""),
            workflow=reference.get("name") or reference.get("type"),
            workflow_id=str(self.spec.get("workflowId") or self.name),
            phase=self.phase,
            reason=str(succeeded.get("reason") or ""),
            message=str(succeeded.get("message") or ""),
            observed=bool(self.status),
            deleting=bool(self.metadata.get("deletionTimestamp")),
            created=read_time(self.metadata.get("creationTimestamp")),
            start=read_time(self.status.get("startTime")),
            end=self.end,
            progress=str(self.status.get("progress") or ""),
            input=first.get("input", self.spec.get("input")),
            output=self.status.get("output"),
            failure=_object(self.status.get("failure")) or None,
            steps=tuple(self.steps({a.step: a for a in activities}, {t.step: t for t in timers})),
            activities=activities,
            timers=timers,
            undecided=self.undecided(),
            removed_at=self.removed_at(),
            seen=self.seen,
        )

    def undecided(self) -> Undecided | None:
        task = _object(self.state.get("task"))
        if not task:
            return None
        return Undecided(
            message=str(task.get("message") or ""),
            attempt=_int(task.get("attempt")) or 1,
            next_attempt=read_time(task.get("nextAttemptTime")),
        )

    def removed_at(self) -> datetime | None:
        keep = self.spec.get("ttlSecondsAfterFinished")
        if self.end is None or not isinstance(keep, int):
            return None
        return self.end + timedelta(seconds=keep)

    # What is open

    def activities(self) -> tuple[OpenActivity, ...]:
        engine = {
            str(entry.get("activityId")): entry for entry in _object(self.state.get("activities")).values() if entry
        }
        return tuple(
            self.activity(entry, engine.get(str(entry.get("step"))))
            for entry in _objects(self.status.get("pendingActivities"))
        )

    def activity(self, entry: Json, engine_entry: Json | None) -> OpenActivity:
        kept = _engine_activity(engine_entry)
        pod = entry.get("pod")
        sight = self.seen.sights.get(str(pod), Sight()) if self.seen else Sight()
        attempt = _int(entry.get("attempt")) or 1
        next_attempt = read_time(entry.get("nextAttemptTime"))
        started = read_time(entry.get("startedTime")) or sight.started
        state = str(entry.get("state") or "Scheduled")
        if state == "BackingOff" and (started or (next_attempt is not None and next_attempt <= self.now)):
            # It is told with the next commit, which an attempt's start does not bring about.
            state = "Scheduled"
        if state in {"Started", "Scheduled"}:
            state = "Running" if started else "Scheduled"
        heartbeat = sight.heartbeat or read_time(entry.get("lastHeartbeatTime"))
        deadline = None
        limit = 0
        if kept is not None:
            kept = msgspec.structs.replace(kept, started_time=started, last_heartbeat_time=heartbeat)
            deadline = min(((time, str(kind)) for time, kind in kept.deadlines()), default=None)
            limit = kept.retry_policy.maximum_attempts and kept.retry_policy.maximum_attempts + kept.losses
        return OpenActivity(
            step=str(entry.get("step")),
            activity=str(entry.get("activity")),
            state=state,
            attempt=attempt,
            maximum_attempts=limit,
            pod=str(pod) if pod else None,
            scheduled=read_time(entry.get("scheduledTime")),
            started=started,
            next_attempt=next_attempt if state == "BackingOff" else None,
            heartbeat=heartbeat,
            heartbeat_timeout=kept.heartbeat_timeout if kept else None,
            details=sight.details if sight.details is not None else entry.get("heartbeatDetails"),
            last_failure=_object(entry.get("lastFailure")) or None,
            waits_for=(sight.waits_for or entry.get("waitingReason")) if state == "Scheduled" else None,
            deadline=deadline if state != "BackingOff" else None,
        )

    def timers(self) -> tuple[Timer, ...]:
        found = ((entry, read_time(entry.get("fireTime"))) for entry in _objects(self.status.get("pendingTimers")))
        return tuple(Timer(step=str(entry.get("step")), fires=fires) for entry, fires in found if fires is not None)

    # Steps

    def steps(self, activities: Mapping[str, OpenActivity], timers: Mapping[str, Timer]) -> Iterable[Step]:
        definition = _object(self.spec.get("inline")) or _object(self.status.get("definition"))
        named = {str(step.get("name")): step for step in _objects(definition.get("steps"))}
        memory = _object(_object(self.state.get("memory")).get("steps"))
        # What the history knows and the definition does not: workflows that are code have no other steps.
        beyond = [name for name in (*self.recorded, *activities, *timers) if name not in named]
        for name in dict.fromkeys((*named, *beyond)):
            yield self.step(name, named.get(name), _object(memory.get(name)), activities.get(name), timers.get(name))

    def step(
        self, name: str, definition: Json | None, memory: Json, activity: OpenActivity | None, timer: Timer | None
    ) -> Step:
        told = self.recorded.get(name)
        kind, target = _kind_and_target(definition) if definition else ("", "")
        if told is not None and (not definition or kind == "sleep"):
            kind, target = kind or told.kind, told.target or target
        attempt = activity.attempt if activity else told.attempt if told else None
        state = self.step_state(memory, told, activity, timer)
        end = read_time(memory.get("endTime")) or (told.end if told else None)
        if state == "Stopped":
            end = self.end
        return Step(
            name=name,
            kind=kind,
            target=target,
            state=state,
            attempt=attempt,
            maximum_attempts=activity.maximum_attempts if activity else told.maximum_attempts if told else 0,
            start=read_time(memory.get("startTime")) or (told.start if told else None),
            end=end,
            last_start=activity.started if activity else told.last_start if told else None,
            failure=told.failure if told else None,
            retry_state=told.retry_state if told else None,
            last_failure=activity.last_failure if activity else told.last_failure if told else None,
            # The pod of an attempt that is not due yet has not been made.
            pods=self.pods(told, attempt - 1 if attempt and state == "BackingOff" else attempt),
            open=activity,
            timer=timer,
        )

    def step_state(
        self, memory: Json, told: _Recorded | None, activity: OpenActivity | None, timer: Timer | None
    ) -> str:
        if activity is not None:
            return activity.state
        if timer is not None:
            return "Waiting"
        state = str(memory.get("status") or (told.ended or "Running" if told else ""))
        if state == "Running" and self.closed:
            return "Stopped"
        return state or ("NotReached" if self.closed else "Pending")

    def pods(self, told: _Recorded | None, attempt: int | None) -> tuple[str, ...]:
        if told is None or told.scheduled_event_id is None:
            return ()
        if attempt is not None:
            return tuple(pod_name(self.name, told.scheduled_event_id, n) for n in range(1, attempt + 1))
        # A run that is closed from outside does not record how often its open activities were tried.
        there = self.seen.pods if self.seen else frozenset()
        tried = (pod_name(self.name, told.scheduled_event_id, n) for n in range(1, len(there) + _MAX_LOST + 1))
        return tuple(name for name in tried if name in there)


def _read_events(events: Iterable[Json]) -> dict[str, _Recorded]:
    """What the events tell, by activity or timer id."""
    by_id: dict[str, _Recorded] = {}
    by_event: dict[Any, _Recorded] = {}
    for event in events:
        kind, time = event.get("eventType"), read_time(event.get("eventTime"))
        if kind == "ActivityTaskScheduled":
            policy = _object(event.get("retryPolicy"))
            told = _Recorded(
                "activity",
                target=str(event.get("activityType") or ""),
                scheduled_event_id=_int(event.get("eventId")),
                maximum_attempts=_int(policy.get("maximumAttempts")) or 0,
                start=time,
            )
            by_id[str(event.get("activityId"))] = by_event[event.get("eventId")] = told
        elif kind == "TimerStarted":
            length = _timedelta(event.get("startToFireTimeout"))
            told = _Recorded("timer", target=_short(length), start=time)
            by_id[str(event.get("timerId"))] = by_event[event.get("eventId")] = told
        elif kind == "ActivityTaskStarted" and event.get("scheduledEventId") in by_event:
            told = by_event[event.get("scheduledEventId")]
            told.attempt = _int(event.get("attempt"))
            told.last_start = time
            told.last_failure = _object(event.get("lastFailure")) or None
        elif kind in _ENDED:
            known = by_event.get(event.get("scheduledEventId", event.get("startedEventId")))
            if known is not None:
                known.end, known.ended = time, _ENDED[kind]
                known.attempt = _int(event.get("attempt")) or known.attempt
                known.failure = _object(event.get("failure")) or None
                known.retry_state = event.get("retryState")
    return by_id


def _kind_and_target(step: Json) -> tuple[str, str]:
    kind = next((key for key in step if key not in _MODIFIERS), "")
    body = _object(step.get(kind))
    match kind:
        case "activity" | "waitForSignal" | "signal":
            target = body.get("name")
        case "sleep":
            target = body.get("duration") or f"until {body.get('until')}"
        case "call":
            target = body.get("block")
        case "childWorkflow":
            reference = _object(body.get("workflow"))
            target = reference.get("name") or reference.get("type")
        case "fail":
            target = body.get("type")
        case "set":
            target = ", ".join(map(str, body))
        case _:
            target = ""
    return kind, str(target or "")


def _engine_activity(entry: Json | None) -> EngineActivity | None:
    try:
        return None if entry is None else msgspec.convert(entry, EngineActivity)
    except msgspec.ValidationError:
        return None


def _timedelta(value: Any) -> timedelta | None:
    try:
        return msgspec.convert(value, timedelta)
    except msgspec.ValidationError:
        return None


def _short(length: timedelta | None) -> str:
    return "" if length is None else duration(length)


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
