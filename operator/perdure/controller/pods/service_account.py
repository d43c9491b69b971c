"""Create the ServiceAccount of activities with a Lease in each namespace that needs it, and re-create it after a deletion.

A ClusterRole of the chart allows it to read and patch Leases. An admission policy restricts this to the Lease of the pod.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from perdure.kube import client as kube
from perdure.kube.clock import now

_CHECK_AGAIN = timedelta(minutes=5)
"""Time after which the next attempt with a Lease re-creates a deleted ServiceAccount or RoleBinding."""


class ActivityIdentity:
    """Ensures that a namespace has the ServiceAccount and its RoleBinding."""

    def __init__(self, client: kube.Client, name: str, *, clock: Callable[[], datetime] = now) -> None:
        """Create it without known namespaces.

        Args:
            client: The client of the API server.
            name: Name of the ServiceAccount, the RoleBinding, and the ClusterRole.
            clock: Returns the time.
        """
        self._client = client
        self._name = name
        self._clock = clock
        self._checked: dict[str, datetime] = {}

    async def ensure(self, namespace: str) -> None:
        """Create missing objects.

        Raises:
            ApiError: The API server rejects an object.
        """
        checked = self._checked.get(namespace)
        if checked is not None and self._clock() < checked + _CHECK_AGAIN:
            return
        labels = {"app.kubernetes.io/managed-by": "perdure", "app.kubernetes.io/part-of": "perdure"}
        await self._create(
            kube.path(kube.CORE, namespace, "serviceaccounts"),
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": self._name, "labels": labels},
                "automountServiceAccountToken": False,
            },
        )
        await self._create(
            kube.path(kube.RBAC, namespace, "rolebindings"),
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": self._name, "labels": labels},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self._name},
                "subjects": [{"kind": "ServiceAccount", "name": self._name, "namespace": namespace}],
            },
        )
        self._checked[namespace] = self._clock()

    def forget(self, namespace: str) -> None:
        """Check again next time, because the namespace may have been re-created."""
        self._checked.pop(namespace, None)

    async def _create(self, url: str, body: kube.Object) -> None:
        try:
            await self._client.create(url, body)
        except kube.AlreadyExistsError:
            return
