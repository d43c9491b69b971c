"""Pass changes of pods to their runs. If this process does not work on the run, release the pod."""

from datetime import datetime
from typing import NamedTuple

from perdure.api import labels
from perdure.controller.dispatch.index import Index
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.expiry import is_closed
from perdure.controller.limit_releases import LimitReleases
from perdure.controller.pods import attempt_pods as pods
from perdure.controller.queue import Key, KeyedQueue, OrphanKey
from perdure.controller.recorded_state import distrust
from perdure.controller.services import Services
from perdure.kube import client as kube
from perdure.kube.responses import Stored


class _HeldPod(NamedTuple):
    """A pod with our finalizer."""

    namespace: str
    name: str
    run_id: str


class RunPods:
    """The pods with the labels of a run."""

    def __init__(
        self, services: Services, index: Index, queue: KeyedQueue[Key], runs: WorkflowRuns, releases: LimitReleases
    ) -> None:
        """Create it without pods.

        Args:
            services: Reads runs, and releases pods.
            index: The known objects.
            queue: The queue that calls `release`.
            runs: The runs that this process works on.
            releases: Releases the WorkflowLimits of ended runs when their pods have ended.
        """
        self._services = services
        self._index = index
        self._queue = queue
        self._runs = runs
        self._releases = releases
        self._held: dict[str, _HeldPod] = {}
        """All pods with our finalizer by UID, for when this process gains their shards."""
        self._orphans: dict[OrphanKey, kube.Object | None] = {}
        """The pods to release; None for a pod that must be read first."""

    def update(self, obj: kube.Object) -> None:
        """Process the creation or change of a pod of a run."""
        self._index.update(obj)
        meta, run_id = obj["metadata"], _run_id(obj)
        if pods.held(obj):
            self._held[meta["uid"]] = _HeldPod(meta["namespace"], meta["name"], run_id)
        else:
            self._held.pop(meta["uid"], None)
        run = self._runs.get(run_id)
        if run is not None:
            run.attempts.held.update(obj)
            self._queue.wake(run.key)
        elif meta["uid"] in self._held and self._holds(meta["namespace"], run_id):
            self._orphans[self._wake(meta["uid"])] = obj
        self._releases.update_pod(obj)

    def delete(self, obj: kube.Object) -> None:
        """Process the deletion of a pod of a run."""
        self._index.delete(obj["metadata"]["uid"])
        self._held.pop(obj["metadata"]["uid"], None)
        run = self._runs.get(_run_id(obj))
        if run is not None:
            run.attempts.held.delete(obj)
            self._queue.wake(run.key)
        self._releases.update_pod(obj)

    def reassign(self) -> None:
        """Process the pods of gained shards that no run in memory knows."""
        for uid, pod in self._held.items():
            if self._runs.get(pod.run_id) is None and self._holds(pod.namespace, pod.run_id):
                self._orphans.setdefault(self._wake(uid), None)

    def _wake(self, uid: str) -> OrphanKey:
        pod = self._held[uid]
        key = OrphanKey(pod.namespace, pod.name, uid, self._sharded_by(pod.run_id))
        self._queue.wake(key)
        return key

    def is_orphan(self, pod: Stored) -> bool:
        """Whether a pod is held for a run that cannot release it because the run does not exist or has closed."""
        run_id = pod.labels.get(labels.RUN_ID_LABEL, "")
        held = labels.POD_FINALIZER in pod.finalizers and self._runs.get(run_id) is None
        return held and self._holds(pod.namespace, run_id)

    def _holds(self, namespace: str, run_id: str) -> bool:
        return self._services.shards.holds(namespace, self._sharded_by(run_id))

    def _sharded_by(self, run_id: str) -> str:
        """The name that determines the shard of a run's pods: the workflow ID, or the UID of an unknown run."""
        run = self._index.directory.get(run_id)
        return run_id if run is None else run.workflow_id

    async def release(self, key: OrphanKey) -> datetime | None:
        """Release a pod whose run is closed or deleted; do nothing if the run is open and merely not known yet.

        Returns:
            When to call this again, unless the pod changes before; None if it is released.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if key not in self._orphans:
            return None
        observed = self._orphans.pop(key)
        try:
            pod = observed or await self._read("pods", key.namespace, key.name, key.uid)
            if pod is None or not pods.held(pod):
                self._held.pop(key.uid, None)
                return None
            until = await self._release(pod)
        except BaseException:
            self._orphans.setdefault(key, observed)  # unless it was seen again
            raise
        if until is not None:
            self._orphans.setdefault(key, None)  # its containers are being stopped
        return until

    async def _release(self, pod: kube.Object) -> datetime | None:
        owner = _owning_run(pod)
        if owner is None:  # orphaned on purpose, or not ours: only remove our finalizer
            await self._services.pods.drop_finalizer(pod)
            return None
        name, uid = owner
        if self._runs.get(uid) is not None:
            self.update(pod)
            return None
        run = await self._read("workflowruns", pod["metadata"]["namespace"], name, uid)
        if run is not None and distrust(run):
            self._runs.suspect(run)
            self.update(pod)
        elif run is not None and not is_closed(run):
            self._runs.resume(run)
            self.update(pod)
        else:
            return await self._services.pods.release_by_name(pod, keep=run is not None)
        return None

    async def _read(self, plural: str, namespace: str, name: str, uid: str) -> kube.Object | None:
        group = kube.CORE if plural == "pods" else kube.PERDURE
        try:
            obj = await self._services.client.get(kube.path(group, namespace, plural, name))
        except (kube.NotFoundError, ValueError):
            return None
        return obj if obj["metadata"]["uid"] == uid else None


def _run_id(pod: kube.Object) -> str:
    """UID of the run in the labels of a pod; empty if there is none."""
    return str((pod["metadata"].get("labels") or {}).get(labels.RUN_ID_LABEL, ""))


def _owning_run(pod: kube.Object) -> tuple[str, str] | None:
    """Name and UID of the WorkflowRun that owns a pod; None for a pod that only has our labels."""
    uid = (pod["metadata"].get("labels") or {}).get(labels.RUN_ID_LABEL)
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner["kind"] == "WorkflowRun" and owner["uid"] == uid:
            return owner["name"], owner["uid"]
    return None
