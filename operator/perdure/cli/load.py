"""The load: open runs by Workflow, and the operators, read from the cluster and shown with a line for each."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from perdure.api.json_values import mapping, mappings
from perdure.api.phases import CLOSED, workflow_of
from perdure.cli.doctor import find_deployment
from perdure.client.errors import ClientError
from perdure.client.selection import created, phase_of
from perdure.kube import paths
from perdure.lazy import lazily

with lazily():
    from perdure.view import tables
    from perdure.view import text as view_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from rich.text import Text

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object
    from perdure.view.page import Page


_USAGE = "/apis/metrics.k8s.io/v1beta1"
_PORT = 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLoad:
    """The state of one operator."""

    name: str
    """Name of its pod."""
    usage: Object
    """CPU and memory of its containers from the metrics server; empty if it does not respond."""
    metrics: str
    """Its metrics from `/metrics`; empty if they cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The open runs, and the operators."""

    runs: list[Object]
    operators: list[OperatorLoad]


async def read_load(cluster: Cluster, system: str, *, everywhere: bool) -> Load:
    """Read the open runs, and the load of the operators.

    Args:
        cluster: The cluster.
        system: Namespace of the operators.
        everywhere: Whether to read the runs of all namespaces.

    Raises:
        CliError: The runs cannot be read.
    """
    selector = ",".join(f"status.phase!={phase}" for phase in sorted(CLOSED))
    runs = await cluster.list("workflowruns", everywhere=everywhere, fieldSelector=selector)
    return Load(runs=runs, operators=await _or_empty(_operators(cluster, system), []))


async def _operators(cluster: Cluster, system: str) -> list[OperatorLoad]:
    api = cluster.diagnosis
    deployment = await find_deployment(api, system)
    if deployment is None:
        return []
    selector = {"labelSelector": deployment.selector}
    pods = await api.list(paths.path(paths.CORE, system, "pods"), **selector)
    usage = await _or_empty(api.list(paths.path(_USAGE, system, "pods"), **selector), [])
    by_name = {each["metadata"]["name"]: each for each in usage}
    names = sorted(str(pod["metadata"]["name"]) for pod in pods)
    urls = (paths.path(paths.CORE, system, "pods", f"{name}:{_PORT}", "proxy/metrics") for name in names)
    texts = await asyncio.gather(*(_or_empty(api.text(url), "") for url in urls))
    return [
        OperatorLoad(name=name, usage=by_name.get(name, {}), metrics=text or "")
        for name, text in zip(names, texts, strict=True)
    ]


async def _or_empty(answer: Awaitable[Any], empty: Any) -> Any:
    """Return a response; `empty` if the user has no permission, or there is no response."""
    try:
        return await answer
    except ClientError:
        return empty


# Figures, and lines

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([numkKMGT]?i?)")
_UNITS = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
_METRICS = {
    "shards": "perdure_fleet_shards",
    "runs": "perdure_runs_known",
    "queue": "perdure_queue_depth",
    "timers": "perdure_timers",
    "memory": "process_resident_memory_bytes",
}


@dataclass(slots=True, kw_only=True)
class WorkflowLoad:
    """The open runs of one Workflow."""

    namespace: str
    workflow: str
    open: int = 0
    pending: int = 0
    paused: int = 0
    activities: int = 0
    """Running."""
    retrying: int = 0
    oldest: timedelta = timedelta(0)


def workflows(runs: Iterable[Mapping[str, Any]], now: datetime) -> list[WorkflowLoad]:
    """Count open runs by Workflow, the Workflow with the most runs first."""
    found: dict[tuple[str, str], WorkflowLoad] = {}
    for run in runs:
        key = str(run["metadata"]["namespace"]), workflow_of(mapping(run.get("spec")))
        counted = found.setdefault(key, WorkflowLoad(namespace=key[0], workflow=key[1]))
        states = [each.get("state") for each in mappings(mapping(run.get("status")).get("pendingActivities"))]
        counted.open += 1
        counted.pending += phase_of(dict(run)) == "Pending"
        counted.paused += phase_of(dict(run)) == "Paused"
        counted.activities += sum(state in {"Started", "CancelRequested"} for state in states)
        counted.retrying += sum(state in {"BackingOff", "CircuitOpen"} for state in states)
        counted.oldest = max(counted.oldest, now - created(dict(run)))
    return sorted(found.values(), key=lambda each: (-each.open, each.namespace, each.workflow))


def workflows_table(counted: Sequence[WorkflowLoad], page: Page, *, namespaces: bool) -> list[Text]:
    """Show the open runs of each Workflow; lines, of which the first one is the heading."""
    heading = ["WORKFLOW", "OPEN", "PENDING", "PAUSED", "ACTIVITIES", "RETRYING", "OLDEST"]
    rows = [
        [
            each.workflow,
            *map(str, (each.open, each.pending, each.paused, each.activities, each.retrying)),
            view_text.age(each.oldest),
        ]
        for each in counted
    ]
    return tables.table(heading, rows, page, namespaces=[each.namespace for each in counted] if namespaces else None)


def operators(operators: Iterable[OperatorLoad], page: Page) -> list[Text]:
    """Show the load of each operator; lines, of which the first one is the heading."""
    heading = ["OPERATOR", "CPU", "MEMORY", "SHARDS", "RUNS", "QUEUE", "TIMERS"]
    rows = []
    for each in operators:
        known = _figures(each)
        cpu = f"{known['cpu'] * 1000:.0f}m" if "cpu" in known else ""
        memory = f"{known['memory'] / 2**20:.0f}Mi" if "memory" in known else ""
        rest = [f"{known[key]:.0f}" if key in known else "" for key in ("shards", "runs", "queue", "timers")]
        rows.append([each.name, cpu, memory, *rest])
    return tables.table(heading, rows, page)


def as_data(counted: Iterable[WorkflowLoad], operators: Iterable[OperatorLoad]) -> dict[str, Any]:
    """Return everything for programs: CPU in cores, memory in bytes, ages in seconds."""
    return {
        "workflows": [{**asdict(each), "oldest": round(each.oldest.total_seconds())} for each in counted],
        "operators": [{"name": each.name, **_figures(each)} for each in operators],
    }


def _figures(load: OperatorLoad) -> dict[str, float]:
    """Return the figures of an operator; the metrics server has the memory of all its containers."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - importing it takes 40 ms

    values = dict[str, float]()
    for family in text_string_to_metric_families(load.metrics):
        for sample in family.samples:
            values[sample.name] = values.get(sample.name, 0.0) + sample.value
    known = {key: values[name] for key, name in _METRICS.items() if name in values}
    usage = [mapping(each.get("usage")) for each in mappings(load.usage.get("containers"))]
    for key in ("cpu", "memory") if usage else ():
        known[key] = sum(_quantities(usage, key))
    return known


def _quantities(usage: Iterable[Mapping[str, Any]], key: str) -> Iterator[float]:
    for each in usage:
        match = _QUANTITY.fullmatch(str(each.get(key, "0")))
        if match is not None:
            yield float(match[1]) * _UNITS.get(match[2], 0.0)
