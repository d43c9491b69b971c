"""The registry of search attributes: a ConfigMap in each namespace, with the type of each name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.api.search_attributes import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.client.cluster import Cluster


async def read_types(cluster: Cluster) -> dict[str, str]:
    """Return the registered types of the cluster's namespace, by name.

    Raises:
        ClientError: The registry cannot be read.
    """
    stored = await cluster.config_maps.read(REGISTRY)
    return dict((stored or {}).get("data") or {})


async def change_types(cluster: Cluster, change: Callable[[dict[str, str]], dict[str, str]]) -> dict[str, str]:
    """Change the registry of the cluster's namespace.

    Args:
        cluster: The cluster.
        change: Returns the new types for the current ones.

    Returns:
        The previous types.

    Raises:
        ClientError: The registry cannot be read or written.
    """
    stored = await cluster.config_maps.read(REGISTRY)
    before = dict((stored or {}).get("data") or {})
    after = change(before)
    if after != before:
        empty = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": REGISTRY}}
        await cluster.config_maps.store({**(stored or empty), "data": after})
    return before
