"""Metrics for Prometheus. Labels have few values: namespaces, outcomes, RPCs, RetryPolicies, and the like, never single runs.

Names that tenants choose freely, such as those of Workflows and task queues, are labels of a limited number of series; what is
beyond that counts together, as `OTHERS`.
"""

import asyncio
import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from types import SimpleNamespace
from typing import NoReturn

import aiohttp
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from perdure import REVISION, __version__

_NO_ANSWER = "none"
"""The code of a request without a response."""
OTHERS = "(others)"
"""The label of what exceeds `MAX_NAMES`; no Kubernetes object can have this name."""
MAX_NAMES = 50
"""Number of Workflows, and of task queues, with series of their own in each namespace: none uses up those of another."""

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

BUILD = Gauge(
    "perdure_build_info",
    "Always 1. The labels have the version of the operator, the commit of its image (empty if the build does not state it), and "
    "the version of Python.",
    ["version", "revision", "python_version"],
    registry=REGISTRY,
)
BUILD.labels(version=__version__, revision=REVISION, python_version=platform.python_version()).set(1)


class Names:
    """The names in each namespace that have series of their own: the first `MAX_NAMES`; `OTHERS` stands for the rest."""

    def __init__(self) -> None:
        self._known: defaultdict[str, set[str]] = defaultdict(set)

    def label(self, namespace: str, name: str) -> str:
        """Return the label of a name."""
        known = self._known[namespace]
        if name not in known:
            if len(known) >= MAX_NAMES:
                return OTHERS
            known.add(name)
        return name


RUNS = Counter(
    "perdure_workflow_runs",
    "Closed runs, by Workflow or workflow type, and outcome: Completed, Failed, TimedOut, Cancelled, Terminated or "
    "ContinuedAsNew.",
    ["namespace", "workflow", "outcome"],
    registry=REGISTRY,
)
RUN_DURATION = Histogram(
    "perdure_workflow_run_duration_seconds",
    "Time from the start of a run to its end, by Workflow or workflow type, and outcome.",
    ["namespace", "workflow", "outcome"],
    buckets=(1, 10, 60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400),
    registry=REGISTRY,
)
_CLOSED_WORKFLOWS = Names()


def count_closed_run(namespace: str, workflow: str, outcome: str, seconds: float | None) -> None:
    """Count a closed run.

    Args:
        namespace: Its namespace.
        workflow: Its Workflow or workflow type.
        outcome: How it closed.
        seconds: How long it was open; None: not known.
    """
    labels = {"namespace": namespace, "workflow": _CLOSED_WORKFLOWS.label(namespace, workflow), "outcome": outcome}
    RUNS.labels(**labels).inc()
    if seconds is not None:
        RUN_DURATION.labels(**labels).observe(seconds)


OPEN_RUNS = Gauge(
    "perdure_open_runs",
    "Open runs that this operator owns, by Workflow or workflow type.",
    ["namespace", "workflow"],
    registry=REGISTRY,
)
RUNS_NEAR_LIMIT = Gauge(
    "perdure_runs_near_limit",
    "Open runs whose history or status has reached half of its limit: they should continue as new, or return less.",
    ["namespace"],
    registry=REGISTRY,
)


def show_open_runs(open_runs: Mapping[tuple[str, str], int], near_limit: Mapping[str, int]) -> None:
    """Set the number of open runs.

    Args:
        open_runs: Their number by namespace and Workflow.
        near_limit: The number of runs near a limit, by namespace.
    """
    OPEN_RUNS.clear()
    names = Names()
    for (namespace, workflow), count in sorted(open_runs.items(), key=lambda each: -each[1]):
        OPEN_RUNS.labels(namespace, names.label(namespace, workflow)).inc(count)
    RUNS_NEAR_LIMIT.clear()
    for namespace, count in near_limit.items():
        RUNS_NEAR_LIMIT.labels(namespace).set(count)


