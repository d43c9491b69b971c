"""Read pending Operations from the Kubernetes API."""

from collections.abc import AsyncIterator
from operator import itemgetter

from perdure.api.phases import OperationPhase
from perdure.controller.operations.operation_keys import TargetKey
from perdure.kube import client as kube
from perdure.kube.paths import escaped
from perdure.runtime.operation_requests import arrival

PENDING = f"status.phase!={OperationPhase.COMPLETE},status.phase!={OperationPhase.FAILED}"
"""Field selector for pending Operations."""
_HELD_BYTES = 4 * 1024 * 1024
"""How many bytes of JSON of a target's Operations are kept in memory."""


async def pending(client: kube.Client, key: TargetKey) -> AsyncIterator[kube.Object]:
    """List the pending Operations of a target in the order of their creation. The list is consistent: none is missing.

    Operations that exceed the memory limit are read again when their turn comes.
    """
    url = kube.path(kube.PERDURE, key.namespace, "operations")
    chosen = f"spec.target.kind={key.kind},spec.target.{key.field}={escaped(key.value)},{PENDING}"
    held = 0
    waiting: list[tuple[int, str, str, kube.Object | None]] = []
    async for page in client.lists.pages(url, fieldSelector=chosen):
        for raw, obj in client.lists.objects(page):
            held += len(raw)
            meta = obj["metadata"]
            waiting.append((arrival(obj), meta["uid"], meta["name"], obj if held <= _HELD_BYTES else None))
    for _, uid, name, kept in sorted(waiting, key=itemgetter(0)):
        try:
            obj = await client.get(f"{url}/{name}") if kept is None else kept
        except (kube.NotFoundError, kube.UnreadableError):
            continue
        if obj["metadata"]["uid"] == uid and not obj["metadata"].get("deletionTimestamp"):
            yield obj
