"""Metrics, for Prometheus. Labels are namespaces and outcomes, never single runs."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGISTRY = CollectorRegistry()

RUNS = Counter(
    "perdure_workflow_runs", "Runs that have closed, by outcome.", ["namespace", "outcome"], registry=REGISTRY
)
ATTEMPTS = Counter("perdure_activity_attempts", "Attempts that have ended, by outcome.", ["outcome"], registry=REGISTRY)
COMMITS = Counter("perdure_commits", "Status writes of runs: one is one transition.", registry=REGISTRY)
SEGMENTS = Counter("perdure_history_segments", "HistorySegments that were sealed.", registry=REGISTRY)
COMMIT_CONFLICTS = Counter(
    "perdure_commit_conflicts", "Passes that found the run changed and were done again.", registry=REGISTRY
)
PASSES = Histogram(
    "perdure_pass_duration_seconds",
    "How long one pass over a run takes, writes included.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    registry=REGISTRY,
)
OPERATIONS = Counter(
    "perdure_operations",
    "Operations that were answered, by what was asked and the answer.",
    ["verb", "outcome"],
    registry=REGISTRY,
)
QUEUE_DEPTH = Gauge("perdure_queue_depth", "Runs that wait for a pass.", registry=REGISTRY)
TIMERS = Gauge("perdure_timers", "Runs that have a timer armed.", registry=REGISTRY)
RUNS_KNOWN = Gauge("perdure_runs_known", "Runs this operator holds in memory.", registry=REGISTRY)
WATCH_LAG = Counter(
    "perdure_watch_missed", "Objects that a sweep found changed though no watch event had told.", registry=REGISTRY
)

SCHEDULES_KNOWN = Gauge("perdure_schedules_known", "Schedules this operator holds in memory.", registry=REGISTRY)
SCHEDULE_ACTIONS = Counter(
    "perdure_schedule_actions",
    "Times of schedules that were dealt with: Started, MissedCatchupWindow, OverlapSkipped, BufferDropped or Refused.",
    ["namespace", "outcome"],
    registry=REGISTRY,
)
SCHEDULE_DELAY = Histogram(
    "perdure_schedule_action_delay_seconds",
    "How long after a run was due it was made; not of what waited for an earlier run.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
    registry=REGISTRY,
)


def render() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
