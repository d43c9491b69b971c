"""Delete the pods of succeeded attempts, which are kept for a while because of their logs.

This needs no state: the time is a label of the pod, set by the write that releases it. So a restart changes nothing, and a
kept pod costs no memory. Owner references delete the pods of a deleted run.
"""

from collections import defaultdict
from datetime import datetime
from typing import Final

import structlog

from perdure.api import labels
from perdure.controller.fleet.shards import Shards
from perdure.controller.namespaces import ServedNamespaces
from perdure.kube import client as kube
from perdure.kube.clock import now, until_next_poll

LOOK_SECONDS: Final = 30.0
"""Seconds between two checks, and so the most that a pod stays too long."""
MAX_KEPT: Final = 100
"""Maximum number of kept pods in a namespace; at the next check, the oldest beyond it are deleted."""

_SELECTOR: Final = f"{labels.RUN_ID_LABEL},{labels.EXPIRES_LABEL}"
_ENDED: Final = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"


async def delete_for_ever(client: kube.Client, served: ServedNamespaces, shards: Shards) -> None:
    """Delete kept pods when they expire, until cancelled.

    Args:
        client: The client of the API server.
        served: The served namespaces.
        shards: The shards, so that only one member of a fleet does it.
    """
    log = structlog.get_logger("perdure.kept")
    while True:
        for namespace in served if shards.owns("", "expired-pods") else ():
            try:
                await delete_expired(client, namespace, now())
            except (kube.ApiError, *kube.TRANSIENT) as error:
                log.warning("Could not delete kept pods, retrying", namespace=namespace, error=repr(error))
        await until_next_poll(LOOK_SECONDS)


async def delete_expired(client: kube.Client, namespace: str | None, time: datetime, *, most: int = MAX_KEPT) -> int:
    """Delete expired pods, and the oldest kept pods of a namespace beyond `most`.

    Args:
        client: The client of the API server.
        namespace: The namespace; None for all namespaces.
        time: The current time.
        most: The most pods to keep in a namespace.

    Returns:
        The number of deleted pods.

    Raises:
        ApiError, OSError, aiohttp.ClientError, TimeoutError: The Kubernetes API request failed. Call again to retry.
    """
    kept: dict[str, list[tuple[int, str, str, str]]] = defaultdict(list)
    url = kube.path(kube.CORE, namespace, "pods")
    async for pod in client.lists.each_metadata(url, labelSelector=_SELECTOR, fieldSelector=_ENDED):
        meta = pod["metadata"]
        text = (meta.get("labels") or {}).get(labels.EXPIRES_LABEL, "")
        if labels.FINALIZER in meta.get("finalizers", ()) or meta.get("deletionTimestamp") or not text.isdecimal():
            continue
        kept[meta["namespace"]].append((int(text), meta["name"], meta["uid"], meta["resourceVersion"]))
    deleted = 0
    for where, pods in kept.items():
        pods.sort(reverse=True)
        over = [pod for number, pod in enumerate(pods) if number >= most or pod[0] <= time.timestamp()]
        for _, name, uid, version in over:  # by version, so that a pod whose time was just extended stays
            deleted += await client.delete(kube.path(kube.CORE, where, "pods", name), uid=uid, version=version)
    return deleted
