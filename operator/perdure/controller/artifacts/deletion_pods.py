"""The pods that delete artifacts. The operator has no credentials of the stores: the pods get them from the Secrets."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import structlog

from perdure.api.labels import API_VERSION, ARTIFACT_STORE_LABEL
from perdure.api.names import artifact_folder, deletion_pod_name
from perdure.api.reasons import EventReason
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.kube.events import Recorder
from perdure.observe import metrics
from perdure.runtime.artifact_sets import build_deletion_pod, deletion_report
from perdure.runtime.attempts import PodSettings
from perdure.runtime.kubernetes_times import read_time

GIVE_UP_AFTER: Final = timedelta(days=1)
"""How long the operator tries to delete the artifacts of a run."""
_MOST: Final = 100
"""Maximum number of ArtifactSets for one pod."""
_FIRST_PAUSE: Final = timedelta(minutes=1)
_LONGEST_PAUSE: Final = timedelta(hours=1)


class DeletionPods:
    """Starts a pod for each artifact store with unneeded artifacts, one at a time, and takes its result."""

    def __init__(self, client: kube.Client, recorder: Recorder, settings: PodSettings) -> None:
        """Create it without pods.

        Args:
            client: Manages pods, and deletes ArtifactSets.
            recorder: Records Events.
            settings: The settings of pods.
        """
        self._client = client
        self._recorder = recorder
        self._settings = settings
        self._failures: dict[tuple[str, str], int] = {}
        """How many pods in a row have failed, by namespace and store."""
        self._log = structlog.get_logger("perdure.artifacts")

    async def advance(self, namespace: str, store: str, sets: Sequence[kube.Object]) -> None:
        """Take the result of the pod of a store, and start the next one if artifacts are left.

        Args:
            namespace: The namespace.
            store: The Secret of the artifact store.
            sets: The ArtifactSets without holders that have artifacts in it.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        url = kube.path(kube.CORE, namespace, "pods", deletion_pod_name(store))
        left = [each for each in sets if not await self._gave_up(each, store)]
        try:
            pod = await self._client.get(url)
        except kube.NotFoundError:
            await self._start(namespace, store, left)
            return
        if ARTIFACT_STORE_LABEL not in (pod["metadata"].get("labels") or {}):
            self._log.warning("Another pod has the name of one that deletes artifacts", pod=url)
            return
        report = deletion_report(pod, now())
        if report is None or pod["metadata"].get("deletionTimestamp"):
            return
        for each in left:
            if each["metadata"]["name"] in report.deleted:
                await self._remove(each, store, "Deleted")
        left = [each for each in left if each["metadata"]["name"] not in report.deleted]
        failures = self._failures.get((namespace, store), 0)
        if report.error and now() < report.ended + min(_FIRST_PAUSE * (1 << min(failures, 10)), _LONGEST_PAUSE):
            return  # until then, its log can be read
        if not await self._client.delete(url, uid=pod["metadata"]["uid"]):
            return
        if report.error:
            self._failures[namespace, store] = failures + 1
            self._report(left, store, report.error)
        else:
            self._failures.pop((namespace, store), None)

    async def _start(self, namespace: str, store: str, sets: Sequence[kube.Object]) -> None:
        if not sets:
            return
        # After a failure, others come first: one that always fails does not block them.
        first = self._failures.get((namespace, store), 0) * _MOST % len(sets)
        some = [*sets[first:], *sets[:first]][:_MOST]
        with suppress(kube.AlreadyExistsError):
            pod = build_deletion_pod(namespace, store, some, self._settings)
            await self._client.create(kube.path(kube.CORE, namespace, "pods"), pod)

    async def _gave_up(self, artifacts: kube.Object, store: str) -> bool:
        """Give up deleting artifacts after a while; they stay in the store. Return whether it is so."""
        since = read_time(artifacts["spec"].get("deletingSince"))
        if since is None or now() - since < GIVE_UP_AFTER:
            return False
        folder = artifact_folder(artifacts["metadata"]["namespace"], artifacts["spec"]["runId"])
        hours = GIVE_UP_AFTER // timedelta(hours=1)
        note = f"Could not delete the artifacts below `{folder}/` of store `{store}` for {hours} hours; they stay there"
        self._warn(artifacts, note)
        await self._remove(artifacts, store, "Abandoned")
        return True

    async def _remove(self, artifacts: kube.Object, store: str, outcome: str) -> None:
        """Remove a store from an ArtifactSet, or the whole set with its last store."""
        meta, stores = artifacts["metadata"], [each for each in artifacts["spec"]["stores"] if each != store]
        url = kube.path(kube.PERDURE, meta["namespace"], "artifactsets", meta["name"])
        if not stores:
            await self._client.delete(url, uid=meta["uid"])
        else:
            with suppress(kube.ConflictError, kube.NotFoundError):
                version = {"resourceVersion": meta["resourceVersion"]}
                await self._client.merge(url, {"metadata": version, "spec": {"stores": stores}})
        metrics.ARTIFACT_DELETIONS.labels(outcome).inc()
        self._log.info(
            "Processed the artifacts of a deleted run", namespace=meta["namespace"], set=meta["name"], outcome=outcome
        )

    def _report(self, sets: Sequence[kube.Object], store: str, error: str) -> None:
        metrics.ARTIFACT_DELETIONS.labels("Failed").inc()
        self._log.warning("Could not delete artifacts, retrying", store=store, error=error)
        if sets:
            self._warn(sets[0], f"Could not delete artifacts from store `{store}`; the operator will retry: {error}")

    def _warn(self, artifacts: kube.Object, note: str) -> None:
        about = {"apiVersion": API_VERSION, "kind": "ArtifactSet", "metadata": artifacts["metadata"]}
        self._recorder.record(
            about, kind="Warning", reason=EventReason.ARTIFACTS_NOT_DELETED, note=note, action="Delete"
        )
