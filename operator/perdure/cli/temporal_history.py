"""A history in Temporal's JSON, which the replayers of SDKs and `temporal workflow show` read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from google.protobuf.json_format import MessageToDict
from temporalio.api.history.v1 import History

from perdure.api.json_values import mapping
from perdure.api.state_versions import NEWEST, unreadable, version_of
from perdure.client.errors import CliError, NotFoundError
from perdure.engine import history
from perdure.frontend.messages.histories import Historian
from perdure.frontend.messages.payloads import KnownBlobs, resolved
from perdure.runtime import blobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object
    from perdure.view.runs.events import Event


async def temporal_history(cluster: Cluster, run: Object, events: Sequence[Event]) -> dict[str, Any]:
    """Convert a history to the JSON of `temporal.api.history.v1.History`.

    Args:
        cluster: The cluster, which has the large payloads of the history and the next run.
        run: The run.
        events: Its whole history, in order.

    Raises:
        CliError: A newer version has written the history, a payload does not exist, or an object cannot be read.
    """
    name, namespace = run["metadata"]["name"], run["metadata"]["namespace"]
    try:
        recorded = history.decode_events(list(events))
    except msgspec.ValidationError as error:
        raise CliError(
            f"the history of `{name}` is not readable by this version ({error}); update `perdure`"
        ) from error
    cluster = cluster.within(namespace)
    following = str(getattr(recorded[-1], "new_workflow_run", "")) if recorded else ""
    run_id = await _run_id(cluster, following) if following else ""
    state = mapping(mapping(run.get("status")).get("state"))
    historian = Historian(namespace, lambda _: run_id, by_step=not (state.get("code") or state.get("standalone")))
    known = KnownBlobs()

    async def read() -> None:
        for blob, reference in known.missing.items():
            known.contents[blob] = await _content(cluster, reference)

    return MessageToDict(await resolved(known, lambda: History(events=historian.all(recorded)), read))


async def _run_id(cluster: Cluster, name: str) -> str:
    """Return the ID of the next run; empty if it was deleted, or does not exist yet."""
    try:
        return str((await cluster.runs.get(name))["metadata"]["uid"])
    except NotFoundError:
        return ""


async def _content(cluster: Cluster, reference: Mapping[str, Any]) -> bytes:
    """Read a large payload.

    Raises:
        CliError: It does not exist, was replaced, cannot be read, or only a newer version can read it.
    """
    name = reference["name"]
    numbers = range(blobs.parts_of(reference["sizeBytes"]))
    parts = [await cluster.read("Payload", "payloads", blobs.part_name(name, number)) for number in numbers]
    if why := next(filter(None, (unreadable(version_of(each["spec"]), NEWEST) for each in parts)), ""):
        raise CliError(f"a newer version of Perdure has stored Payload `{name}` ({why}); update `perdure`")
    content = blobs.joined(parts, reference["hash"])
    if content is None:
        raise CliError(f"Payload `{name}` was replaced: it does not have the recorded hash; restore it from a backup")
    return content
