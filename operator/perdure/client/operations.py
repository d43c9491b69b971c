"""Operations: their manifests, and how to wait for their results."""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perdure.api.labels import API_VERSION
from perdure.client.errors import UnreachableError

if TYPE_CHECKING:
    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object

_PAUSE = 0.25
"""Seconds between two reads."""
_MAX_READS = 20
"""Maximum number of Operations that are read one by one; more are read as a list."""


def manifest(verb: str, request: Mapping[str, Any], target: "Object", name: str | None = None) -> "Object":
    """Return the manifest of an Operation.

    Args:
        verb: The field of the request in the spec, such as `signal`.
        request: The value of that field; None values are omitted.
        target: The target in the form of an Operation.
        name: The name of the Operation; None for a generated name.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "Operation",
        "metadata": {"generateName": f"{verb.lower()}-"} if name is None else {"name": name},
        "spec": {"target": target, verb: {key: value for key, value in request.items() if value is not None}},
    }


def answered(operation: "Object") -> bool:
    """Whether an Operation has a result."""
    return bool((operation.get("status") or {}).get("completionTime"))


async def wait_for_results(cluster: "Cluster", operations: "list[Object]", seconds: float) -> None:
    """Read Operations until all have results, at most for some time; replaces each by its last state.

    Raises:
        CliError: An Operation was deleted, or cannot be read.
    """
    deadline = time.monotonic() + seconds
    while not all(map(answered, operations)) and time.monotonic() < deadline:
        await asyncio.sleep(_PAUSE)
        await _poll(cluster, operations)


async def _poll(cluster: "Cluster", operations: "list[Object]") -> None:
    """Read the Operations that have no result yet."""
    waiting = [index for index, each in enumerate(operations) if not answered(each)]
    try:
        listed = {}
        if len(waiting) > _MAX_READS:
            listed = {each["metadata"]["uid"]: each for each in await cluster.list("operations")}
        for index in waiting:
            meta = operations[index]["metadata"]
            found = listed.get(meta["uid"])
            operations[index] = found or await cluster.read("Operation", "operations", meta["name"])
    except UnreachableError:
        return  # the requests exist already: wait for their results
