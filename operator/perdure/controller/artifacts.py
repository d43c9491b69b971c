"""Keep the artifacts that runs need, and delete those that nothing needs anymore.

Each run has an ArtifactSet, which lists what needs its artifacts.

    before the first upload of a run                     ─▶ create its ArtifactSet, with the run as holder
    before a commit that refers to artifacts of others   ─▶ add the run to the holders of their ArtifactSets
    every holder of an ArtifactSet is gone, for a while  ─▶ mark the set ─▶ a pod deletes the objects ─▶ delete the set

Artifacts are kept as long as one of their holders exists. The mark is a compare-and-swap: a run that becomes a holder at the same
time either prevents it, or finds the mark. The time covers runs that were created with references but have not been reconciled
yet.

The operator has no credentials of the stores: the pods that delete artifacts get them from the Secrets.
"""

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import structlog

from perdure.api import labels
from perdure.api.kinds.artifactset import MAX_HOLDERS, ArtifactSetSpec, HolderKind
from perdure.api.kinds.workflow import Activity
from perdure.api.models import json_fields
from perdure.api.names import artifact_folder, artifact_set_name, label_value
from perdure.api.reasons import EventReason
from perdure.api.state_versions import unknown_in
from perdure.api.times import read_kubernetes_time
from perdure.controller.directory import Directory
from perdure.controller.fleet.shards import Shards
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.pods.attempt_pods import AttemptBlockedError
from perdure.controller.reconcile.newer_states import message_for
from perdure.controller.reconcile.refusals import is_temporary
from perdure.controller.state_versions import state_versions
from perdure.kube import client as kube
from perdure.kube.clock import now, until_next_poll
from perdure.kube.events import Recorder
from perdure.observe import metrics
from perdure.runtime.artifact_sets import build_deletion_pod, build_set, deletion_report, holder, uploaders_in
from perdure.runtime.attempts import PodSettings, RunRef

_log = structlog.get_logger("perdure.artifacts")


class NewerSetError(kube.RequestError):
    """A newer version has stored an ArtifactSet, and this one must not change it: what needs its artifacts is retried.

    The message is for conditions and Events.
    """


class RunArtifacts:
    """The artifacts that one run uploads, and those that it needs."""

    def __init__(self, client: kube.Client, run: RunRef) -> None:
        self._client = client
        self._run = run
        self._holder = holder(HolderKind.WORKFLOW_RUN, run.name, run.uid)
        self._stores: set[str] = set()
        """The stores in the ArtifactSet of the run."""
        self._held = {run.uid}
        """The runs whose artifacts are known to be held."""
        self._lost: set[str] = set()
        """The runs whose artifacts cannot be held."""

    async def expect(self, definition: Activity, image: str) -> None:
        """Ensure that the artifacts and logs that an activity uploads are deleted with the run, except for outputs that it keeps.

        Args:
            definition: The activity.
            image: An image with `perdure.runner`.

        Raises:
            AttemptBlockedError: A quota, a missing permission, or an ArtifactSet of a newer version prevents it for now.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        artifacts = definition.artifacts
        if artifacts is None or not artifacts.deleted_with_run or artifacts.store in self._stores:
            return
        body = state_versions().stamp_spec(build_set(self._run, artifacts.store, image))
        try:
            await self._client.create(_url(self._run.namespace), body)
        except kube.AlreadyExistsError:
            try:
                await _add(self._client, self._run.namespace, self._run.uid, self._holder, store=artifacts.store)
            except NewerSetError as error:
                raise AttemptBlockedError(str(error)) from error
        except kube.ApiError as error:
            if is_temporary(error):
                raise AttemptBlockedError(f"the ArtifactSet of the run cannot be created: {error.message}") from error
            raise
        self._stores.add(artifacts.store)

    async def hold(self, text: bytes) -> bool:
        """Ensure that the artifacts that a text refers to exist as long as this run.

        Args:
            text: JSON that the run is about to record.

        Returns:
            False if some of them may not exist.

        Raises:
            NewerSetError: Only a newer version can read one of their ArtifactSets.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        wanted = uploaders_in(text, self._run.namespace) - self._held
        for uploader in sorted(wanted - self._lost):
            is_held = await _add(self._client, self._run.namespace, uploader, self._holder)
            (self._held if is_held else self._lost).add(uploader)
        return self._held >= wanted


