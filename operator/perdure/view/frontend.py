"""Worker deployments, task queues, workers, and batches, read from the JSON of Temporal's HTTP API."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from rich.text import Text

from perdure.api.json_values import mapping, mappings
from perdure.api.times import read_kubernetes_time
from perdure.view import text
from perdure.view.page import Page, elapsed
from perdure.view.tables import table

Json = Mapping[str, Any]


def word(value: str, prefix: str) -> str:
    """The word of an enumeration as people write it: ``WORKER_STATUS_SHUTTING_DOWN`` is `ShuttingDown`."""
    return "".join(part.capitalize() for part in value.removeprefix(prefix).split("_")) if value else ""


def version(of: Json | None) -> str:
    """A version of a worker deployment; empty if there is none."""
    return str((of or {}).get("buildId") or "")


def _ramping(routing: Json) -> str:
    ramping = version(routing.get("rampingDeploymentVersion"))
    return f"{ramping} ({routing.get('rampingVersionPercentage', 0):g} %)" if ramping else ""


def _age(time: str | None, page: Page) -> str:
    length = elapsed(read_kubernetes_time(time) if time else None, None, page.now)
    return text.age(length) if length is not None else ""


def _length(value: str | None) -> str:
    """A duration of the API, such as ``3.5s``."""
    return text.duration(timedelta(seconds=float(value.removesuffix("s")))) if value else ""


def deployments(found: Iterable[Json], page: Page) -> list[Text]:
    """Show worker deployments, one line each; the first line is the heading.

    Args:
        found: The worker deployments, each with its ``workerDeployment`` if a WorkerDeployment manages its workers.
        page: The page for the output.
    """
    rows = []
    for each in found:
        routing = each.get("routingConfig") or {}
        latest = version((each.get("latestVersionSummary") or {}).get("deploymentVersion"))
        current = version(routing.get("currentDeploymentVersion"))
        managed = each.get("workerDeployment")
        reason, pods = ("", "") if managed is None else (_ready(managed), _ready_pods(managed))
        since = each.get("createTime") or mapping(mapping(managed).get("metadata")).get("creationTimestamp")
        rows.append((each["name"], current, _ramping(routing), latest, reason, pods, _age(since, page)))
    return table(("NAME", "CURRENT", "RAMPING", "LATEST", "REASON", "PODS", "AGE"), rows, page)


def deployment(info: Json, managed: Json | None, page: Page) -> list[Text]:
    """Show a worker deployment and its versions.

    Args:
        info: The worker deployment.
        managed: The WorkerDeployment that manages its workers, if there is one.
        page: The page for the output.
    """
    routing = info.get("routingConfig") or {}
    status = mapping(mapping(managed).get("status"))
    facts = (
        ("Name", info["name"]),
        ("Current", version(routing.get("currentDeploymentVersion"))),
        ("Ramping", _ramping(routing)),
        ("Manager", info.get("managerIdentity", "")),
        ("Modified by", info.get("lastModifierIdentity", "")),
        *((each["type"], _condition(each)) for each in mappings(status.get("conditions"))),
    )
    polled = {version(each.get("deploymentVersion")): each for each in info.get("versionSummaries") or ()}
    started = {str(each["buildId"]): each for each in mappings(status.get("versions"))}
    builds = started | polled  # in this order
    rows = [_version_row(build, polled.get(build, {}), started.get(build, {}), page) for build in builds]
    heading = ("BUILD-ID", "STATUS", "DRAINAGE", "PODS", "OPEN-RUNS", "AGE")
    problems = [Text(f"{build}: {each['message']}") for build, each in started.items() if each.get("message")]
    return [*_facts(facts, page), Text(""), *table(heading, rows, page), *problems]


def _version_row(build: str, polled: Json, started: Json, page: Page) -> tuple[str, ...]:
    """The cells of a version, as the frontend and the WorkerDeployment know it; either may not."""
    return (
        build,
        word(polled.get("status", ""), "WORKER_DEPLOYMENT_VERSION_STATUS_") or started.get("phase", ""),
        word(polled.get("drainageStatus", ""), "VERSION_DRAINAGE_STATUS_"),
        f"{started.get('readyReplicas', 0)}/{started.get('replicas', 0)}" if started else "",
        str(started.get("openRuns", "")),
        _age(polled.get("createTime"), page),
    )


def _ready_pods(managed: Json) -> str:
    """The number of ready pods of all versions of a WorkerDeployment."""
    return str(mapping(managed.get("status")).get("readyReplicas", 0))


def _ready(managed: Json) -> str:
    """The reason of the condition `Ready` of a WorkerDeployment."""
    conditions = mappings(mapping(managed.get("status")).get("conditions"))
    return next((str(each["reason"]) for each in conditions if each["type"] == "Ready"), "")


def _condition(of: Json) -> str:
    return f"{of['reason']}: {of['message']}" if of.get("message") else str(of["reason"])


def task_queue(name: str, by_kind: Mapping[str, Json], page: Page) -> list[Text]:
    """Show a task queue.

    Args:
        name: The name of the task queue.
        by_kind: The description for each kind of tasks.
        page: The page for the output.
    """
    rows = []
    for kind, found in by_kind.items():
        stats = found.get("stats") or {}
        rows.append(
            (
                kind,
                str(stats.get("approximateBacklogCount", 0)),
                _length(stats.get("approximateBacklogAge")),
                f"{stats.get('tasksAddRate', 0):.3g}",
                f"{stats.get('tasksDispatchRate', 0):.3g}",
                _limit(found),
                str(len(found.get("pollers") or ())),
            )
        )
    heading = ("KIND", "BACKLOG", "BACKLOG-AGE", "ADDED/S", "DISPATCHED/S", "LIMIT/S", "POLLERS")
    lines = [*_facts((("Task queue", name), *_versions(by_kind)), page), Text(""), *table(heading, rows, page)]
    pollers = [
        (
            each.get("identity", ""),
            kind,
            version(each.get("deploymentOptions")),
            _age(each.get("lastAccessTime"), page),
        )
        for kind, found in by_kind.items()
        for each in found.get("pollers") or ()
    ]
    if pollers:
        lines += [Text(""), *table(("POLLER", "KIND", "BUILD-ID", "LAST-POLL"), pollers, page)]
    weights = [
        (key, kind, f"{weight:g}")
        for kind, found in by_kind.items()
        for key, weight in ((found.get("config") or {}).get("fairnessWeightOverrides") or {}).items()
    ]
    if weights:
        lines += [Text(""), *table(("FAIRNESS-KEY", "KIND", "WEIGHT"), weights, page)]
    return lines


def _limit(found: Json) -> str:
    limit = found.get("effectiveRateLimit") or {}
    source = word(limit.get("rateLimitSource", ""), "RATE_LIMIT_SOURCE_")
    configured = (found.get("config") or {}).get("queueRateLimit", {}).get("rateLimit", {})
    if "requestsPerSecond" in configured:
        return f"{configured['requestsPerSecond']:g} (Api)"
    return f"{limit['requestsPerSecond']:g} ({source})" if source == "Worker" and "requestsPerSecond" in limit else ""


def _versions(by_kind: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    info = next((found["versioningInfo"] for found in by_kind.values() if found.get("versioningInfo")), None)
    if info is not None:
        yield "Current", version(info.get("currentDeploymentVersion"))
        yield "Ramping", _ramping(info)


def workers(found: Iterable[Json], page: Page) -> list[Text]:
    """Show workers, one line each; the first line is the heading."""
    rows = [
        (
            each.get("workerInstanceKey", ""),
            each.get("workerIdentity", ""),
            each.get("taskQueue", ""),
            version(each.get("deploymentVersion")),
            word(each.get("status", ""), "WORKER_STATUS_"),
            " ".join(filter(None, (each.get("sdkName"), each.get("sdkVersion")))),
            _age(each.get("startTime"), page),
        )
        for each in found
    ]
    return table(("KEY", "IDENTITY", "TASK-QUEUE", "BUILD-ID", "STATUS", "SDK", "AGE"), rows, page)


_SLOTS = {
    "workflow": "workflowTaskSlotsInfo",
    "activity": "activityTaskSlotsInfo",
    "local activity": "localActivitySlotsInfo",
    "Nexus": "nexusTaskSlotsInfo",
}


def worker(beat: Json, page: Page) -> list[Text]:
    """Show what a worker has reported with its last heartbeat."""
    host = beat.get("hostInfo") or {}
    facts = (
        ("Key", beat.get("workerInstanceKey", "")),
        ("Identity", beat.get("workerIdentity", "")),
        ("Task queue", beat.get("taskQueue", "")),
        ("Status", word(beat.get("status", ""), "WORKER_STATUS_")),
        ("Build ID", version(beat.get("deploymentVersion"))),
        ("SDK", " ".join(filter(None, (beat.get("sdkName"), beat.get("sdkVersion"))))),
        ("Host", host.get("hostName", "")),
        ("Process", host.get("processId", "")),
        ("Started", _age(beat.get("startTime"), page)),
        ("Last heartbeat", _age(beat.get("heartbeatTime"), page)),
    )
    rows = [
        (
            kind,
            str(slots.get("currentUsedSlots", 0)),
            str(slots.get("currentAvailableSlots", 0)),
            str(slots.get("totalProcessedTasks", 0)),
            str(slots.get("totalFailedTasks", 0)),
        )
        for kind, field in _SLOTS.items()
        if (slots := beat.get(field))
    ]
    lines = _facts(facts, page)
    return [*lines, Text(""), *table(("SLOTS", "USED", "FREE", "DONE", "FAILED"), rows, page)] if rows else lines


def batches(found: Iterable[Json], page: Page) -> list[Text]:
    """Show batches, one line each; the first line is the heading."""
    rows = [
        (
            each["jobId"],
            word(each.get("operationType", ""), "BATCH_OPERATION_TYPE_"),
            word(each.get("state", ""), "BATCH_OPERATION_STATE_"),
            _age(each.get("startTime"), page),
        )
        for each in found
    ]
    return table(("JOB-ID", "OPERATION", "STATE", "AGE"), rows, page)


def batch(found: Json, page: Page) -> list[Text]:
    """Show the progress of a batch."""
    total = int(found.get("totalOperationCount", 0))
    done, failed = (int(found.get(f"{name}OperationCount", 0)) for name in ("complete", "failure"))
    facts = (
        ("Job ID", found["jobId"]),
        ("Operation", word(found.get("operationType", ""), "BATCH_OPERATION_TYPE_")),
        ("State", word(found.get("state", ""), "BATCH_OPERATION_STATE_")),
        ("Runs", f"{total}: {done} done, {failed} failed, {total - done - failed} left"),
        ("Reason", found.get("reason", "")),
        ("Query", found.get("query", "")),
        ("Identity", found.get("identity", "")),
        ("Started", _age(found.get("startTime"), page)),
        ("Closed", _age(found.get("closeTime"), page)),
    )
    return _facts(facts, page)


def _facts(facts: Sequence[tuple[str, str]], page: Page) -> list[Text]:
    """Lines with a name and a value; facts without a value are left out."""
    shown = [(name, text.one_line(value)) for name, value in facts if value]
    width = max(len(name) for name, _ in shown)
    del page
    return [Text(f"{name}:".ljust(width + 3) + value) for name, value in shown]
