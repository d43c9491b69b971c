"""Delete objects that are kept for a while: the pods of succeeded attempts, because of their logs, and cached results.

This needs no state: the time is a label of the object, on pods set by the write that releases them. So a restart changes nothing,
and a kept object costs no memory. Owner references delete the pods of a deleted run.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from perdure.api import labels
from perdure.controller.fleet.shards import Shards
from perdure.controller.namespace_checks import check_for_ever
from perdure.controller.namespaces import ServedNamespaces
from perdure.kube import client as kube
from perdure.kube.clock import now


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringKind:
    """A kind of objects that expire."""

    group: str
    plural: str
    most: int
    """Maximum number of kept objects in a namespace; at the next check, those beyond it that expire first are deleted."""
    seconds: float
    """Seconds between two checks, and so the most that an object stays too long."""
    query: dict[str, str]
    """The selectors of a list of them."""


KEPT_PODS: Final = ExpiringKind(
    group=kube.CORE,
    plural="pods",
    most=100,
    seconds=30,
    query={
        "labelSelector": f"{labels.RUN_ID_LABEL},{labels.EXPIRES_LABEL}",
        "fieldSelector": "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown",
    },
)
CACHED_RESULTS: Final = ExpiringKind(
    group=kube.PERDURE, plural="cachedresults", most=5_000, seconds=300, query={"labelSelector": labels.EXPIRES_LABEL}
)
"""They are checked rarely, because there can be many, and none is used after it has expired."""


async def delete_for_ever(client: kube.Client, kind: ExpiringKind, served: ServedNamespaces, shards: Shards) -> None:
    """Delete objects of a kind when they expire, until cancelled.

    Args:
        client: The client of the API server.
        kind: The kind.
        served: The served namespaces.
        shards: The shards, so that only one member of a fleet does it.
    """

    async def check(namespace: str | None) -> None:
        await delete_expired(client, kind, namespace, now())

    await check_for_ever(check, served, shards, f"expired-{kind.plural}", seconds=kind.seconds)


async def delete_expired(
    client: kube.Client, kind: ExpiringKind, namespace: str | None, time: datetime, *, most: int | None = None
) -> int:
    """Delete expired objects of a kind, and those beyond its maximum number in a namespace.

    Args:
        client: The client of the API server.
        kind: The kind.
        namespace: The namespace; None for all namespaces.
        time: The current time.
        most: The most objects to keep in a namespace; None for that of the kind.

    Returns:
        The number of deleted objects.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    kept: dict[str, list[tuple[int, str, str, str]]] = defaultdict(list)
    async for each in client.lists.each_metadata(kube.path(kind.group, namespace, kind.plural), **kind.query):
        meta = each["metadata"]
        text = (meta.get("labels") or {}).get(labels.EXPIRES_LABEL, "")
        if labels.FINALIZER in meta.get("finalizers", ()) or meta.get("deletionTimestamp") or not text.isdecimal():
            continue
        kept[meta["namespace"]].append((int(text), meta["name"], meta["uid"], meta["resourceVersion"]))
    limit = kind.most if most is None else most
    deleted = 0
    for where, objects in kept.items():
        objects.sort(reverse=True)
        over = [each for number, each in enumerate(objects) if number >= limit or each[0] <= time.timestamp()]
        for _, name, uid, version in over:  # by version, so that a pod whose time was just extended stays
            url = kube.path(kind.group, where, kind.plural, name)
            deleted += await client.delete(url, uid=uid, version=version)
    return deleted
