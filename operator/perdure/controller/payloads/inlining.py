"""Inline large payloads for readers that cannot follow a reference: YAML workflows, and runs of other namespaces.

Both get the value itself if it fits into the status of a run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.controller.payloads.store import Blobs, LostBlobError
from perdure.controller.workers import Workers
from perdure.engine import inputs
from perdure.engine.payloads import plain
from perdure.kube import client as kube
from perdure.runtime.attempts import payload_too_large
from perdure.runtime.blobs import reference_in

_FIELDS: Mapping[type[Any], tuple[str, ...]] = {
    inputs.SignalRequested: ("input",),
    inputs.ActivityReported: ("result", "heartbeat_details"),
    inputs.ActivityHeartbeat: ("details",),
    inputs.ChildClosed: ("result",),
    inputs.OperationEnded: ("result",),
}


@dataclass(frozen=True, slots=True)
class Inlined:
    """The inputs of a run, without the references that it cannot follow."""

    values: list[inputs.RunInput]
    refused: inputs.RunInput | None = None
    """A request that does not fit into the run."""
    reason: str = ""


async def inlined(
    observed: Sequence[inputs.RunInput], namespace: str, blobs: Blobs, workers: Workers, *, code: bool
) -> Inlined:
    """Replace references in the inputs of a run by values, if the run cannot follow the references.

    Args:
        observed: The original inputs.
        namespace: Namespace of the run.
        blobs: Reads large payloads.
        workers: Decodes large payloads.
        code: Whether workers decide the run; workers follow references within their namespace.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    converted: list[inputs.RunInput] = []
    for each in observed:
        origin = each.handler_namespace if isinstance(each, inputs.OperationEnded) else namespace
        if code and origin == namespace:
            converted.append(each)
            continue
        try:
            converted.append(await _inlined(each, origin, blobs, workers))
        except (ValueError, LostBlobError) as error:
            failure = payload_too_large(f"{error}; store the data elsewhere and pass a reference to it")
            match each:
                case inputs.ActivityReported():
                    converted.append(replace(each, result=None, heartbeat_details=None, failure=failure))
                case inputs.ChildClosed():
                    converted.append(replace(each, outcome=inputs.ChildOutcome.FAILED, result=None, failure=failure))
                case _:
                    return Inlined(list(observed), each, failure.message)
    return Inlined(converted)


async def output_of(run: kube.Object, blobs: Blobs, workers: Workers) -> Any:
    """Return the output of a run as a value, or the reference itself if that is not possible.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    output = (run.get("status") or {}).get("output")
    reference = reference_in(output)
    if reference is None:
        return output
    try:
        return plain(workers.inlined(await blobs.load(run["metadata"]["namespace"], reference)))
    except (ValueError, LostBlobError):
        return output


async def _inlined(item: inputs.RunInput, namespace: str, blobs: Blobs, workers: Workers) -> inputs.RunInput:
    values = {}
    for field in _FIELDS.get(type(item), ()):
        reference = reference_in(getattr(item, field))
        if reference is not None:
            value = workers.inlined(await blobs.load(namespace, reference))
            values[field] = plain(value) if isinstance(item, inputs.ChildClosed) else value
    return replace(item, **values) if values else item
