"""Store large heartbeat details without a commit of the run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.controller.directory import Entry
from perdure.controller.payloads.payload_store import Saved
from perdure.controller.reconcile.record import encoded
from perdure.engine.opaque import referred_to
from perdure.frontend.errors import RpcError
from perdure.frontend.runs.gateway import RunGateway
from perdure.runtime.blobs import Reference, owner, reference_in, with_content


@asynccontextmanager
async def storing_details(
    runs: RunGateway, entry: Entry, scheduled_event_id: int, details: object
) -> AsyncIterator[None]:
    """Store large heartbeat details before the block that passes them to a run, and remove the previous ones after it.

    Heartbeats need no commit, so the details would otherwise stay in memory until the next one. Details that a commit has
    recorded are kept.

    Args:
        runs: The runs of the operator.
        entry: The run.
        scheduled_event_id: The ID of the activity's ActivityTaskScheduled.
        details: The details as JSON, or a reference with their bytes.
    """
    run, reference = runs.get(entry.uid), next(with_content(details), None)
    if reference is None or run is None or run.state is None or run.state.code is None:
        yield
        return
    owned_by, store = owner(entry.name, entry.uid), runs.blobs
    activity = run.state.activity(scheduled_event_id)
    before = reference_in(activity.heartbeat_details) if activity is not None else None
    saved = await store.save(entry.namespace, reference, owned_by)
    try:
        yield
    except RpcError:
        if saved is not None:
            await store.remove(entry.namespace, saved)
        raise
    store.cache.put(entry.namespace, reference.name, reference.content or b"")
    reference.content, reference.version = None, saved
    old = before.version if isinstance(before, Reference) else None
    if isinstance(old, Saved) and old.name not in referred_to(encoded(run.object.get("status") or {})):
        await store.remove(entry.namespace, old)
