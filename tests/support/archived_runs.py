"""Finished runs for the archive."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.archive.rows import ArchivedRun, ArchiveSettings, RunRef, archived
from support.recorded_runs import recorded

Json = dict[str, Any]
RUN: Json = recorded("whole")
NAMESPACE: str = RUN["metadata"]["namespace"]
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def finished(
    name: str,
    *,
    begin: datetime = BEGIN,
    seconds: float = 60,
    namespace: str = NAMESPACE,
    status: str = "Completed",
    version: str = "10",
    commit: int = 5,
    attributes: Json | None = None,
    **code: Any,
) -> Json:
    """A finished run of an SDK, with its status as values."""
    run = deepcopy(RUN)
    run["metadata"] |= {"name": name, "uid": f"uid-{name}", "namespace": namespace, "resourceVersion": version}
    run["metadata"].pop("annotations", None)
    run["spec"].pop("workflowId", None)
    closed = begin + timedelta(seconds=seconds)
    run["status"] |= {"phase": status, "completionTime": _text(closed)}
    run["status"]["commit"] = {"number": commit, "uid": f"uid-{name}", "digest": "sha256:0"}
    run["status"]["state"] |= {
        "status": status,
        "startTime": _text(begin),
        "closeTime": _text(closed),
        "code": {"workflowType": "Order", "taskQueue": "orders", "searchAttributes": attributes or {}, **code},
    }
    return run


def row(run: Json, events: list[Json] | None = None) -> ArchivedRun:
    """What the archive stores of a run."""
    known = events if events is not None else run["status"]["history"].get("events") or []
    return archived(run, known, ArchiveSettings())


def ref(name: str, namespace: str = NAMESPACE) -> RunRef:
    """How the archive looks for the run that `finished` has made."""
    return RunRef(namespace, name, name, f"uid-{name}", _text(BEGIN + timedelta(seconds=60)))


def _text(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