async def hold_for(client: kube.Client, kind: HolderKind, stored: kube.Object) -> None:
    """Ensure that the artifacts that an object refers to exist as long as the object.

    Args:
        client: The client of the API server.
        kind: The kind of the object.
        stored: The object, as stored.

    Raises:
        NewerSetError: Only a newer version can read one of their ArtifactSets.
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    meta = stored["metadata"]
    for uploader in sorted(uploaders_in(msgspec.json.encode(stored["spec"]), meta["namespace"])):
        await _add(client, meta["namespace"], uploader, holder(kind, meta["name"], meta["uid"]))


async def _add(
    client: kube.Client, namespace: str, uploader: str, holding: Mapping[str, Any], store: str | None = None
) -> bool:
    """Add a holder, and a store if one is given, to the ArtifactSet of a run; return False if that is not possible.

    Artifacts without an ArtifactSet are never deleted, or were deleted together with it.

    Raises:
        NewerSetError: Only a newer version can read the ArtifactSet.
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    url = _url(namespace, artifact_set_name(uploader))
    while True:
        try:
            found = await client.get(url)
        except kube.NotFoundError:
            return False
        spec = found["spec"]
        if why := _newer_part(spec):
            raise NewerSetError(message_for(f"ArtifactSet `{found['metadata']['name']}`: {why}"))
        holders, stores = list(spec["holders"]), list(spec["stores"])
        if all(each["uid"] != holding["uid"] for each in holders):
            holders.append(dict(holding))
        if store is not None and store not in stores:
            stores.append(store)
        if (holders, stores) == (spec["holders"], spec["stores"]):
            return not spec.get("deletingSince")
        if spec.get("deletingSince") or len(holders) > MAX_HOLDERS:
            _log.warning(
                "The artifacts of a run cannot be kept",
                namespace=namespace,
                uploader=uploader,
                holder=holding["name"],
                holders=len(holders),
                deleting=spec.get("deletingSince"),
            )
            return False
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        try:
            await client.merge(url, {"metadata": version, "spec": {"holders": holders, "stores": stores}})
        except kube.ConflictError:
            continue
        except kube.NotFoundError:
            return False
        return True


def _url(namespace: str, name: str | None = None) -> str:
    return kube.path(kube.PERDURE, namespace, "artifactsets", name)


_FIELDS: Final = json_fields(ArtifactSetSpec)


def _newer_part(spec: Mapping[str, Any]) -> str:
    """Say what only a newer version can read in the spec of an ArtifactSet; empty if this one can read all of it."""
    return state_versions().unreadable(spec) or unknown_in(spec, _FIELDS)


