"""The objects that runs and Schedules refer to: Workflows, RetryPolicies, and WorkflowLimits."""

from perdure.controller.informers.schedules import Schedules
from perdure.controller.informers.workflowruns import WorkflowRuns
from perdure.controller.queue.keyed_queue import KeyedQueue
from perdure.controller.queue.keys import Key, LimitKey, PolicyKey, WorkflowKey
from perdure.controller.tools import Tools
from perdure.controller.workflows.readiness import Readiness
from perdure.kube import client as kube


class ReferencedObjects:
    """Processes these objects, and wakes the runs and Schedules that depend on them."""

    def __init__(
        self,
        tools: Tools,
        queue: KeyedQueue[Key],
        readiness: Readiness,
        *,
        runs: WorkflowRuns,
        schedules: Schedules,
    ) -> None:
        self._tools = tools
        self._queue = queue
        self._readiness = readiness
        self._runs = runs
        self._schedules = schedules
        tools.policies.changed = self._policies_changed

    def take_workflow(self, obj: kube.Object, *, deleted: bool) -> None:
        """Process a Workflow: runs may wait for it, and Schedules report its errors."""
        key = WorkflowKey(obj["metadata"]["namespace"], obj["metadata"]["name"])
        changed = self._readiness.observe(obj, deleted=deleted)
        if changed:
            self._schedules.observe_workflow(key.namespace, key.name)
        if deleted:
            self._queue.forget(key)
            return
        if changed:
            self._queue.wake(key)
        self._runs.observe_workflow(key.namespace, key.name)

    def take_policy(self, obj: kube.Object, *, deleted: bool = False) -> None:
        """Process a RetryPolicy."""
        self._tools.policies.observe(obj, deleted=deleted)
        key = PolicyKey(obj["metadata"]["namespace"], obj["metadata"]["name"])
        self._queue.forget(key) if deleted else self._queue.wake(key)

    def take_limit(self, obj: kube.Object, *, deleted: bool = False) -> None:
        """Process a WorkflowLimit."""
        self._tools.limits.observe(obj, deleted=deleted)
        key = LimitKey(obj["metadata"]["namespace"], obj["metadata"]["name"])
        self._queue.forget(key) if deleted else self._queue.wake(key)

    def _policies_changed(self, namespace: str) -> None:
        for name in self._readiness.stale(namespace):
            self._queue.wake(WorkflowKey(namespace, name))
        self._runs.observe_policies(namespace)
        self._schedules.observe_policies(namespace)
