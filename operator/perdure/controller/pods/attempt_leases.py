"""Create and read the Leases of attempts, and request cancellations through them. Each call can be repeated after a crash."""

from contextlib import suppress

from perdure.api import labels
from perdure.api.names import pod_name
from perdure.controller.pods.attempt_errors import REFUSED, LeaseBlockedError
from perdure.controller.pods.pod_key import PodKey
from perdure.kube import client as kube
from perdure.runtime.attempts import Attempt, RunRef, lease_conflict
from perdure.runtime.leases import build_lease


class AttemptLeases:
    """Manages the Leases of attempts."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client

    async def ensure(self, run: RunRef, attempt: Attempt, pod: kube.Object) -> None:
        """Create the Lease of an attempt, unless it exists.

        Raises:
            LeaseBlockedError: The API server rejects the Lease, or another client's Lease has its name.
            RequestError: The Kubernetes API request failed.
        """
        url = kube.path(kube.COORDINATION, run.namespace, "leases")
        try:
            await self._client.create(url, build_lease(run, attempt, pod["metadata"]["uid"]))
        except kube.AlreadyExistsError:
            name = pod["metadata"]["name"]
            try:
                lease = await self._client.get(f"{url}/{name}")
            except kube.NotFoundError:
                raise LeaseBlockedError("a Lease with this name was created and deleted a moment ago") from None
            conflict = lease_conflict(lease, attempt, pod["metadata"]["uid"])
            if conflict:
                raise LeaseBlockedError(conflict.message) from None
        except kube.ApiError as error:
            if error.status not in REFUSED:
                raise
            raise LeaseBlockedError(error.message) from error

    async def read(self, run: RunRef, key: PodKey) -> kube.Object | None:
        """Read the Lease of an attempt."""
        name = pod_name(run.name, key.scheduled_event_id, key.attempt)
        try:
            return await self._client.get(kube.path(kube.COORDINATION, run.namespace, "leases", name))
        except kube.NotFoundError:
            return None

    async def request_cancel(self, run: RunRef, key: PodKey, reason: str) -> None:
        """Request an attempt to stop through its Lease: the response to its next heartbeat has the request."""
        name = pod_name(run.name, key.scheduled_event_id, key.attempt)
        body = {"metadata": {"annotations": {labels.CANCEL_REQUESTED_ANNOTATION: reason}}}
        with suppress(kube.NotFoundError):
            await self._client.merge(kube.path(kube.COORDINATION, run.namespace, "leases", name), body)
