"""Makes a pod prefer other nodes than its earlier attempts."""

from collections.abc import Sequence
from typing import Any, Final

from perdure.runtime.attempts import KubeObject

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT: Final = 100
"""The highest weight. It is a preference: with one node, or if all others are full, the pod still runs."""


def avoiding(pod: KubeObject, nodes: Sequence[str]) -> KubeObject:
    """Return the pod with a preference for nodes other than the given ones.

    Args:
        pod: A v1 Pod to create; not changed.
        nodes: Names of nodes.
    """
    if not nodes:
        return pod
    # A field selector of a node takes one value; the requirements of a term all apply.
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    term: dict[str, Any] = {"weight": _WEIGHT, "preference": {"matchFields": fields}}
    affinity = pod["spec"].get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    preferred = [*(of_nodes.get(_PREFERRED) or ()), term]
    spec = {**pod["spec"], "affinity": {**affinity, "nodeAffinity": {**of_nodes, _PREFERRED: preferred}}}
    return {**pod, "spec": spec}
