"""The registry of search attributes, a ConfigMap in each namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.api.search_attributes import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.client.cluster import Cluster


def types_of(stored: dict[str, Any] | None) -> dict[str, str]:
    """The types in a registry, by name; empty for None."""
    return dict((stored or {}).get("data") or {})


async def change_types(cluster: Cluster, change: Callable[[dict[str, str]], dict[str, str]]) -> dict[str, str]:
    """Change the registry of a namespace.

    Args:
        cluster: The cluster, with the namespace.
        change: Returns the new types for the current ones.

    Returns:
        The previous types.

    Raises:
        CliError: The registry cannot be read or written.
    """
    stored = await cluster.config_maps.read(REGISTRY)
    before = types_of(stored)
    after = change(before)
    if after != before:
        empty = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": REGISTRY}}
        await cluster.config_maps.store({**(stored or empty), "data": after})
    return before
