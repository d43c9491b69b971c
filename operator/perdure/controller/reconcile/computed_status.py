"""Statuses that are computed from the object and from other objects, without any further state.

So nothing needs to be merged: if another client has written the object, the status is computed again from the new version.
"""

from collections.abc import Awaitable, Callable

from perdure.kube import client as kube


async def write_status(
    client: kube.Client,
    url: str,
    compute: Callable[[kube.Object], Awaitable[kube.Object | None]],
    known: kube.Object | None = None,
) -> kube.Object | None:
    """Write the status of an object if it differs from the stored one, by compare-and-swap, until that succeeds.

    Args:
        client: Reads and writes the object.
        url: Path of the object.
        compute: Computes the status of an object; None: do not change it. Called again after each new read.
        known: The object as it was last read; None to read it first.

    Returns:
        The object with its status; None if it was deleted.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    obj = known
    while True:
        if obj is None:
            try:
                obj = await client.get(url)
            except kube.NotFoundError:
                return None
        status = await compute(obj)
        if status is None or status == (obj.get("status") or {}):
            return obj
        try:
            answer = await client.set_status(url, obj, status)
        except (kube.ConflictError, kube.NotFoundError):
            obj = None
        else:
            version = answer["metadata"]["resourceVersion"]
            return {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}, "status": status}
