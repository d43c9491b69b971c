"""The nodes of earlier attempts of an activity whose pods still exist."""

from typing import Final

from perdure.api import labels
from perdure.api.names import pod_name
from perdure.kube import client as kube
from perdure.runtime.attempts import Attempt, RunRef

_MOST: Final = 5
"""The most earlier attempts to check, because each needs a request."""


async def earlier_nodes(client: kube.Client, run: RunRef, attempt: Attempt) -> list[str]:
    """Read the nodes on which the last attempts ran, without deleted pods.

    Args:
        client: Reads the pods.
        run: The run.
        attempt: The attempt that follows them.

    Raises:
        RequestError: The Kubernetes API request failed.
    """
    nodes: dict[str, None] = {}
    for number in range(attempt.attempt - 1, max(attempt.attempt - 1 - _MOST, 0), -1):
        name = pod_name(run.name, attempt.scheduled_event_id, number)
        try:
            pod = await client.get(kube.path(kube.CORE, run.namespace, "pods", name))
        except kube.NotFoundError:
            continue
        node = pod["spec"].get("nodeName")
        if node and (pod["metadata"].get("labels") or {}).get(labels.RUN_ID_LABEL) == run.uid:
            nodes[node] = None
    return list(nodes)
