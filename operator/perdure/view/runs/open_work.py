"""The open work of a run: activities, timers, children, Nexus operations, and unconsumed signals.

The status of a run records a started pod or a heartbeat only with the next commit; users want to see it now. So the state of the
cluster completes it, if it was read: pods, Leases, Events, and children.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pydantic

from perdure.api.json_values import Json, integer, mapping, mappings
from perdure.api.kinds.status import find_condition, read_conditions
from perdure.api.kinds.workflow import Activity
from perdure.api.kinds.workflowrun import definition_of
from perdure.api.labels import PARENT_RUN_ID_LABEL, RUN_ID_LABEL
from perdure.api.names import child_name
from perdure.api.reasons import ConditionReason, ConditionStatus, ConditionType, EventReason
from perdure.api.stored import convert, convert_all
from perdure.api.times import read_kubernetes_time
from perdure.engine.state import PendingActivity, PendingChild, PendingOperation
from perdure.language.memory import BufferedSignal
from perdure.language.step_paths import is_limit, limited
from perdure.runtime.chains import parent_of
from perdure.runtime.leases import heartbeat_details
from perdure.runtime.pods.builder import main_container_name
from perdure.runtime.pods.status import ContainerGroup, PodStatus, waiting_reason


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAttempt:
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
class LiveChild:
    """The current state of a child in the cluster, from the newest run of its chain."""

    name: str
    phase: str
    progress: str = ""
    waits_for: str | None = None
    """The reason why the child cannot continue, if it is blocked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """The state of a run's attempts and children in the cluster."""

    pods: frozenset[str] = frozenset()
    """The existing pods that are not terminating; pods of failed attempts are kept for their logs."""
    attempts: Mapping[str, LiveAttempt] = field(default_factory=dict)
    """The attempts, by the names of their pods."""
    children: Mapping[int, LiveChild] = field(default_factory=dict)
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
    resets: bool
    """Whether it was reset while its attempt runs: the next attempt counts as the first."""
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
    """ID of the timer: the path of its step, with `:timeout` if it limits the step, or `:stepsTimeout` if it limits a block."""
    fires: datetime

    @property
    def path(self) -> str:
        """Return the path of the step; empty if the timer limits all steps."""
        return limited(self.step)

    @property
    def limits(self) -> bool:
        """Whether the timer is the `timeout` of a step or of a handler, or the `stepsTimeout` of a block or of the run."""
        return is_limit(self.step)


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
class OpenWork:
    """The open work of a run."""

    activities: tuple[OpenActivity, ...]
    timers: tuple[Timer, ...]
    children: tuple[OpenChild, ...]
    operations: tuple[OpenOperation, ...]
    signals: tuple[OpenSignal, ...]
    scheduled: Mapping[str, int]
    """IDs of the Scheduled events of activities, by path."""


def read_open_work(name: str, status: Json, state: Json, now: datetime, live_state: LiveState | None) -> OpenWork:
    """Read the open work of a run.

    Args:
        name: Name of the run.
        status: The status of the run.
        state: The engine's state in the status.
        now: The time.
        live_state: The state in the cluster, if the cluster was queried.

    Returns:
        The open work.
    """
    kept = {entry.activity_id: entry for entry in convert_all(state.get("activities"), PendingActivity).values()}
    paused = status.get("phase") == "Paused"
    entries = mappings(status.get("pendingActivities"))
    return OpenWork(
        activities=tuple(
            _activity(entry, kept.get(str(entry.get("step"))), now, live_state, paused) for entry in entries
        ),
        timers=tuple(_timers(status)),
        children=tuple(_children(name, status, state, live_state)),
        operations=() if status.get("completionTime") else tuple(_operations(state, now)),
        signals=tuple(_signals(status, state)),
        scheduled={path: entry.scheduled_event_id for path, entry in kept.items()},
    )