LOOK_SECONDS: Final = 60.0
"""Seconds between two checks."""
UNHELD_FOR: Final = timedelta(minutes=5)
"""How long artifacts are kept after their last holder was deleted."""
_PLURALS: Final[Mapping[str, str]] = {
    HolderKind.WORKFLOW_RUN: "workflowruns",
    HolderKind.DEAD_LETTER: "deadletters",
    HolderKind.CACHED_RESULT: "cachedresults",
}
GIVE_UP_AFTER: Final = timedelta(days=1)
"""How long the operator tries to delete the artifacts of a run."""
_MAX_SETS: Final = 100
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
        url = kube.path(kube.CORE, namespace, "pods")
        selector = f"{labels.ARTIFACT_STORE_LABEL}={label_value(store)}"
        pods = await self._client.lists.all(url, labelSelector=selector)
        left = [each for each in sets if not await self._gave_up(each, store)]
        if not pods:
            await self._start(namespace, store, left)
        for pod in pods:
            await self._take(pod, store, left)

    async def _take(self, pod: kube.Object, store: str, left: Sequence[kube.Object]) -> None:
        """Take the result of a pod that has ended."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
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
        url = kube.path(kube.CORE, namespace, "pods", name)
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
        first = self._failures.get((namespace, store), 0) * _MAX_SETS % len(sets)
        some = [*sets[first:], *sets[:first]][:_MAX_SETS]
        pod = build_deletion_pod(namespace, store, some, self._settings, unique=uuid.uuid4().hex)
        await self._client.create(kube.path(kube.CORE, namespace, "pods"), pod)

    async def _gave_up(self, artifacts: kube.Object, store: str) -> bool:
        """Give up deleting artifacts after a while; they stay in the store. Return whether it is so."""
        since = read_kubernetes_time(artifacts["spec"].get("deletingSince"))
        if since is None or now() - since < GIVE_UP_AFTER:
            return False
        folder = artifact_folder(artifacts["metadata"]["namespace"], artifacts["spec"]["runId"])
        hours = GIVE_UP_AFTER // timedelta(hours=1)
        note = f"Could not delete the artifacts below `{folder}/` of store `{store}` for {hours} hours; they stay there"
        self.warn(artifacts, EventReason.ARTIFACTS_NOT_DELETED, note, "Delete")
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
            note = f"Could not delete artifacts from store `{store}`; the operator will retry: {error}"
            self.warn(sets[0], EventReason.ARTIFACTS_NOT_DELETED, note, "Delete")

    def warn(self, artifacts: kube.Object, reason: EventReason, note: str, action: str) -> None:
        """Record a warning about an ArtifactSet."""
        about = {"apiVersion": labels.API_VERSION, "kind": "ArtifactSet", "metadata": artifacts["metadata"]}
        self._recorder.record(about, kind="Warning", reason=reason, note=note, action=action)


class ArtifactCollector:
    """Finds the ArtifactSets without holders."""

    def __init__(self, client: kube.Client, directory: Directory, pods: DeletionPods) -> None:
        """Create it.

        Args:
            client: Reads and patches ArtifactSets.
            directory: The known runs.
            pods: Deletes the artifacts.
        """
        self._client = client
        self._directory = directory
        self._pods = pods
        self._newer: set[str] = set()
        """UIDs of the reported ArtifactSets of a newer version."""
        self._log = structlog.get_logger("perdure.artifacts")

    async def collect_forever(self, served: ServedNamespaces, shards: Shards) -> None:
        """Delete artifacts that nothing needs, until cancelled.

        Args:
            served: The served namespaces.
            shards: The shards, so that only one member of a fleet does it.
        """
        unheld: dict[str, datetime] = {}
        while True:
            await until_next_poll(LOOK_SECONDS)
            found: dict[str, datetime] = {}
            for namespace in served if shards.owns("", "artifacts") else ():
                try:
                    await self._collect(namespace, unheld, found)
                except kube.RequestError as error:
                    self._log.warning("Could not check for unneeded artifacts", namespace=namespace, error=repr(error))
                    found = unheld | found
            unheld = found

    async def _collect(self, namespace: str | None, unheld: Mapping[str, datetime], found: dict[str, datetime]) -> None:
        """Check all ArtifactSets once.

        Args:
            namespace: The namespace; None for all namespaces.
            unheld: When each ArtifactSet lost its last holder, by UID.
            found: Collects the same for the next call.
        """
        unneeded: dict[tuple[str, str], list[kube.Object]] = defaultdict(list)
        async for each in self._client.lists.each(kube.path(kube.PERDURE, namespace, "artifactsets")):
            meta, spec = each["metadata"], each["spec"]
            if meta.get("deletionTimestamp") or self._is_newer(each):
                continue
            if not spec.get("deletingSince") and not await self._is_unneeded(each, unheld, found):
                continue
            for store in spec["stores"]:
                unneeded[meta["namespace"], store].append(each)
        for (where, store), sets in unneeded.items():
            try:
                await self._pods.advance(where, store, sets)
            except kube.RequestError as error:
                self._log.warning(
                    "Could not delete artifacts, retrying", namespace=where, store=store, error=repr(error)
                )

    def _is_newer(self, artifacts: kube.Object) -> bool:
        """Whether only a newer version can read an ArtifactSet. It is left to that version, and reported once."""
        meta, spec = artifacts["metadata"], artifacts["spec"]
        why = _newer_part(spec)
        if why and meta["uid"] not in self._newer:
            self._newer.add(meta["uid"])
            metrics.NEWER_STATES.labels(meta["namespace"], "ArtifactSet").inc()
            self._pods.warn(artifacts, EventReason.NEWER_STATE, message_for(why), "Read")
        return bool(why)

    async def _is_unneeded(
        self, artifacts: kube.Object, unheld: Mapping[str, datetime], found: dict[str, datetime]
    ) -> bool:
        """Whether an ArtifactSet has had no holder for a while; if so, it is marked. Other sets lose holders that are gone."""
        meta, spec = artifacts["metadata"], artifacts["spec"]
        url = kube.path(kube.PERDURE, meta["namespace"], "artifactsets", meta["name"])
        holders = [each for each in spec["holders"] if await self._exists(meta["namespace"], each)]
        if holders:
            if len(holders) < len(spec["holders"]):
                await self._change(url, artifacts, holders=holders)
            return False
        since = found[meta["uid"]] = unheld.get(meta["uid"], now())
        if now() - since < UNHELD_FOR or await self._may_upload(meta["namespace"], spec["runId"]):
            return False
        return await self._change(url, artifacts, deletingSince=now().isoformat())

    async def _change(self, url: str, artifacts: kube.Object, **spec: object) -> bool:
        """Change an ArtifactSet, unless another client has changed it since it was read; return whether it was changed."""
        with suppress(kube.ConflictError, kube.NotFoundError):
            version = {"resourceVersion": artifacts["metadata"]["resourceVersion"]}
            changed = await self._client.merge(url, {"metadata": version, "spec": spec})
            artifacts["metadata"]["resourceVersion"] = changed["metadata"]["resourceVersion"]
            artifacts["spec"] |= spec
            return True
        return False

    async def _exists(self, namespace: str, holder: kube.Object) -> bool:
        if self._directory.get(holder["uid"]) is not None:
            return True
        plural = _PLURALS.get(holder["kind"])
        if plural is None:
            return True  # only the newer version that added the holder knows when it is gone
        url = kube.path(kube.PERDURE, namespace, plural, holder["name"])
        try:
            meta = (await self._client.metadata(url))["metadata"]
        except kube.NotFoundError:
            return False
        return bool(meta["uid"] == holder["uid"])

    async def _may_upload(self, namespace: str, run_id: str) -> bool:
        """Whether a pod of a deleted run still exists."""
        url = kube.path(kube.CORE, namespace, "pods")
        async for _ in self._client.lists.each_metadata(url, labelSelector=f"{labels.RUN_ID_LABEL}={run_id}"):
            return True
        return False
