"""Delete the artifacts that nothing needs anymore.

    every holder of an ArtifactSet is gone, for a while ─▶ mark the set ─▶ a pod deletes the objects ─▶ delete the set

The mark is a compare-and-swap: a run that becomes a holder at the same time either prevents it, or finds the mark. The time
covers runs that were created with references but have not been reconciled yet.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import structlog

from perdure.api import labels
from perdure.api.kinds.artifactset import HolderKind
from perdure.controller.artifacts.deletion_pods import DeletionPods
from perdure.controller.directory import Directory
from perdure.controller.fleet.shards import Shards
from perdure.controller.namespaces import ServedNamespaces
from perdure.kube import client as kube
from perdure.kube.clock import now, until_next_poll

LOOK_SECONDS: Final = 60.0
"""Seconds between two checks."""
UNHELD_FOR: Final = timedelta(minutes=5)
"""How long artifacts are kept after their last holder was deleted."""
_PLURALS: Final[Mapping[str, str]] = {
    HolderKind.WORKFLOW_RUN: "workflowruns",
    HolderKind.DEAD_LETTER: "deadletters",
    HolderKind.CACHED_RESULT: "cachedresults",
}


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
        self._log = structlog.get_logger("perdure.artifacts")

    async def collect_for_ever(self, served: ServedNamespaces, shards: Shards) -> None:
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
            if meta.get("deletionTimestamp"):
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