def _activity(
    entry: Json,
    kept: PendingActivity | None,
    now: datetime,
    live_state: LiveState | None,
    paused: bool,
) -> OpenActivity:
    pod = entry.get("pod")
    live = live_state.attempts.get(str(pod), LiveAttempt()) if live_state else LiveAttempt()
    next_attempt = read_kubernetes_time(entry.get("nextAttemptTime"))
    started = read_kubernetes_time(entry.get("startedTime")) or live.started
    state = str(entry.get("state") or "Scheduled")
    if state == "BackingOff" and (started or (next_attempt is not None and next_attempt <= now)):
        # The next commit records it; the start of an attempt does not cause a commit.
        state = "Scheduled"
    if state in {"Started", "Scheduled"}:
        state = "Running" if started else "Scheduled"
    heartbeat = live.heartbeat or read_kubernetes_time(entry.get("lastHeartbeatTime"))
    waits_for = live.waits_for or entry.get("waitingReason") or ("the run is paused" if paused else None)
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
        resets=kept.reset if kept else False,
        pod=str(pod) if pod else None,
        task_queue=kept.task_queue if kept and kept.by_worker else "",
        worker=kept.identity if kept else "",
        scheduled=read_kubernetes_time(entry.get("scheduledTime")),
        started=started,
        next_attempt=next_attempt if state == "BackingOff" else None,
        heartbeat=heartbeat,
        heartbeat_timeout=kept.heartbeat_timeout if kept else None,
        details=live.details if live.details is not None else entry.get("heartbeatDetails"),
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
        fires = read_kubernetes_time(entry.get("fireTime"))
        if fires is not None:
            yield Timer(step=str(entry.get("step")), fires=fires)


