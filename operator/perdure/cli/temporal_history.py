"""A history in Temporal's JSON, which the replayers of SDKs and `temporal workflow show` read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from google.protobuf.json_format import MessageToDict
from temporalio.api.history.v1 import History

from perdure.api.json_values import mapping
from perdure.client.errors import CliError, NotFoundError
from perdure.engine import history
from perdure.frontend.messages.histories import Historian
from perdure.frontend.messages.payloads import KnownBlobs, use_blobs
from perdure.runtime import blobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object
    from perdure.view.events import Event


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
    historian = Historian(
        namespace, lambda _: run_id, by_step=not mapping(mapping(run.get("status")).get("state")).get("code")
    )
    known = KnownBlobs()
    while True:
        known.missing.clear()
        with use_blobs(known):
            converted = History(events=historian.all(recorded))
        if not known.missing:
            return MessageToDict(converted)
        for blob, reference in known.missing.items():
            known.contents[blob] = await _content(cluster, reference)


async def _run_id(cluster: Cluster, name: str) -> str:
    """Return the ID of the next run; empty if it was deleted, or does not exist yet."""
    try:
        return str((await cluster.runs.get(name))["metadata"]["uid"])
    except NotFoundError:
        return ""


async def _content(cluster: Cluster, reference: Mapping[str, Any]) -> bytes:
    """Read a large payload.

    Raises:
        CliError: It does not exist, was replaced, or cannot be read.
    """
    name = reference["name"]
    numbers = range(blobs.parts_of(reference["sizeBytes"]))
    parts = [await cluster.read("Payload", "payloads", blobs.part_name(name, number)) for number in numbers]
    content = blobs.joined(parts, reference["hash"])
    if content is None:
        raise CliError(f"Payload `{name}` was replaced: it does not have the recorded hash; restore it from a backup")
    return content