ATTEMPTS = Counter(
    "perdure_activity_attempts",
    "Ended attempts, by outcome: Completed, Failed, TimedOut, Lost, Canceled, Cached if an earlier result was used, or Stopped "
    "if the run closed first.",
    ["outcome"],
    registry=REGISTRY,
)
ACTIVITIES = Counter(
    "perdure_activities",
    "Closed activities, by final outcome: Completed, Failed, TimedOut or Canceled. Retried attempts do not count.",
    ["outcome"],
    registry=REGISTRY,
)
ATTEMPT_WAIT = Histogram(
    "perdure_activity_schedule_to_start_seconds",
    "How long an attempt waited from the time when it could start until it started, by executor: Pod or Worker. Includes waits "
    "for a WorkflowLimit, for a node, and for an image. Measured when the attempt ends.",
    ["executor"],
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 3_600),
    registry=REGISTRY,
)
ATTEMPT_DURATION = Histogram(
    "perdure_activity_start_to_close_seconds",
    "How long an attempt ran, by executor (Pod or Worker) and by outcome, as in perdure_activity_attempts_total.",
    ["executor", "outcome"],
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 3_600, 4 * 3_600, 86_400),
    registry=REGISTRY,
)
NEXUS_OPERATIONS = Counter(
    "perdure_nexus_operations",
    "Ended Nexus operations, by the namespace of the caller and outcome: Completed, Failed, TimedOut or Canceled.",
    ["namespace", "outcome"],
    registry=REGISTRY,
)
COMMITS = Counter(
    "perdure_commits", "Status writes of runs, Schedules, and Operations: one is one transition.", registry=REGISTRY
)
SEGMENTS = Counter(
    "perdure_history_segments", "Parts of histories that were stored as HistorySegments.", registry=REGISTRY
)
BLOBS = Counter("perdure_large_payloads", "Large payloads that were stored as Payload objects.", registry=REGISTRY)
REVISIONS = Counter(
    "perdure_revisions",
    "WorkflowRevisions by outcome: Stored, Restored after a client had deleted them, Deleted because nothing needed them, or "
    "Refused by the API server, so that a run contains its definition.",
    ["outcome"],
    registry=REGISTRY,
)
COMMIT_CONFLICTS = Counter(
    "perdure_commit_conflicts", "Reconciliations that were repeated because the object had changed.", registry=REGISTRY
)
DAMAGED = Counter(
    "perdure_state_damaged",
    "Statuses that were found edited, removed, rolled back or unreadable, by kind.",
    ["namespace", "kind"],
    registry=REGISTRY,
)
NEWER_STATES = Counter(
    "perdure_newer_state",
    "Objects that this operator leaves as they are because a newer version has written them, by kind.",
    ["namespace", "kind"],
    registry=REGISTRY,
)
STATE_VERSION = Gauge(
    "perdure_state_version",
    'The newest state version that this operator reads (kind="read"), and the one that it writes (kind="written"). They '
    "differ until an upgrade is finished.",
    ["kind"],
    registry=REGISTRY,
)
RECONCILIATIONS = Histogram(
    "perdure_pass_duration_seconds",
    "Duration of one reconciliation of a run, including writes.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    registry=REGISTRY,
)
OPERATIONS = Counter(
    "perdure_operations",
    "Answered Operations, by request and answer.",
    ["verb", "outcome"],
    registry=REGISTRY,
)
WEBHOOK_REQUESTS = Counter(
    "perdure_webhook_requests",
    "Requests to Webhooks, by namespace and outcome: Created, Duplicate, Ignored, Unusable, Limited, Failed, or "
    "Unauthenticated (without a namespace).",
    ["namespace", "outcome"],
    registry=REGISTRY,
)
WORKER_SCALINGS = Counter(
    "perdure_worker_scalings",
    "Changes of the number of pods of a version of a WorkerDeployment, by namespace and direction: FromZero, Up, Down, "
    "or ToZero.",
    ["namespace", "direction"],
    registry=REGISTRY,
)
QUEUE_DEPTH = Gauge(
    "perdure_queue_depth",
    "Objects that wait to be reconciled, by queue. If it stays high, the operator cannot keep up.",
    ["queue"],
    registry=REGISTRY,
)
QUEUE_WAIT = Histogram(
    "perdure_queue_wait_seconds",
    "How long objects waited to be reconciled, by queue. Namespaces take turns, so a busy namespace raises high percentiles.",
    ["queue"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    registry=REGISTRY,
)
RECONCILIATION_FAILURES = Counter(
    "perdure_pass_failures",
    "Failed reconciliations, by queue. They are retried with backoff; the log has the errors.",
    ["queue"],
    registry=REGISTRY,
)


class QueueMetrics:
    """The metrics of one queue."""

    def __init__(self, queue: str) -> None:
        """Start with an empty queue.

        Args:
            queue: Its name.
        """
        self.depth = QUEUE_DEPTH.labels(queue)
        self.wait = QUEUE_WAIT.labels(queue)
        self.failed = RECONCILIATION_FAILURES.labels(queue)


DEFINITIONS_WAITING = Gauge(
    "perdure_definitions_waiting", "Definitions that wait to be compiled or are being compiled.", registry=REGISTRY
)
LOGS_WAITING = Gauge("perdure_logs_waiting", "Logs of failed attempts that wait to be read.", registry=REGISTRY)
TIMERS = Gauge(
    "perdure_timers",
    "Runs that wait for a time: a sleep, a retry, a deadline, or the next check of a pod.",
    registry=REGISTRY,
)
RUNS_KNOWN = Gauge(
    "perdure_runs_known",
    "Runs in the memory of the operator: open ones, and those with pods that are not released yet.",
    registry=REGISTRY,
)
OPEN_RUNS_LIMIT = Gauge(
    "perdure_open_runs_limit",
    "The most open runs that a namespace may have (openRuns.maxPerNamespace); 0: no limit.",
    registry=REGISTRY,
)
RUNS_WAITING_FOR_CAPACITY = Gauge(
    "perdure_runs_waiting_for_capacity",
    "New runs that wait because of openRuns.maxPerNamespace (OpenRuns), or because the operator has little memory left (Memory).",
    ["cause"],
    registry=REGISTRY,
)
RUNS_HIBERNATED = Gauge(
    "perdure_runs_hibernated",
    "Open runs that only wait, so that the operator has dropped them from its memory until something happens.",
    registry=REGISTRY,
)
FLEET_MEMBERS = Gauge(
    "perdure_fleet_members",
    "Operators that share the work, as seen by this one; 0 for a single operator without a fleet.",
    registry=REGISTRY,
)
FLEET_SHARDS = Gauge(
    "perdure_fleet_shards",
    "Shards that this operator owns, of 64. The sum over all operators must be 64.",
    registry=REGISTRY,
)
FLEET_TAKE_OVERS = Counter(
    "perdure_fleet_take_overs",
    "Operators whose Lease expired, so that the others took over their shards.",
    registry=REGISTRY,
)
FLEET_FORWARDED_RPCS = Counter(
    "perdure_fleet_forwarded_rpcs", "RPCs that this operator has forwarded to another.", ["rpc"], registry=REGISTRY
)
FLEET_OWNER_MISMATCHES = Counter(
    "perdure_fleet_owner_mismatches",
    "Attempts to handle an RPC that found no owner: the operator was not reached, or did not own the target of the RPC.",
    registry=REGISTRY,
)
FLEET_GUESTS = Gauge(
    "perdure_fleet_guest_runs", "Runs of other operators that this one has a request for.", registry=REGISTRY
)
EVENT_LOOP_LAG = Histogram(
    "perdure_event_loop_lag_seconds",
    "How much later than requested the event loop woke a task; measured once a second. Everything in this process waits as long.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
    registry=REGISTRY,
)
WATCH_LAG = Counter(
    "perdure_watch_missed",
    "Changed objects that a resync found without a watch event; should stay 0.",
    registry=REGISTRY,
)
API_REQUESTS = Histogram(
    "perdure_api_request_duration_seconds",
    "Time from a request to the API server to the beginning of its response, by HTTP method and status code; the code is `none` "
    "if there was no response.",
    ["method", "code"],
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    registry=REGISTRY,
)
UNDECODABLE = Counter(
    "perdure_undecodable_objects",
    "Objects that could not be decoded and were skipped, by kind; counted once for each version of an object.",
    ["kind"],
    registry=REGISTRY,
)

RPCS = Counter(
    "perdure_temporal_rpcs",
    "RPCs of Temporal clients and workers, by namespace (empty without one, and for refused callers), name, and gRPC code.",
    ["namespace", "rpc", "code"],
    registry=REGISTRY,
)
RPC_DURATION = Histogram(
    "perdure_temporal_rpc_duration_seconds",
    "Time from the arrival of an RPC of Temporal clients and workers to its response. Long polls are not included.",
    ["rpc"],
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    registry=REGISTRY,
)
TASK_QUEUE_BACKLOG = Gauge(
    "perdure_task_queue_backlog",
    "Tasks that wait for a worker, by task queue and kind (workflow, activity, or nexus), at the operator that owns the queue.",
    ["namespace", "task_queue", "kind"],
    registry=REGISTRY,
)
TASK_QUEUE_AGE = Gauge(
    "perdure_task_queue_backlog_age_seconds",
    "How long the oldest task of a task queue has waited for a worker.",
    ["namespace", "task_queue", "kind"],
    registry=REGISTRY,
)
TASK_QUEUE_POLLERS = Gauge(
    "perdure_task_queue_pollers",
    "Workers that have polled a task queue in the last minutes; 0 with a backlog: no worker runs.",
    ["namespace", "task_queue", "kind"],
    registry=REGISTRY,
)
TASK_QUEUE_WAIT = Histogram(
    "perdure_task_queue_wait_seconds",
    "How long tasks waited in their task queue until a worker got them.",
    ["namespace", "task_queue", "kind"],
    buckets=(0.1, 1, 10, 60, 600),
    registry=REGISTRY,
)
_WAITED_QUEUES = Names()


@dataclass(slots=True, kw_only=True)
class TaskQueueLoad:
    """The load of a task queue, over all worker versions."""

    namespace: str
    name: str
    kind: str
    """`workflow`, `activity`, or `nexus`."""
    backlog: int = 0
    """Waiting tasks."""
    age: float = 0.0
    """How long the oldest one has waited, in seconds."""
    pollers: int = 0
    """Workers that poll it."""


def show_task_queues(loads: Iterable[TaskQueueLoad]) -> None:
    """Set the load of all task queues that this operator owns."""
    for gauge in (TASK_QUEUE_BACKLOG, TASK_QUEUE_AGE, TASK_QUEUE_POLLERS):
        gauge.clear()
    names, oldest = Names(), defaultdict[tuple[str, str, str], float](float)
    for load in sorted(loads, key=lambda each: (-each.age, -each.pollers)):
        labels = load.namespace, names.label(load.namespace, load.name), load.kind
        TASK_QUEUE_BACKLOG.labels(*labels).inc(load.backlog)
        TASK_QUEUE_POLLERS.labels(*labels).inc(load.pollers)
        oldest[labels] = max(oldest[labels], load.age)
    for labels, age in oldest.items():
        TASK_QUEUE_AGE.labels(*labels).set(age)


def observe_task_wait(namespace: str, task_queue: str, kind: str, seconds: float) -> None:
    """Measure how long a task waited for its worker."""
    TASK_QUEUE_WAIT.labels(namespace, _WAITED_QUEUES.label(namespace, task_queue), kind).observe(seconds)


CERTIFICATE_EXPIRY = Gauge(
    "perdure_temporal_certificate_expiry_timestamp_seconds",
    "When the certificate that the Temporal frontend serves expires, in Unix time; not set without TLS.",
    registry=REGISTRY,
)
TOKEN_REVIEWS = Counter(
    "perdure_temporal_token_reviews",
    "Reviews of unknown tokens, by outcome: Valid, Invalid, Unavailable, or Limited if the API server was not called.",
    ["outcome"],
    registry=REGISTRY,
)
TEMPORAL_CONNECTIONS_CLOSED = Counter(
    "perdure_temporal_connections_closed",
    "Connections to the Temporal frontend that were closed: the client sent no valid token in time, others needed them, or the "
    "operator has lost its Lease.",
    registry=REGISTRY,
)
DEAD_LETTERS = Counter("perdure_dead_letters", "Activities that were stored as DeadLetters.", registry=REGISTRY)
REDRIVES = Counter("perdure_dead_letter_redrives", "Re-driven DeadLetters.", registry=REGISTRY)
CIRCUITS = Gauge(
    "perdure_circuit_state",
    "State of the circuit breaker of a RetryPolicy: 1 for the current state (Closed, Open, HalfOpen), else 0.",
    ["namespace", "retry_policy", "state"],
    registry=REGISTRY,
)
CIRCUIT_CHANGES = Counter(
    "perdure_circuit_changes", "State changes of circuit breakers, by the new state.", ["state"], registry=REGISTRY
)
CIRCUIT_CONFLICTS = Counter(
    "perdure_circuit_conflicts",
    "Writes to RetryPolicies that were repeated after a conflict.",
    registry=REGISTRY,
)
CIRCUIT_STATES = ("Closed", "Open", "HalfOpen")


def show_circuit(namespace: str, policy: str, state: str | None) -> None:
    """Set the state of a RetryPolicy's circuit breaker; None: it has none."""
    if state is None:
        forget_circuit(namespace, policy)
        return
    for each in CIRCUIT_STATES:
        CIRCUITS.labels(namespace=namespace, retry_policy=policy, state=each).set(each == state)


def forget_circuit(namespace: str, policy: str) -> None:
    """Remove the metrics of a RetryPolicy."""
    for state in CIRCUIT_STATES:
        with suppress(KeyError):
            CIRCUITS.remove(namespace, policy, state)


LIMIT_HOLDERS = Gauge(
    "perdure_limit_holders",
    "Runs and activities that hold a WorkflowLimit, with all keys together.",
    ["namespace", "limit"],
    registry=REGISTRY,
)
LIMIT_WAITERS = Gauge(
    "perdure_limit_waiters",
    "Runs and activities that wait for a WorkflowLimit, with all keys together; 500 at most.",
    ["namespace", "limit"],
    registry=REGISTRY,
)
LIMIT_CONFLICTS = Counter(
    "perdure_limit_conflicts",
    "Writes to WorkflowLimits that were repeated after a conflict.",
    registry=REGISTRY,
)


def show_limit(namespace: str, limit: str, *, holders: int, waiters: int) -> None:
    """Set how many hold a WorkflowLimit, and how many wait for it."""
    LIMIT_HOLDERS.labels(namespace=namespace, limit=limit).set(holders)
    LIMIT_WAITERS.labels(namespace=namespace, limit=limit).set(waiters)


def forget_limit(namespace: str, limit: str) -> None:
    """Remove the metrics of a WorkflowLimit."""
    for gauge in (LIMIT_HOLDERS, LIMIT_WAITERS):
        with suppress(KeyError):
            gauge.remove(namespace, limit)


SCHEDULES_KNOWN = Gauge("perdure_schedules_known", "Schedules in the memory of the operator.", registry=REGISTRY)
SCHEDULE_ACTIONS = Counter(
    "perdure_schedule_actions",
    "Processed times of Schedules, by outcome: Started, MissedCatchupWindow, OverlapSkipped, BufferDropped or Refused.",
    ["namespace", "outcome"],
    registry=REGISTRY,
)
SCHEDULE_DELAY = Histogram(
    "perdure_schedule_action_delay_seconds",
    "Delay between the time of a Schedule and the creation of its run; delays of more than 5 minutes are not included.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
    registry=REGISTRY,
)


FINISHED_RUNS = Gauge("perdure_finished_runs", "Finished runs.", ["namespace"], registry=REGISTRY)
FINISHED_BYTES = Gauge(
    "perdure_finished_runs_bytes",
    "Bytes of the finished runs, including HistorySegments and large payloads.",
    ["namespace"],
    registry=REGISTRY,
)
FINISHED_USED = Gauge(
    "perdure_finished_runs_limit_used_ratio",
    "How much of the limits of finished runs of all namespaces together is used, by number or by bytes, whichever is more; 1 is "
    "the limit, beyond which the namespaces with the most lose their oldest ones.",
    registry=REGISTRY,
)
FINISHED_EXTRA = Counter(
    "perdure_finished_runs_beyond_history_limit",
    "Finished runs that were deleted because of the history limits in the WorkflowDefaults of their namespace.",
    ["namespace"],
    registry=REGISTRY,
)
FINISHED_REMOVED = Counter(
    "perdure_finished_runs_removed",
    "Finished runs that were deleted before their TTL because their namespace had too many.",
    ["namespace"],
    registry=REGISTRY,
)


ARCHIVED_RUNS = Counter(
    "perdure_archived_runs",
    "Finished runs that were given to the archive, by outcome: Archived, or Rejected if it cannot be stored.",
    ["namespace", "outcome"],
    registry=REGISTRY,
)
ARCHIVE_WAITING = Gauge(
    "perdure_archive_waiting_runs", "Finished runs that this operator has not archived yet.", registry=REGISTRY
)
ARCHIVE_UP = Gauge(
    "perdure_archive_up",
    "Whether this operator can use the archive: 1 or 0; also 0 without an archive.",
    registry=REGISTRY,
)
ARCHIVE_ENABLED = Gauge("perdure_archive_enabled", "Whether this operator has an archive: 1 or 0.", registry=REGISTRY)
ARCHIVE_DELETED = Counter(
    "perdure_archive_deleted_unarchived_runs",
    "Finished runs that were deleted although they are not archived, because their namespace has too many and "
    "`archive.onUnavailable` is Delete.",
    ["namespace"],
    registry=REGISTRY,
)
ARCHIVE_REQUESTS = Histogram(
    "perdure_archive_request_duration_seconds",
    "Duration of requests to the archive, by operation, including the wait for a connection.",
    ["operation"],
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    registry=REGISTRY,
)
RESULT_CACHE = Counter(
    "perdure_result_cache",
    "Attempts of activities with `cache` that found an earlier result (Hit) or none (Miss), and new results that were stored "
    "(Stored) or could not be (NotStored).",
    ["namespace", "outcome"],
    registry=REGISTRY,
)
ARTIFACT_DELETIONS = Counter(
    "perdure_artifact_deletions",
    "Deletions of the artifacts of a run from a store, by outcome: Deleted or Abandoned; and Failed for each failed pod.",
    ["outcome"],
    registry=REGISTRY,
)
LOG_ARCHIVES = Counter(
    "perdure_log_archives",
    "Logs of successful attempts of activities that archive their logs, by outcome: Stored or NotStored.",
    ["namespace", "outcome"],
    registry=REGISTRY,
)
STORED_RESULTS = Counter(
    "perdure_stored_results",
    "Results of activities that are stored in an artifact store, because they are too large for the history.",
    ["namespace"],
    registry=REGISTRY,
)


def show_finished(namespace: str, runs: int, size: int) -> None:
    """Set the number and the size of the finished runs of a namespace; remove the metrics of a namespace without any."""
    if runs:
        FINISHED_RUNS.labels(namespace).set(runs)
        FINISHED_BYTES.labels(namespace).set(size)
        return
    for gauge in (FINISHED_RUNS, FINISHED_BYTES):
        with suppress(KeyError):
            gauge.remove(namespace)


def request_tracing() -> aiohttp.TraceConfig:
    """Create a configuration for a session of the API server's client that measures each request until its response begins."""
    config = aiohttp.TraceConfig()
    config.on_request_start.append(_start)
    config.on_request_end.append(_end)
    config.on_request_exception.append(_fail)
    return config


async def _start(_: aiohttp.ClientSession, request: SimpleNamespace, __: aiohttp.TraceRequestStartParams) -> None:
    request.started = monotonic()


async def _end(_: aiohttp.ClientSession, request: SimpleNamespace, end: aiohttp.TraceRequestEndParams) -> None:
    _observe_request(request, end.method, str(end.response.status))


async def _fail(_: aiohttp.ClientSession, request: SimpleNamespace, end: aiohttp.TraceRequestExceptionParams) -> None:
    _observe_request(request, end.method, _NO_ANSWER)


def _observe_request(request: SimpleNamespace, method: str, code: str) -> None:
    API_REQUESTS.labels(method=method, code=code).observe(monotonic() - request.started)


async def measure_event_loop() -> NoReturn:
    """Measure once a second how late the event loop wakes a task, until cancelled."""
    while True:
        before = monotonic()
        await asyncio.sleep(1)
        EVENT_LOOP_LAG.observe(max(0.0, monotonic() - before - 1))


def render() -> bytes:
    """Return all metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
