"""Reads the open work of a run: activities, timers, children, Nexus operations, and unconsumed signals."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.api.lenient import Json, convert, convert_all, integer, mapping, mappings, read_time
from perdure.api.names import child_name
from perdure.engine.state import PendingActivity, PendingChild, PendingOperation
from perdure.language.memory import BufferedSignal

_LIMIT = ":timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The current state of an attempt in the cluster: the status of a run records it only with the next commit."""

    started: datetime | None = None
    ended: bool = False
    containers: tuple[str, ...] = ()
    """The containers that do the work now; empty if the pod has only one container."""
    waits_for: str | None = None
    """The reason why the pod has not started the activity."""
    heartbeat: datetime | None = None
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSight:
    """The current state of a child in the cluster, from the newest run of its chain."""

    name: str
    phase: str
    progress: str = ""
    waits_for: str | None = None
    """The reason why the child cannot continue, if it is blocked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The state of a run's attempts and children in the cluster."""

    pods: frozenset[str] = frozenset()
    """The existing pods that are not terminating; pods of failed attempts are kept for their logs."""
    sights: Mapping[str, Sight] = field(default_factory=dict)
    """The attempts, by the names of their pods."""
    children: Mapping[int, ChildSight] = field(default_factory=dict)
    """The children, by the IDs of the events that requested them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenActivity:
    """An activity that has not closed."""

    step: str
    activity: str
    state: str
    attempt: int
    maximum_attempts: int
    """Maximum number of attempts; 0: no limit."""
    losses: int
    """Number of earlier attempts that were lost to the infrastructure; they do not count."""
    pod: str | None
    task_queue: str
    """The task queue of its workers; empty if it runs in a pod."""
    worker: str
    """The worker of the attempt; empty if unknown."""
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
    """ID of the timer: the path of its step, with `:timeout` if it limits the step."""
    fires: datetime

    @property
    def path(self) -> str:
        """Return the path of the step."""
        return self.step.removesuffix(_LIMIT)

    @property
    def limits(self) -> bool:
        """Whether the timer is the `timeout` of a step or of a handler."""
        return self.step.endswith(_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenChild:
    """A child that has not closed."""

    step: str
    """Path of its step; its workflow ID if code started it, because code has no steps."""
    workflow_id: str
    workflow_run: str
    """Name of its newest known run, or of its first run if the cluster was not queried."""
    child_run_id: str
    """ID of its first run; empty until the run has started."""
    parent_close_policy: str
    phase: str | None
    """The phase of the run; None if the cluster was not queried, or the run does not exist yet."""
    progress: str
    waits_for: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCancellation:
    """A request to cancel a Nexus operation."""

    state: str
    """Scheduled or BackingOff; Succeeded or Failed once the handler has responded; empty until the operation has started."""
    attempt: int | None
    """Number of the pending or finished call; None until the operation has started."""
    requested: datetime | None
    """The earliest time of the first call of the handler."""
    next_attempt: datetime | None
    last_failure: Json | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOperation:
    """A Nexus operation that has not closed. Its request ID is for the caller and the handler only."""

    scheduled_event_id: int
    endpoint: str
    service: str
    operation: str
    handler_namespace: str
    operation_token: str
    """The operation token of the handler; empty until the operation has started."""
    state: str
    """Scheduled: a call to start it is due; BackingOff: the last call failed; Running: the handler has started it."""
    attempt: int
    """Number of the pending call, or of the call that started the operation."""
    scheduled: datetime | None
    started: datetime | None
    next_attempt: datetime | None
    last_failure: Json | None
    deadline: tuple[datetime, str] | None
    """The next deadline, and which timeout it is."""
    cancellation: OpenCancellation | None

    @property
    def name(self) -> str:
        """The service and the operation."""
        return f"{self.service}.{self.operation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSignal:
    """A received signal that no step has consumed yet."""

    name: str
    received: datetime | None
    input: Any = None
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Openings:
    """The open work of a run."""

    activities: tuple[OpenActivity, ...]
    timers: tuple[Timer, ...]
    children: tuple[OpenChild, ...]
    operations: tuple[OpenOperation, ...]
    signals: tuple[OpenSignal, ...]
    scheduled: Mapping[str, int]
    """IDs of the Scheduled events of activities, by path."""


def read_openings(name: str, status: Json, state: Json, now: datetime, seen: Seen | None) -> Openings:
    """Read the open work of a run.

    Args:
        name: Name of the run.
        status: The status of the run.
        state: The engine's state in the status.
        now: The time.
        seen: The state in the cluster, if the cluster was queried.

    Returns:
        The open work.
    """
    kept = {entry.activity_id: entry for entry in convert_all(state.get("activities"), PendingActivity).values()}
    paused = status.get("phase") == "Paused"
    entries = mappings(status.get("pendingActivities"))
    return Openings(
        activities=tuple(_activity(entry, kept.get(str(entry.get("step"))), now, seen, paused) for entry in entries),
        timers=tuple(_timers(status)),
        children=tuple(_children(name, status, state, seen)),
        operations=() if status.get("completionTime") else tuple(_operations(state, now)),
        signals=tuple(_signals(status, state)),
        scheduled={path: entry.scheduled_event_id for path, entry in kept.items()},
    )


def _activity(
    entry: Json,
    kept: PendingActivity | None,
    now: datetime,
    seen: Seen | None,
    paused: bool,
) -> OpenActivity:
    pod = entry.get("pod")
    sight = seen.sights.get(str(pod), Sight()) if seen else Sight()
    next_attempt = read_time(entry.get("nextAttemptTime"))
    started = read_time(entry.get("startedTime")) or sight.started
    state = str(entry.get("state") or "Scheduled")
    if state == "BackingOff" and (started or (next_attempt is not None and next_attempt <= now)):
        # The next commit records it; the start of an attempt does not cause a commit.
        state = "Scheduled"
    if state in {"Started", "Scheduled"}:
        state = "Running" if started else "Scheduled"
    heartbeat = sight.heartbeat or read_time(entry.get("lastHeartbeatTime"))
    waits_for = sight.waits_for or entry.get("waitingReason") or ("the run is paused" if paused else None)
    deadline = None
    if kept is not None:
        kept = msgspec.structs.replace(kept, started_time=started, last_heartbeat_time=heartbeat)
        deadline = _deadline(kept)
    return OpenActivity(
        step=str(entry.get("step")),
        activity=str(entry.get("activity")),
        state=state,
        attempt=integer(entry.get("attempt")) or 1,
        maximum_attempts=kept.retry_policy.maximum_attempts if kept else 0,
        losses=kept.losses if kept else 0,
        pod=str(pod) if pod else None,
        task_queue=kept.task_queue if kept and kept.by_worker else "",
        worker=kept.identity if kept else "",
        scheduled=read_time(entry.get("scheduledTime")),
        started=started,
        next_attempt=next_attempt if state == "BackingOff" else None,
        heartbeat=heartbeat,
        heartbeat_timeout=kept.heartbeat_timeout if kept else None,
        details=sight.details if sight.details is not None else entry.get("heartbeatDetails"),
        last_failure=mapping(entry.get("lastFailure")) or None,
        waits_for=waits_for if state == "Scheduled" else None,
        deadline=deadline if state != "BackingOff" else None,
    )


def _deadline(kept: PendingActivity | PendingOperation) -> tuple[datetime, str] | None:
    try:
        return min(((time, str(kind)) for time, kind in kept.deadlines()), default=None)
    except TypeError:  # times without a zone: damaged
        return None


def _timers(status: Json) -> Iterator[Timer]:
    for entry in mappings(status.get("pendingTimers")):
        fires = read_time(entry.get("fireTime"))
        if fires is not None:
            yield Timer(step=str(entry.get("step")), fires=fires)


def _children(name: str, status: Json, state: Json, seen: Seen | None) -> Iterator[OpenChild]:
    kept = {entry.child_id: entry for entry in convert_all(state.get("children"), PendingChild).values()}
    for entry in mappings(status.get("pendingChildren")):
        step, workflow_id = str(entry.get("step")), str(entry.get("workflowId") or "")
        number = kept[step].initiated_event_id if step in kept else None
        sight = seen.children.get(number) if seen and number is not None else None
        first = child_name(name, number) if number is not None else str(entry.get("workflowRun") or "")
        yield OpenChild(
            step=workflow_id if "code" in state else step,
            workflow_id=workflow_id,
            workflow_run=sight.name if sight else first,
            child_run_id=str(entry.get("runId") or ""),
            parent_close_policy=str(entry.get("parentClosePolicy") or ""),
            phase=sight.phase if sight else None,
            progress=sight.progress if sight else "",
            waits_for=sight.waits_for if sight else None,
        )


def _operations(state: Json, now: datetime) -> Iterator[OpenOperation]:
    stored = mapping(state.get("operations"))
    for number, kept in convert_all(stored, PendingOperation).items():
        started, calls = _time(kept.started_time), mapping(mapping(stored.get(number)).get("calls"))
        due = _time(kept.calls.due)
        waits = started is None and due is not None and due > now
        yield OpenOperation(
            scheduled_event_id=kept.scheduled_event_id,
            endpoint=kept.endpoint,
            service=kept.service,
            operation=kept.operation,
            handler_namespace=kept.handler_namespace,
            operation_token=kept.operation_token,
            state="Running" if started else "BackingOff" if waits else "Scheduled",
            attempt=max(kept.calls.attempts, 1) if started else kept.calls.attempt,
            scheduled=_time(kept.scheduled_time),
            started=started,
            next_attempt=due if waits else None,
            last_failure=mapping(calls.get("lastFailure")) or None,
            deadline=_deadline(kept),
            cancellation=_cancellation(kept, mapping(mapping(stored.get(number)).get("cancellation")), now),
        )


def _cancellation(kept: PendingOperation, stored: Json, now: datetime) -> OpenCancellation | None:
    if kept.cancellation is None:
        return None
    calls, state = kept.cancellation.calls, kept.cancellation.state
    due = _time(calls.due) if calls and not state else None
    waits = due is not None and due > now
    return OpenCancellation(
        state=state or ("BackingOff" if waits else "Scheduled" if calls else ""),
        attempt=None if calls is None else calls.attempts if state else calls.attempt,
        requested=_time(kept.cancellation.requested_time),
        next_attempt=due if waits else None,
        last_failure=mapping(mapping(stored.get("calls")).get("lastFailure")) or None,
    )


def _time(time: datetime | None) -> datetime | None:
    """Return a time with a time zone, even if the status has none."""
    return None if time is None else read_time(time.isoformat())


def _signals(status: Json, state: Json) -> Iterator[OpenSignal]:
    """Read the signals. The memory has all of them with their inputs; the status only has the first names."""
    shown = mappings(status.get("pendingSignals"))
    kept = mapping(state.get("memory")).get("signals")
    if not shown or not isinstance(kept, list):
        kept = []
    read = [signal for signal in (convert(entry, BufferedSignal) for entry in kept) if signal is not None]
    if len(read) < len(shown):
        yield from (OpenSignal(name=str(s.get("name")), received=read_time(s.get("receivedTime"))) for s in shown)
        return
    for signal in read:
        received = _time(signal.time)
        yield OpenSignal(name=signal.name, received=received, input=signal.input, identity=signal.identity)
