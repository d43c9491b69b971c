"""The rows of the lists: limits, retry policies, dead letters, Workflows, runs, Schedules, Operations. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.api.json_values import Json, integer, mapping, mappings, text
from perdure.api.phases import listed_phase
from perdure.api.times import read_kubernetes_time
from perdure.kube.responses import TableRow
from perdure.view.deadletters import redriven
from perdure.view.runs.failure import summary as summary_of
from perdure.view.schedules import is_paused, state_of, times_of

_REDRIVEN = {"True": "Succeeded", "False": "Failed", "Unknown": "Running"}

_ANSWERED = {"Complete": "Accepted", "Failed": "Refused"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun:
    """A run or an activity in the queue of a limit."""

    run: str
    step: str
    key: str
    priority: int
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An object: its name, whether it is ready, and its facts by the headings of the list."""

    name: str
    word: str
    message: str
    facts: Mapping[str, Any]
    created: datetime | None
    holders: Sequence[QueuedRun] = ()
    waiters: Sequence[QueuedRun] = ()


def limit(obj: Json) -> Row:
    """Read a WorkflowLimit."""
    spec, status = mapping(obj.get("spec")), mapping(obj.get("status"))
    capacity = integer(spec.get("capacity"))
    facts = {
        "capacity": 1 if capacity is None else capacity,
        "held": integer(status.get("held")) or 0,
        "waiting": integer(status.get("waiting")) or 0,
    }
    holders, waiters = (tuple(map(_entry, mappings(status.get(key)))) for key in ("holders", "waiters"))
    return _row(obj, facts, holders=holders, waiters=waiters)


def _entry(entry: Json) -> QueuedRun:
    return QueuedRun(
        run=text(entry.get("run")),
        step=text(entry.get("step")),
        key=text(entry.get("key")),
        priority=integer(entry.get("priority")) or 0,
        since=read_kubernetes_time(entry.get("since")),
    )


def retry_policy(obj: Json) -> Row:
    """Read a RetryPolicy."""
    spec, status = mapping(obj.get("spec")), mapping(obj.get("status"))
    circuit = mapping(status.get("circuit"))
    breaker = mapping(spec.get("circuitBreaker"))
    facts = {
        "waits": text(status.get("waits")),
        "circuit": text(circuit.get("state")) or ("Closed" if breaker else ""),
        "failures": integer(circuit.get("consecutiveFailures")) or 0,
        "threshold": integer(breaker.get("failureThreshold")),
        "until": read_kubernetes_time(circuit.get("openUntil")),
    }
    return _row(obj, facts)


def dead_letter(obj: Json) -> Row:
    """Read a DeadLetter."""
    spec = mapping(obj.get("spec"))
    facts = {
        "run": text(mapping(spec.get("workflowRun")).get("name")),
        "step": text(spec.get("step")),
        "activity": text(spec.get("activity")),
        "attempts": integer(spec.get("attempts")) or 0,
        "failure": summary_of(mapping(spec.get("failure"))),
        "failed": read_kubernetes_time(spec.get("failedTime")),
    }
    return _row(obj, facts, word=_REDRIVEN.get(redriven(obj), "Not re-driven"))


def workflow(obj: Json) -> Row:
    """Read a Workflow."""
    spec = mapping(obj.get("spec"))
    facts = {
        "steps": len(mappings(spec.get("steps"))),
        "blocks": len(mappings(spec.get("blocks"))),
        "activities": len(mappings(spec.get("activities"))),
    }
    return _row(obj, facts)


def operation(obj: Json) -> Row:
    """Read an Operation."""
    spec, status = mapping(obj.get("spec")), mapping(obj.get("status"))
    target, result = mapping(spec.get("target")), mapping(status.get("result"))
    answer = next((each for each in mappings(status.get("conditions")) if each.get("status") == "True"), {})
    facts = {
        "kind": text(target.get("kind")),
        "target": text(target.get("name")),
        "run": text(result.get("workflowRun")),
        "answer": text(answer.get("message")),
    }
    return _row(obj, facts, word=_ANSWERED.get(text(status.get("phase")), "Pending"))


def run(row: TableRow) -> Row:
    """Read a WorkflowRun in a table."""
    cells = row.cells
    facts = {
        "workflow": text(cells.get("Workflow")),
        "progress": text(cells.get("Progress")),
        "reason": text(cells.get("Reason")),
        "completed": text(cells.get("Completed")),
    }
    return _row({"metadata": row.metadata}, facts, word=listed_phase(row.metadata, text(cells.get("Phase"))))


def archived_run(obj: Json) -> Row:
    """Read a WorkflowRun in a list of the archive."""
    spec, status = mapping(obj.get("spec")), mapping(obj.get("status"))
    reference = mapping(spec.get("workflow"))
    facts = {
        "workflow": text(reference.get("name")) or text(reference.get("type")),
        "completed": read_kubernetes_time(status.get("completionTime")),
        "failure": text(mapping(status.get("failure")).get("message")),
    }
    return _row(obj, facts, word=text(status.get("phase")))


def newest_first(found: Iterable[TableRow]) -> list[TableRow]:
    """Sort the objects of a table by age; those of the same age by name."""
    by_name = sorted(found, key=lambda row: row.metadata.get("name", ""))
    return sorted(by_name, key=lambda row: row.metadata.get("creationTimestamp", ""), reverse=True)


def schedule(obj: Json) -> Row:
    """Read a Schedule."""
    status = mapping(obj.get("status"))
    summary, zone = times_of(dict(obj))
    upcoming = status.get("nextScheduledTimes")
    next_times = (
        [time for each in upcoming if (time := read_kubernetes_time(each))] if isinstance(upcoming, list) else []
    )
    facts = {
        "times": summary,
        "zone": zone,
        "paused": is_paused(dict(obj)),
        "last": read_kubernetes_time(status.get("lastScheduledTime")),
        "next": next_times[:3],
        "active": integer(status.get("active")) or 0,
    }
    return _row(obj, facts, word=state_of(dict(obj)))


def _row(
    obj: Json,
    facts: Mapping[str, Any],
    *,
    word: str | None = None,
    holders: Sequence[QueuedRun] = (),
    waiters: Sequence[QueuedRun] = (),
) -> Row:
    metadata = mapping(obj.get("metadata"))
    conditions = mappings(mapping(obj.get("status")).get("conditions"))
    ready = next((each for each in conditions if each.get("type") == "Ready"), {})
    words = {"True": "Ready", "False": "Not ready"}
    return Row(
        name=text(metadata.get("name")),
        word=words.get(text(ready.get("status")), "Pending") if word is None else word,
        message=text(ready.get("message")),
        facts=facts,
        created=read_kubernetes_time(metadata.get("creationTimestamp")),
        holders=holders,
        waiters=waiters,
    )
