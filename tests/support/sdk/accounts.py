"""ServiceAccounts of workers and clients that speak Temporal to a guarded operator."""

import json
from typing import Any

from support.sdk.server import Operator

WORKER = [
    {"apiGroups": ["perdure.dev"], "resources": ["workflowruns/tasks"], "verbs": ["update"]},
    {"apiGroups": ["perdure.dev"], "resources": ["workflowruns"], "verbs": ["get"]},
]
CLIENT = [
    {"apiGroups": ["perdure.dev"], "resources": ["workflowruns"], "verbs": ["get", "list"]},
    {"apiGroups": ["perdure.dev"], "resources": ["workflowruns/temporal", "operations/temporal"], "verbs": ["create"]},
]


def account(operator: Operator, name: str, rules: list[Any], audience: str = "perdure.dev/temporal") -> str:
    """A ServiceAccount with these rights; a token of it, for an audience, or for that of the API server."""
    group, meta = "rbac.authorization.k8s.io", {"name": name, "namespace": operator.namespace}
    operator.cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": operator.namespace}],
        },
    )
    spec = {"expirationSeconds": 600, **({"audiences": [audience]} if audience else {})}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{operator.namespace}/serviceaccounts/{name}/token"
    answer = json.loads(operator.cluster("create", "--raw", path, "-f", "-", stdin=json.dumps(request)))
    token: str = answer["status"]["token"]
    return token
