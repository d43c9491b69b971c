"""Operations: their manifests, what a retry requests, and how to wait for results."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from perdure.api.json_values import mapping, mappings
from perdure.api.labels import API_VERSION
from perdure.api.policies import ResetPoint
from perdure.client import versions
from perdure.client.errors import RefusedError, UnreachableError
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.view.runs import run as run_view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object

_PAUSE = 0.25
"""Seconds between two reads."""
_MAX_READS = 20
"""Maximum number of Operations that are read one by one; more are read as a list."""


def manifest(verb: str, request: Mapping[str, Any], target: Object, name: str | None = None) -> Object:
    """Return the manifest of an Operation.

    Args:
        verb: The field of the request in the spec, such as `signal`.
        request: The value of that field; None values are omitted.
        target: The target in the form of an Operation.
        name: The name of the Operation; None for a generated name.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "Operation",
        "metadata": {"generateName": f"{verb.lower()}-"} if name is None else {"name": name},
        "spec": {"target": target, verb: {key: value for key, value in request.items() if value is not None}},
    }


async def retry_request(
    cluster: Cluster,
    found: Object,
    *,
    steps: Sequence[str] = (),
    reapply_signals: bool = True,
    to_version: str | None = None,
    reason: str = "",
) -> tuple[str, dict[str, Any]]:
    """Return the request that runs the failed steps of a run again.

    A run of code keeps the history until the workflow task that started what failed last, or that started the first of `steps`.
    What this task started at the same time, and all that followed, runs again. If nothing has failed but the code itself, a
    run that moves to another version keeps the history until its last workflow task.

    Args:
        cluster: The cluster of the run.
        found: The run.
        steps: Steps to run again as well, with all that follow; for code, IDs of activities, such as `train[lr=0.1]`.
        reapply_signals: Whether the new run gets later signals.
        to_version: For code: the build ID of the version of the new run, or `current`; None: that of the run.
        reason: The reason, for Events and the history.

    Returns:
        The field of the request in the spec of an Operation, and its value.

    Raises:
        RefusedError: Nothing that the code has started has failed, it has started no activity of that ID, or it cannot move to
            the version.
        CliError: The history cannot be read.
    """
    shared: dict[str, Any] = {"reapplySignals": None if reapply_signals else False, "reason": reason or None}
    if to_version is not None:
        shared["updateOptions"] = await versions.options_of_move(cluster, [found], to_version)
    if not mapping(found["spec"].get("workflow")).get("taskQueue"):
        return "retry", {"from": list(steps) or None, **shared}
    found = await cluster.runs.with_history(found)
    run = run_view.read_run(found, now=clock.now())
    if run.code is None:
        return "retry", {"from": list(steps) or None, **shared}
    if steps:
        events = mappings(mapping(mapping(found.get("status")).get("history")).get("events"))
        points = [run_view.task_that_started(events, step) for step in steps]
        missing = [step for step, point in zip(steps, points, strict=True) if point is None]
        if missing:
            raise RefusedError(f"the run `{run.name}` has started no activity `{missing[0]}`")
        return "reset", {"eventId": min(point for point in points if point is not None), **shared}
    if run.failed_from is None and to_version is not None:
        return "reset", {"to": ResetPoint.LAST_WORKFLOW_TASK.value, **shared}
    if run.failed_from is None:
        moved = "--to-version current" if run.code.pinned else "--type LastWorkflowTask"
        verb = "retry" if run.code.pinned else "reset"
        raise RefusedError(
            f"nothing that the code of the run `{run.name}` has started has failed: fix the code, and continue from its last "
            f"decision with `perdure {verb} {run.name} {moved}`, or start again with `perdure rerun {run.name}`"
        )
    return "reset", {"eventId": run.failed_from, **shared}


def answered(operation: Object) -> bool:
    """Whether an Operation has a result."""
    return bool((operation.get("status") or {}).get("completionTime"))


async def wait_for_results(cluster: Cluster, operations: list[Object], seconds: float) -> None:
    """Read Operations until all have results, at most for some time; replaces each by its last state.

    Raises:
        CliError: An Operation was deleted, or cannot be read.
    """
    deadline = time.monotonic() + seconds
    while not all(map(answered, operations)) and time.monotonic() < deadline:
        await asyncio.sleep(_PAUSE)
        await _poll(cluster, operations)


async def _poll(cluster: Cluster, operations: list[Object]) -> None:
    """Read the Operations that have no result yet."""
    waiting = [index for index, each in enumerate(operations) if not answered(each)]
    try:
        listed = {}
        if len(waiting) > _MAX_READS:
            listed = {each["metadata"]["uid"]: each for each in await cluster.list("operations")}
        for index in waiting:
            meta = operations[index]["metadata"]
            found = listed.get(meta["uid"])
            operations[index] = found or await cluster.read("Operation", "operations", meta["name"])
    except UnreachableError:
        return  # the requests exist already: wait for their results
