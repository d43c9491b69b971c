"""What a retry of a run requests: a retry of the failed steps, or a reset of code to the task that started what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.api.json_values import mapping, mappings
from perdure.client.errors import RefusedError
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.view import run as run_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object


async def request_of(
    cluster: Cluster, found: Object, *, steps: Sequence[str] = (), reapply_signals: bool = True, reason: str = ""
) -> tuple[str, dict[str, Any]]:
    """Return the request that runs the failed steps of a run again.

    A run of code keeps the history until the workflow task that started what failed last, or that started the first of `steps`.
    What this task started at the same time, and all that followed, runs again.

    Args:
        cluster: The cluster of the run.
        found: The run.
        steps: Steps to run again as well, with all that follow; for code, IDs of activities, such as `train[lr=0.1]`.
        reapply_signals: Whether the new run gets later signals.
        reason: The reason, for Events and the history.

    Returns:
        The field of the request in the spec of an Operation, and its value.

    Raises:
        RefusedError: Nothing that the code has started has failed, or it has started no activity of that ID.
        CliError: The history cannot be read.
    """
    shared = {"reapplySignals": None if reapply_signals else False, "reason": reason or None}
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
    if run.failed_from is None:
        raise RefusedError(
            f"nothing that the code of the run `{run.name}` has started has failed: after a change of the code, start from an "
            f"event with `perdure reset {run.name}`, or from the beginning with `perdure rerun {run.name}`"
        )
    return "reset", {"eventId": run.failed_from, **shared}
