"""Delete the claims of closed runs, or keep them until their run is deleted, as their workspace specifies.

This needs no state: a label marks claims that are not processed yet, so a restart changes nothing. Owner references delete a
kept claim together with its runs.
"""

from datetime import timedelta
from typing import Final

import structlog

from perdure.api import labels
from perdure.controller.directory import Directory, Standing
from perdure.controller.recorded_state import distrust
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.chains import is_open
from perdure.runtime.workspaces import is_deleted_after, pods_label

_SELECTOR: Final = f"{labels.WORKSPACE_LABEL},{labels.STAYS_UNTIL_LABEL}={labels.RUN_CLOSED}"
_SUCCEEDED: Final = {"Completed", "ContinuedAsNew"}


class ReleasedClaims:
    """Deletes or keeps the claims of closed runs."""

    def __init__(self, client: kube.Client, directory: Directory, pod_ttl: timedelta) -> None:
        """Create it.

        Args:
            client: Reads, patches and deletes.
            directory: The directory, to check which runs are open.
            pod_ttl: How long kept pods that mount a deleted claim stay.
        """
        self._client = client
        self._directory = directory
        self._pod_ttl = pod_ttl
        self._log = structlog.get_logger("perdure.claims")

    async def release(self, namespace: str | None) -> None:
        """Release the claims of closed runs.

        Args:
            namespace: The namespace; None for all namespaces.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        async for claim in self._client.lists.each_metadata(_claims(namespace), labelSelector=_SELECTOR):
            meta = claim["metadata"]
            known = self._directory.get(meta["labels"].get(labels.RUN_ID_LABEL, ""))
            if not meta.get("deletionTimestamp") and (known is None or known.standing is Standing.CLOSED):
                await self._release(claim)

    async def _release(self, claim: kube.Object) -> None:
        meta = claim["metadata"]
        run = await self._run(claim)
        status = run.get("status") or {} if run is not None else {}
        if run is None or is_open(status) or distrust(run):
            return  # the garbage collector deletes the claim of a deleted run
        url = _claims(meta["namespace"], meta["name"])
        if not is_deleted_after(claim, succeeded=status.get("phase") in _SUCCEEDED):
            change = {
                "resourceVersion": meta["resourceVersion"],
                "labels": {labels.STAYS_UNTIL_LABEL: labels.RUN_DELETED},
            }
            try:
                await self._client.merge(url, {"metadata": change})
            except (kube.ConflictError, kube.NotFoundError):
                return  # another run may have taken it over since it was listed
            return
        await self._expire_pods(meta["namespace"], meta["name"])
        if await self._client.delete(url, uid=meta["uid"], version=meta["resourceVersion"]):
            where = {"namespace": meta["namespace"], "claim": meta["name"], "run": run["metadata"]["name"]}
            self._log.info("Deleted the claim of a run that has closed", **where)

    async def _run(self, claim: kube.Object) -> kube.Object | None:
        """Read the run that a claim names, if the run is one of its owners."""
        meta = claim["metadata"]
        uid = meta["labels"].get(labels.RUN_ID_LABEL)
        name = next((each["name"] for each in meta.get("ownerReferences") or () if each.get("uid") == uid), None)
        if name is None:
            return None
        try:
            run = await self._client.get(kube.path(kube.PERDURE, meta["namespace"], "workflowruns", name))
        except kube.NotFoundError:
            return None
        return run if run["metadata"]["uid"] == uid else None

    async def _expire_pods(self, namespace: str, claim: str) -> None:
        """Expire the pods that mount a claim soon, because Kubernetes keeps the claim until they are deleted."""
        url, expires = kube.path(kube.CORE, namespace, "pods"), str(int((now() + self._pod_ttl).timestamp()))
        selector = f"{labels.RUN_ID_LABEL},{pods_label(claim)},!{labels.EXPIRES_LABEL}"
        async for pod in self._client.lists.each_metadata(url, labelSelector=selector):
            if not pod["metadata"].get("deletionTimestamp"):
                change = {"metadata": {"labels": {labels.EXPIRES_LABEL: expires}}}
                try:
                    await self._client.merge(f"{url}/{pod['metadata']['name']}", change)
                except kube.NotFoundError:
                    continue


def _claims(namespace: str | None, name: str | None = None) -> str:
    return kube.path(kube.CORE, namespace, "persistentvolumeclaims", name)
