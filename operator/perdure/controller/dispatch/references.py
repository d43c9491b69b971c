"""The objects that runs and Schedules use: Workflows, RetryPolicies, WorkflowLimits, and WorkflowDefaults."""

from collections.abc import Callable

from perdure.api.names import DEFAULTS_NAME
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.dispatch.schedules import Schedules
from perdure.controller.queue import DefaultsKey, Key, KeyedQueue, LimitKey, PolicyKey, WorkflowKey
from perdure.controller.services import Services
from perdure.controller.workflows.namespace_defaults import DefaultsReadiness
from perdure.controller.workflows.readiness import Readiness
from perdure.kube import client as kube


class ReferencedObjects:
    """Processes these objects, and wakes the runs and Schedules that depend on them."""

    def __init__(
        self,
        services: Services,
        queue: KeyedQueue[Key],
        readiness: Readiness,
        defaults: DefaultsReadiness,
        *,
        runs: WorkflowRuns,
        schedules: Schedules,
        retention_changed: Callable[[str, kube.Object], None],
    ) -> None:
        """Create it without objects.

        Args:
            services: The shared services.
            queue: The queue of the keys of these objects.
            readiness: Reports whether Workflows can be used.
            defaults: Reports whether WorkflowDefaults can be used.
            runs: The runs that use these objects.
            schedules: The Schedules that use them.
            retention_changed: Called with a namespace and the spec of its WorkflowDefaults, which is empty if it has none.
        """
        self._services = services
        self._queue = queue
        self._readiness = readiness
        self._defaults = defaults
        self._runs = runs
        self._schedules = schedules
        self._retention_changed = retention_changed
        self._generations: dict[str, int | None] = {}
        """The last seen generation of WorkflowDefaults, by UID."""
        services.policies.changed = self._policies_changed

    # Workflows: runs may wait for them, and Schedules report their errors

    def update_workflow(self, obj: kube.Object) -> None:
        """Process the creation or change of a Workflow."""
        key = WorkflowKey(obj["metadata"]["namespace"], obj["metadata"]["name"])
        if self._readiness.update(obj):
            self._schedules.update_workflow(key.namespace, key.name)
            self._queue.wake(key)
            self._wake_users(key)
        self._runs.update_workflow(key.namespace, key.name)

    def delete_workflow(self, obj: kube.Object) -> None:
        """Process the deletion of a Workflow."""
        key = WorkflowKey(obj["metadata"]["namespace"], obj["metadata"]["name"])
        self._readiness.delete(obj)
        self._schedules.update_workflow(key.namespace, key.name)
        self._queue.forget(key)
        self._wake_users(key)

    def _wake_users(self, library: WorkflowKey) -> None:
        """Check the Workflows and WorkflowDefaults that use parts of a Workflow."""
        for namespace, name in self._readiness.users(library.namespace, library.name):
            self._queue.wake(WorkflowKey(namespace, name))
        for namespace in self._defaults.users(library.namespace, library.name):
            self._queue.wake(DefaultsKey(namespace, DEFAULTS_NAME))

    # RetryPolicies

    def update_policy(self, obj: kube.Object) -> None:
        """Process the creation or change of a RetryPolicy."""
        self._services.policies.update(obj)
        self._queue.wake(PolicyKey(obj["metadata"]["namespace"], obj["metadata"]["name"]))

    def delete_policy(self, obj: kube.Object) -> None:
        """Process the deletion of a RetryPolicy."""
        self._services.policies.delete(obj)
        self._queue.forget(PolicyKey(obj["metadata"]["namespace"], obj["metadata"]["name"]))

    def _policies_changed(self, namespace: str) -> None:
        for name in self._readiness.stale(namespace):
            self._queue.wake(WorkflowKey(namespace, name))
        if self._defaults.has(namespace):
            self._queue.wake(DefaultsKey(namespace, DEFAULTS_NAME))
        self._runs.update_policies(namespace)
        self._schedules.update_policies(namespace)

    # WorkflowLimits

    def update_limit(self, obj: kube.Object) -> None:
        """Process the creation or change of a WorkflowLimit."""
        self._services.limits.update(obj)
        self._queue.wake(LimitKey(obj["metadata"]["namespace"], obj["metadata"]["name"]))

    def delete_limit(self, obj: kube.Object) -> None:
        """Process the deletion of a WorkflowLimit."""
        self._services.limits.delete(obj)
        self._queue.forget(LimitKey(obj["metadata"]["namespace"], obj["metadata"]["name"]))

    # WorkflowDefaults

    def update_defaults(self, obj: kube.Object) -> None:
        """Process the creation or change of WorkflowDefaults."""
        meta = obj["metadata"]
        if self._generations.get(meta["uid"]) != meta.get("generation"):  # and not only a write of the status
            self._generations[meta["uid"]] = meta.get("generation")
            self._queue.wake(DefaultsKey(meta["namespace"], meta["name"]))
            self._defaults_changed(meta["namespace"], obj.get("spec") or {})

    def delete_defaults(self, obj: kube.Object) -> None:
        """Process the deletion of WorkflowDefaults."""
        meta = obj["metadata"]
        self._generations.pop(meta["uid"], None)
        self._defaults.forget(meta["namespace"])
        self._queue.forget(DefaultsKey(meta["namespace"], meta["name"]))
        self._defaults_changed(meta["namespace"], {})

    def _defaults_changed(self, namespace: str, spec: kube.Object) -> None:
        self._retention_changed(namespace, spec)
        self._runs.update_defaults(namespace)
        self._schedules.update_defaults(namespace)
