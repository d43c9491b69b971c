"""The versions of the workers that decide runs of code, and how a run moves to another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.api.json_values import mapping, mappings
from perdure.client.errors import ClientError, NotFoundError, RefusedError
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.view.runs import run as run_view

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object

CURRENT: Final = "current"
"""In place of a build ID: the version that gets new runs."""
_ONCE: Final = "OneTime"
"""The behavior of the override: once the version has decided, it applies as if the run had started on it."""
_STARTING: Final = "Starting"


def is_failing(run: Object) -> bool:
    """Whether the workflow task of an open run of code fails, or is not answered in time."""
    code = run_view.read_run(run, now=clock.now()).code
    return code is not None and code.failing


async def options_of_move(cluster: Cluster, runs: Iterable[Object], to: str) -> dict[str, Any]:
    """Return the options of runs that move to a version, in the form of an Operation's `updateOptions`.

    Args:
        cluster: The cluster of the runs.
        runs: The runs, which versions of one worker deployment decide.
        to: The build ID of the version, or `current`.

    Raises:
        RefusedError: No versioned worker has decided a run, the runs are of several deployments, or the version has no workers.
        ClientError: The current version is not known, or the objects cannot be read.
    """
    names: dict[str, str] = {}
    for each in runs:
        run = run_view.read_run(each, now=clock.now())
        if run.code is None:
            raise RefusedError(f"the run `{run.name}` is one of a Workflow in YAML, which has no versions of workers")
        if not run.code.deployment:
            raise RefusedError(
                f"no worker with a version has decided the run `{run.name}` yet: its next workflow task goes to the current "
                "version by itself"
            )
        names.setdefault(run.code.deployment, run.name)
    if len(names) != 1:
        found = ", ".join(f"`{run}` of `{deployment}`" for deployment, run in sorted(names.items()))
        raise RefusedError(f"the runs are of several worker deployments ({found}): move those of each by themselves")
    (deployment,) = names
    build = await _build_id(cluster, deployment, to)
    return {"versioningOverride": {"behavior": _ONCE, "deploymentName": deployment, "buildId": build}}


async def _build_id(cluster: Cluster, deployment: str, to: str) -> str:
    """Return the build ID of a version to which runs can move.

    Raises:
        RefusedError: No workers of the version have polled.
        ClientError: The current version is not known, or the WorkerDeployment cannot be read.
    """
    try:
        status = mapping((await cluster.read("WorkerDeployment", "workerdeployments", deployment)).get("status"))
    except NotFoundError:
        if to != CURRENT:
            return to  # workers that the operator does not run
        raise ClientError(
            f"WorkerDeployment `{deployment}` does not exist: name the version by its build ID, which "
            f"`perdure deployment describe {deployment}` shows"
        ) from None
    current = str(status.get("currentBuildId") or "")
    if to == CURRENT and not current:
        raise RefusedError(
            f"no version of WorkerDeployment `{deployment}` gets new runs yet: wait until it is RolledOut"
        )
    ready = [str(each["buildId"]) for each in mappings(status.get("versions")) if each.get("phase") != _STARTING]
    wanted = current if to == CURRENT else to
    if wanted not in {*ready, current}:
        known = ", ".join(f"`{each}`" for each in ready) or "none"
        raise RefusedError(
            f"WorkerDeployment `{deployment}` has no version `{wanted}` whose workers have polled; it has {known}"
        )
    return wanted
