"""Waits until a deployment of flows is rolled out: new runs get its code and its activities."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from perdure.api.json_values import mapping, mappings
from perdure.api.labels import WORKER_DEPLOYMENT_LABEL, WORKER_VERSION_LABEL
from perdure.api.reasons import ConditionReason
from perdure.client.errors import ClientError, ExitCode
from perdure.kube import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object

_PAUSE: Final = 0.5
"""Seconds between two reads."""
_PATIENCE: Final = 30.0
"""How long pods may fail before the wait ends, in seconds: an image may become available, or another object."""
_LINES: Final = 20
"""Number of lines of a log."""
_LOG_READS: Final = 10
"""How often a log is read: while a container is replaced, neither the log before nor the new one exists."""
_NO_LOG: Final = "unable to retrieve container logs for "
"""The kubelet answers so, in place of a log, while the container is removed."""
_ROUTED_ELSEWHERE: Final = frozenset({ConditionReason.RAMPING, ConditionReason.ROUTING_MANUAL})
_FINAL: Final = frozenset({ConditionReason.INVALID_SPEC, ConditionReason.ROUTING_REFUSED, ConditionReason.POD_REFUSED})


class NotRolledOutError(ClientError):
    """The new version does not get runs."""

    status = ExitCode.NO


class StillStartingError(ClientError):
    """The time is over."""

    status = ExitCode.TIMEOUT


async def follow(
    cluster: Cluster, names: Sequence[tuple[str, bool]], seconds: float, say: Callable[[str], None]
) -> None:
    """Wait until the activities of environments can be used, and new runs get the last version of their flows.

    Args:
        cluster: The cluster.
        names: The names of the environments, and whether they have flows.
        seconds: The longest wait.
        say: Gets a line for each change.

    Raises:
        NotRolledOutError: A Workflow is not valid, or the workers of a version fail; `say` gets the end of their log.
        StillStartingError: It took longer.
        ClientError: The objects cannot be read.
    """
    deadline = time.monotonic() + seconds
    for name, has_flows in names:
        await _Rollout(cluster, "Workflow", "workflows", name, "Ready", say).follow(deadline)
        if has_flows:
            await _Rollout(cluster, "WorkerDeployment", "workerdeployments", name, "RolledOut", say).follow(deadline)


class _Rollout:
    """Follows a condition of an object."""

    def __init__(
        self, cluster: Cluster, kind: str, plural: str, name: str, condition: str, say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._kind, self._plural, self._name = kind, plural, name
        self._condition = condition
        self._say = say

    async def follow(self, deadline: float) -> None:
        """Wait until the condition is True."""
        said, failing_since = "", None
        what = f"{self._kind} `{self._name}`"
        while True:
            obj = await self._cluster.read(self._kind, self._plural, self._name)
            found = self._current(obj)
            status, reason, message = (str(found.get(key) or "") for key in ("status", "reason", "message"))
            text = ": ".join(filter(None, (what, reason or "no operator has processed it yet", message)))
            if text != said:
                self._say(text)
                said = text
            if status == "True" or reason in _ROUTED_ELSEWHERE:
                return
            failing_since = (failing_since or time.monotonic()) if reason == ConditionReason.WORKERS_FAILING else None
            now = time.monotonic()
            if reason in _FINAL or (failing_since is not None and now - failing_since >= _PATIENCE):
                await self._say_log(obj)
                raise NotRolledOutError(f"{text}. {self._meanwhile(obj)}")
            if now >= deadline:
                await self._say_log(obj)
                raise StillStartingError(f"timed out: {text}. {self._meanwhile(obj)}")
            await asyncio.sleep(_PAUSE)

    def _current(self, obj: Object) -> Object:
        """Return the condition, if it is about the last change of the object."""
        for each in mappings(mapping(obj.get("status")).get("conditions")):
            if each.get("type") == self._condition and each.get("observedGeneration") == obj["metadata"].get(
                "generation"
            ):
                return each
        return {}

    def _meanwhile(self, obj: Object) -> str:
        current = mapping(obj.get("status")).get("currentBuildId")
        if self._kind == "WorkerDeployment" and current:
            return f"Runs continue on version `{current}`, with its activities; fix the cause, and deploy again"
        return "Fix the cause, and deploy again"

    async def _say_log(self, obj: Object) -> None:
        """Show the end of the log of a pod of the newest version, if that fails."""
        newest = next(iter(mappings(mapping(obj.get("status")).get("versions"))), {})
        if self._kind != "WorkerDeployment" or not newest.get("message"):
            return
        url = paths.path(paths.CORE, obj["metadata"]["namespace"], "pods")
        selector = f"{WORKER_DEPLOYMENT_LABEL}={self._name},{WORKER_VERSION_LABEL}={newest['buildId']}"
        for _ in range(_LOG_READS):
            for pod in await self._cluster.diagnosis.list(url, labelSelector=selector):
                name = pod["metadata"]["name"]
                for query in ("&previous=true", ""):
                    with suppress(ClientError):  # the container has not started, or not ended yet
                        text = await self._cluster.diagnosis.text(f"{url}/{name}/log?tailLines={_LINES}{query}")
                        if text and not text.startswith(_NO_LOG):
                            self._say(f"The log of pod `{name}` ends with:\n{text.rstrip()}")
                            return
            await asyncio.sleep(_PAUSE)
