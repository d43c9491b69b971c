"""The ServiceAccount that activities with a Lease run under: made where it is needed, once per namespace.

Its rights are those of a ClusterRole that the chart brings: to read and patch Leases. An admission policy narrows that to the
pod's own.
"""

from perdure.kube import client as api


class ActivityIdentity:
    """Makes sure that a namespace has the ServiceAccount and its RoleBinding."""

    def __init__(self, client: api.Client, name: str) -> None:
        """One `name` for the ServiceAccount, the RoleBinding, and the ClusterRole it refers to."""
        self._client = client
        self._name = name
        self._ready: set[str] = set()

    async def ensure(self, namespace: str) -> None:
        """Create what is missing.

        Raises:
            ApiError: the API server refuses it.
        """
        if namespace in self._ready:
            return
        labels = {"app.kubernetes.io/managed-by": "perdure", "app.kubernetes.io/part-of": "perdure"}
        await self._create(
            api.path(api.CORE, namespace, "serviceaccounts"),
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": self._name, "labels": labels},
                "automountServiceAccountToken": False,
            },
        )
        await self._create(
            api.path(api.RBAC, namespace, "rolebindings"),
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": self._name, "labels": labels},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self._name},
                "subjects": [{"kind": "ServiceAccount", "name": self._name, "namespace": namespace}],
            },
        )
        self._ready.add(namespace)

    def forget(self, namespace: str) -> None:
        """Look again next time: the namespace may have been made anew."""
        self._ready.discard(namespace)

    async def _create(self, url: str, body: api.Object) -> None:
        try:
            await self._client.create(url, body)
        except api.AlreadyExistsError:
            return
