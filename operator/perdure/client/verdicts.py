"""The operator's decision whether a new run starts."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from perdure.api.reasons import ConditionReason
from perdure.client.errors import NotFoundError, RefusedError, UnreachableError

if TYPE_CHECKING:
    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object

VERDICT_SECONDS = 30.0
"""Maximum wait for the operator's decision about a run; the same as for the result of an Operation."""
_PAUSE = 0.25
"""Seconds between two reads."""
_REFUSED = frozenset(
    {
        ConditionReason.INVALID_INPUT,
        ConditionReason.INVALID_WORKFLOW,
        ConditionReason.LIMIT_REACHED,
        ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED,
    }
)


class NotStartedError(RefusedError):
    """The run will never start. `reason` is that of its condition `Succeeded`, such as `InvalidInput`."""


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
        CliError: The run cannot be read.
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
        await asyncio.sleep(_PAUSE)
    if condition is not None and condition["status"] == "False" and condition["reason"] in _REFUSED:
        message, reason = condition.get("message"), str(condition["reason"])
        raise NotStartedError(f"the run `{name}` was not started: {message or reason}", reason=reason)
    return condition


def succeeded(run: Object) -> Object | None:
    """Return the condition `Succeeded` of a run; None if no operator has processed it."""
    conditions: list[Object] = (run.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == "Succeeded"), None)
