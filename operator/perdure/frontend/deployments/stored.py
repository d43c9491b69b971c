"""The registries of settings that namespaces store in ConfigMaps for the frontend."""

from datetime import timedelta

from perdure.frontend.deployments.rules import WorkerDeployment
from perdure.frontend.matching.rates import TaskQueueSettings
from perdure.frontend.registry import EntryKind


def _check_routing(deployment: WorkerDeployment) -> None:
    for build in (deployment.current, deployment.ramping):
        if build and build not in deployment.versions:
            raise ValueError(f"it routes to version '{build}', which it does not have")


WORKER_DEPLOYMENTS = EntryKind(
    type=WorkerDeployment,
    noun="worker deployment",
    config_map="perdure-worker-deployments",
    fresh=timedelta(seconds=10),
    check=_check_routing,
)
TASK_QUEUES = EntryKind(
    type=TaskQueueSettings,
    noun="task queue",
    config_map="perdure-task-queues",
    fresh=timedelta(minutes=1),
)
"""These are rarely read again, because few namespaces have them, and changes through the frontend apply immediately."""
