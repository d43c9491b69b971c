"""The open runs, and the load of the operators: read from the cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.api.phases import CLOSED
from perdure.cli.doctor.operators import find_deployment
from perdure.client.errors import CliError
from perdure.kube import paths

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object

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
    except CliError:
        return empty
