"""Deletes the pods of succeeded attempts, which are kept for a while because of their logs.

Nothing is remembered: the time is a label of the pod, which is set with the write that releases it. So a restart changes nothing,
and a kept pod costs no memory. The pods of a run that is deleted go with it, by their owner reference.
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
"""Seconds between two checks; a pod may stay that much longer."""
MAX_KEPT: Final = 100
"""Maximum number of kept pods in a namespace; at the next check, the oldest beyond it are deleted."""

_SELECTOR: Final = f"{labels.RUN_ID_LABEL},{labels.EXPIRES_LABEL}"
_ENDED: Final = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"


async def delete_for_ever(client: kube.Client, served: ServedNamespaces, shards: Shards) -> None:
    """Delete kept pods when their time is over, until cancelled.

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
                log.warning("Could not delete kept pods, trying again", namespace=namespace, error=repr(error))
        await until_next_poll(LOOK_SECONDS)


async def delete_expired(client: kube.Client, namespace: str | None, time: datetime, *, most: int = MAX_KEPT) -> int:
    """Delete the kept pods whose time is over, and the oldest of a namespace beyond `most`.

    Args:
        client: The client of the API server.
        namespace: Where; None for all namespaces.
        time: The time.
        most: Pods that may stay in a namespace.

    Returns:
        How many were deleted.

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
        for _, name, uid, version in over:  # as it was listed: one that is given more time at the last moment stays
            deleted += await client.delete(kube.path(kube.CORE, where, "pods", name), uid=uid, version=version)
    return deleted
