"""The progress of a run, which is polled: until the operator has decided whether it starts, and until it has ended."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from perdure.api.reasons import ConditionReason
from perdure.client.errors import ClientError, NotFoundError, NotStartedError, UnreachableError
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.view.runs import replay
    from perdure.view.runs import run as run_view

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object
    from perdure.view.runs.run import RunView

VERDICT_SECONDS = 30.0
"""Maximum wait for the operator's decision about a run; the same as for the result of an Operation."""
_VERDICT_PAUSE = 0.25
"""Seconds between two reads until the operator has decided."""
_REFUSED = frozenset(
    {
        ConditionReason.INVALID_INPUT,
        ConditionReason.INVALID_WORKFLOW,
        ConditionReason.LIMIT_REACHED,
        ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED,
    }
)
_PAUSE = 0.5
"""Seconds between two polls until it has ended."""


async def verdict(cluster: Cluster, name: str, seconds: float = VERDICT_SECONDS) -> Object | None:
    """Wait until the operator has decided whether a run starts.

    Args:
        cluster: The cluster of the run.
        name: The name of the run.
        seconds: Maximum wait.

    Returns:
        The condition `Succeeded` of the run, which may say what it waits for; None if the operator has not decided in time.

    Raises:
        NotStartedError: The run does not start.
        ClientError: The run cannot be read.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            condition = succeeded(await cluster.runs.get(name))
        except NotFoundError:
            raise NotStartedError(f"the run `{name}` was deleted before it started") from None
        except UnreachableError:
            condition = None
        decided = condition is not None and condition["reason"] != ConditionReason.WORKFLOW_ID_IN_USE
        if decided or time.monotonic() > deadline:
            break
        await asyncio.sleep(_VERDICT_PAUSE)
    if condition is not None and condition["status"] == "False" and condition["reason"] in _REFUSED:
        message, reason = condition.get("message"), str(condition["reason"])
        raise NotStartedError(f"the run `{name}` was not started: {message or reason}", reason=reason)
    return condition


def succeeded(run: Object) -> Object | None:
    """Return the condition `Succeeded` of a run; None if no operator has processed it."""
    conditions: list[Object] = (run.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == "Succeeded"), None)


async def ended(cluster: Cluster, name: str, report: Callable[[str], object]) -> Object:
    """Wait until a run has ended.

    Args:
        cluster: The cluster of the run.
        name: The name of the run.
        report: Called with a sentence if the API server stops responding; the wait continues.

    Returns:
        The run.

    Raises:
        ClientError: The run does not exist, was replaced by another one, or cannot be read.
    """
    versions = _versions(cluster, await cluster.runs.get(name), report)
    return await anext(each async for each in versions if (each.get("status") or {}).get("completionTime"))


async def follow(
    cluster: Cluster, found: Object, report: Callable[[str], object]
) -> AsyncIterator[tuple[Object, RunView]]:
    """Read a run at each poll until it is closed.

    Args:
        cluster: The cluster of the run.
        found: The run, which comes first.
        report: Called with a sentence if the API server stops responding; the wait continues.

    Yields:
        The run as it was read, and as users see it. When it is closed, the view has its whole history.

    Raises:
        ClientError: The run was deleted, or cannot be read.
    """
    async for each in _versions(cluster, found, report):
        run = await view_of(cluster, each)
        yield each, run
        if run.closed:
            return


async def view_of(cluster: Cluster, found: Object) -> RunView:
    """Return a run as users see it: with its pods and children if it is open, and with its whole history if it is closed.

    Raises:
        UnreachableError: The API server does not respond.
    """
    status = found.get("status") or {}
    pending = status.get("pendingActivities") or status.get("pendingChildren")
    if status.get("completionTime"):
        with suppress(ClientError):  # without the sealed history, the tree is less exact
            found = await cluster.runs.with_history(found)
    live = await cluster.runs.live_state(found) if pending else None
    return run_view.read_run(found, now=clock.now(), live=live, trace=replay.trace(found))


async def _versions(cluster: Cluster, found: Object, report: Callable[[str], object]) -> AsyncIterator[Object]:
    """Read a run at each poll, without end, beginning with the given one."""
    name, uid = found["metadata"]["name"], found["metadata"]["uid"]
    away = False
    while True:
        if not away:
            yield found
        await asyncio.sleep(_PAUSE)
        try:
            found = await cluster.runs.get(name)
        except UnreachableError as error:
            if not away:
                report(f"{error}; still waiting")
            away = True
            continue
        except NotFoundError:
            raise NotFoundError(f"the run `{name}` was deleted before it ended") from None
        away = False
        if found["metadata"]["uid"] != uid:
            raise NotFoundError(
                f"the run `{name}` was deleted, and another one of that name was created; wait for that one"
            )
