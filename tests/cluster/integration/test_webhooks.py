"""Webhooks with a real API server: permissions of the operator, and requests to the deployed operator."""

import hashlib
import hmac
import json

import pytest

from support.cluster.namespace import SYSTEM, Cluster, Json

pytestmark = pytest.mark.cluster

SECRET = "a secret of the test"
POST = """
import ssl, sys, urllib.error, urllib.request
path, body, signature = sys.argv[1:]
request = urllib.request.Request(f"https://localhost:7243{path}", body.encode(), {"X-Hub-Signature-256": signature})
try:
    answer = urllib.request.urlopen(request, context=ssl._create_unverified_context())
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
"""
"""Runs in the pod of the operator, which has Python and no curl."""


def webhook(name: str, **spec: Json) -> Json:
    complete = {"signature": {"secret": {"name": "shared"}}, **spec}
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "Webhook", "metadata": {"name": name}, "spec": complete}


def post(cluster: Cluster, name: str, body: Json, secret: str = SECRET) -> tuple[int, Json]:
    system = Cluster(cluster.kubectl, cluster.kubeconfig, SYSTEM)
    text = json.dumps(body)
    signature = f"sha256={hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()}"
    path = f"/webhooks/{cluster.namespace}/{name}"
    status, _, answer = system(
        "exec", "deployment/perdure", "--", "python", "-c", POST, path, text, signature
    ).partition(" ")
    return int(status), json.loads(answer)


def test_a_granted_secret_makes_a_webhook_ready_and_its_requests_start_and_signal_runs(namespace: Cluster) -> None:
    namespace("create", "secret", "generic", "shared", f"--from-literal=secret={SECRET}")
    namespace("create", "secret", "generic", "other", f"--from-literal=secret={SECRET}")
    waits = {"steps": [{"name": "paid", "waitForSignal": {"name": "paid"}}], "output": "${steps.paid.output}"}
    namespace.apply(
        {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "order"}, "spec": waits},
        webhook("orders", workflowId="order-${body.order}", start={"workflow": {"name": "order"}}),
        webhook("payments", workflowId="order-${body.order}", signal={"name": "paid", "input": "${body}"}),
        webhook("others", signature={"secret": {"name": "other"}}, start={"workflow": {"name": "order"}}),
    )
    refused = namespace.condition("webhook", "orders", "SecretNotReadable")
    assert "is not allowed to read Secret `shared`" in refused["message"]
    assert f"system:serviceaccount:{SYSTEM}:perdure" in refused["message"]
    assert post(namespace, "orders", {"order": 1})[0] == 401

    namespace("create", "role", "shared", "--verb=get", "--resource=secrets", "--resource-name=shared")
    namespace("create", "rolebinding", "shared", "--role=shared", f"--serviceaccount={SYSTEM}:perdure")
    for name in ("orders", "payments"):
        namespace.condition("webhook", name, "Accepted")
    assert namespace.condition("webhook", "others", "SecretNotReadable")["status"] == "False"

    status, created = namespace.wait("an operator to read the secret", lambda: _accepted(namespace, {"order": 1}))
    assert (status, created["kind"]) == (202, "WorkflowRun")
    assert post(namespace, "orders", {"order": 1}) == (200, {**created, "outcome": "Duplicate"})
    assert post(namespace, "payments", {"order": 1}, "another secret")[0] == 401
    status, signaled = post(namespace, "payments", {"order": 1})
    assert (status, signaled["kind"]) == (202, "Operation")
    assert namespace.closed(created["name"])["output"] == {"order": 1}
    run = namespace.get("workflowrun", created["name"])
    assert run is not None
    assert run["metadata"]["labels"]["perdure.dev/webhook"] == "orders"


def _accepted(namespace: Cluster, body: Json) -> tuple[int, Json] | None:
    """Send a request; None if the operator that got it has not read the secret again yet."""
    answer = post(namespace, "orders", body)
    return answer if answer[0] == 202 else None
