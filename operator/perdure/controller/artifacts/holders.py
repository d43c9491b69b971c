"""Keep the artifacts that runs need: each run has an ArtifactSet, which lists what needs its artifacts.

    before the first upload of a run                     ─▶ create its ArtifactSet, with the run as holder
    before a commit that refers to artifacts of others   ─▶ add the run to the holders of their ArtifactSets

Artifacts are kept as long as one of their holders exists.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from perdure.api.kinds.artifactset import MAX_HOLDERS, HolderKind
from perdure.api.kinds.workflow import Activity
from perdure.api.names import artifact_set_name
from perdure.controller.pods.attempt_pods import AttemptBlockedError
from perdure.controller.reconcile.refusals import is_temporary
from perdure.controller.state_versions import state_versions
from perdure.kube import client as kube
from perdure.runtime.artifact_sets import build_set, holder, uploaders_in
from perdure.runtime.attempts import RunRef

_log = structlog.get_logger("perdure.artifacts")


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
            AttemptBlockedError: A quota or a missing permission prevents it for now.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        artifacts = definition.artifacts
        if artifacts is None or not artifacts.deleted_with_run or artifacts.store in self._stores:
            return
        body = state_versions().stamp_spec(build_set(self._run, artifacts.store, image))
        try:
            await self._client.create(_url(self._run.namespace), body)
        except kube.AlreadyExistsError:
            await _add(self._client, self._run.namespace, self._run.uid, self._holder, store=artifacts.store)
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
    """
    url = _url(namespace, artifact_set_name(uploader))
    while True:
        try:
            found = await client.get(url)
        except kube.NotFoundError:
            return False
        spec = found["spec"]
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