def _children(name: str, status: Json, state: Json, live_state: LiveState | None) -> Iterator[OpenChild]:
    kept = {entry.child_id: entry for entry in convert_all(state.get("children"), PendingChild).values()}
    for entry in mappings(status.get("pendingChildren")):
        step, workflow_id = str(entry.get("step")), str(entry.get("workflowId") or "")
        number = kept[step].initiated_event_id if step in kept else None
        live = live_state.children.get(number) if live_state and number is not None else None
        first = child_name(name, number) if number is not None else str(entry.get("workflowRun") or "")
        yield OpenChild(
            step=workflow_id if "code" in state else step,
            workflow_id=workflow_id,
            workflow_run=live.name if live else first,
            child_run_id=str(entry.get("runId") or ""),
            parent_close_policy=str(entry.get("parentClosePolicy") or ""),
            phase=live.phase if live else None,
            progress=live.progress if live else "",
            waits_for=live.waits_for if live else None,
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
    return None if time is None else read_kubernetes_time(time.isoformat())


def _signals(status: Json, state: Json) -> Iterator[OpenSignal]:
    """Read the signals. The memory has all of them with their inputs; the status only has the first names."""
    shown = mappings(status.get("pendingSignals"))
    kept = mapping(state.get("memory")).get("signals")
    if not shown or not isinstance(kept, list):
        kept = []
    read = [signal for signal in (convert(entry, BufferedSignal) for entry in kept) if signal is not None]
    if len(read) < len(shown):
        yield from (
            OpenSignal(name=str(s.get("name")), received=read_kubernetes_time(s.get("receivedTime"))) for s in shown
        )
        return
    for signal in read:
        received = _time(signal.time)
        yield OpenSignal(name=signal.name, received=received, input=signal.input, identity=signal.identity)


# The state of the cluster

Object = Mapping[str, Any]


def attempts_selector(run: Object) -> str:
    """Return the label selector of a run's pods and Leases."""
    return f"{RUN_ID_LABEL}={run['metadata']['uid']}"


def refused_pods_selector(run: Object) -> str:
    """Return the field selector of the Events about pods of a run that could not be created."""
    return f"involvedObject.uid={run['metadata']['uid']},reason={EventReason.POD_REFUSED}"


def children_selector(run: Object) -> str:
    """Return the label selector of a run's children."""
    return f"{PARENT_RUN_ID_LABEL}={run['metadata']['uid']}"


def read_live_state(
    run: Object,
    pods: Iterable[Object],
    leases: Iterable[Object],
    events: Iterable[Object] = (),
    children: Iterable[Object] = (),
) -> LiveState:
    """Read the state of a run's attempts and children from its objects.

    Args:
        run: The WorkflowRun.
        pods: Its pods.
        leases: Its Leases; empty without permission to read them.
        events: The Events about refused pods; empty without permission to read them.
        children: Its children, with the later runs of their chains.

    Returns:
        The current state.
    """
    by_name = {pod["metadata"]["name"]: dict(pod) for pod in pods}
    beats = {lease["metadata"]["name"]: dict(lease) for lease in leases}
    refused = {(event.get("related") or {}).get("name"): str(event.get("message") or "") for event in events}
    definitions = _activities(run)
    attempts = {}
    for entry in (run.get("status") or {}).get("pendingActivities") or []:
        name = entry.get("pod")
        if name in by_name:
            attempts[name] = _live_attempt(by_name[name], beats.get(name, {}), definitions.get(entry.get("activity")))
        elif name in refused:
            attempts[name] = LiveAttempt(waits_for=refused[name])
    staying = frozenset(name for name, pod in by_name.items() if not pod["metadata"].get("deletionTimestamp"))
    return LiveState(pods=staying, attempts=attempts, children=_newest_children(run, children))


def _newest_children(run: Object, children: Iterable[Object]) -> dict[int, LiveChild]:
    """Return the newest run of each child's chain."""
    found: dict[int, LiveChild] = {}
    for child in sorted(children, key=_age):
        tie = parent_of(dict(child))
        if tie is not None and tie.run_id == run["metadata"]["uid"]:
            status = child.get("status") or {}
            found[tie.initiated_event_id] = LiveChild(
                name=child["metadata"]["name"],
                phase=str(status.get("phase") or "Pending"),
                progress=str(status.get("progress") or ""),
                waits_for=_blocked_reason(status),
            )
    return found


def _blocked_reason(status: Object) -> str | None:
    """Return why a run cannot continue, according to its condition; None if it can."""
    condition = find_condition(read_conditions(status), ConditionType.SUCCEEDED)
    if (
        condition is None
        or condition.status is not ConditionStatus.UNKNOWN
        or condition.reason == ConditionReason.RUNNING
    ):
        return None
    return condition.message


def _age(run: Object) -> tuple[str, bool, str]:
    """Return a sort key by age: of two runs created in the same second, the open run is newer."""
    status = run.get("status") or {}
    return (
        str(run["metadata"].get("creationTimestamp")),
        not status.get("completionTime"),
        str(status.get("startTime")),
    )


def _live_attempt(pod: dict[str, Any], lease: dict[str, Any], definition: Activity | None) -> LiveAttempt:
    status = PodStatus.of(pod)
    beat = read_kubernetes_time((lease.get("spec") or {}).get("renewTime"))
    details = heartbeat_details(lease)
    if definition is None:
        return LiveAttempt(heartbeat=beat, details=details)
    group = ContainerGroup.of(pod, main_container_name(definition))
    ended = group.ended(status)
    return LiveAttempt(
        started=group.running_since(status) or (ended.started if ended else None),
        containers=group.at_work(status) if len((pod.get("spec") or {}).get("containers") or ()) > 1 else (),
        ended=ended is not None or status.phase in {"Succeeded", "Failed"},
        waits_for=waiting_reason(pod, group.main),
        heartbeat=beat,
        details=details,
    )


def _activities(run: Object) -> dict[str, Activity]:
    found = {}
    for entry in mappings(definition_of(run).get("activities")):
        try:
            activity = Activity.parse(entry)
        except pydantic.ValidationError:
            continue  # of a newer version: show less
        found[activity.name] = activity
    return found
