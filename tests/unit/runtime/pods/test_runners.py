"""The pods of HTTP requests and of actions on Kubernetes objects."""

import json
from typing import Any

from perdure.api import labels
from perdure.runtime.attempts import PodSettings
from perdure.runtime.pods.builder import build_pod

HTTP = {
    "url": "https://shop/orders",
    "headers": [
        {"name": "X-Plain", "value": "v"},
        {"name": "Authorization", "value": "Bearer ", "secret": {"name": "api", "key": "token"}},
    ],
    "ca": {"name": "shop-ca", "key": "ca.crt"},
}
RESOURCE = {
    "action": "Create",
    "serviceAccountName": "trainer",
    "manifest": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}},
}


def build(make: Any, **fields: Any) -> dict[str, Any]:
    return build_pod(make.run, make.attempt, make.activity(**fields), PodSettings(sidecar_image="ours"))


def test_a_request_is_sent_by_a_pod_without_a_token(make: Any) -> None:
    pod = build(make, http=HTTP)
    (container,) = pod["spec"]["containers"]
    assert (container["image"], container["command"]) == ("ours", ["python", "-m", "perdure.runner"])
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert container["resources"] == {"requests": {"cpu": "10m", "memory": "64Mi"}}
    work = json.loads(pod["metadata"]["annotations"][labels.WORK_ANNOTATION])["http"]
    assert (work["url"], work["method"], work["timeout"]) == ("https://shop/orders", "GET", "30s")


def test_only_the_pod_reads_secrets(make: Any) -> None:
    (container,) = build(make, http=HTTP)["spec"]["containers"]
    variables = {each["name"]: each.get("valueFrom", each.get("value")) for each in container["env"]}
    assert variables["PERDURE_HEADER_1"] == {"secretKeyRef": {"name": "api", "key": "token"}}
    assert variables["PERDURE_CA"] == {"configMapKeyRef": {"name": "shop-ca", "key": "ca.crt"}}
    assert "PERDURE_HEADER_0" not in variables
    assert variables["PERDURE_WORK_FILE"] == "/perdure/work.json"


def test_pods_with_the_operators_image_get_its_pull_secrets(make: Any) -> None:
    settings = PodSettings(sidecar_image="ours", pull_secrets=("one", "two"))

    def secrets(**fields: Any) -> list[str]:
        spec = build_pod(make.run, make.attempt, make.activity(**fields), settings)["spec"]
        return [each["name"] for each in spec.get("imagePullSecrets") or ()]

    assert secrets(http=HTTP) == secrets(resource=RESOURCE) == ["one", "two"]
    assert secrets(container={"image": "theirs"}) == []
    assert secrets(container={"image": "theirs"}, sidecar={}) == ["one", "two"]
    assert secrets(container={"image": "theirs"}, sidecar={"image": "mine"}) == []
    template = {"spec": {"containers": [{"image": "ours"}], "imagePullSecrets": [{"name": "two"}]}}
    assert secrets(podTemplate=template) == ["two", "one"]


def test_an_action_has_the_permissions_of_its_service_account(make: Any) -> None:
    pod = build(make, resource={**RESOURCE, "resources": {"limits": {"memory": "1Gi"}}})
    assert pod["spec"]["serviceAccountName"] == "trainer"
    assert "automountServiceAccountToken" not in pod["spec"]
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    work = json.loads(pod["metadata"]["annotations"][labels.WORK_ANNOTATION])["resource"]
    assert work["manifest"] == RESOURCE["manifest"]
    assert "resources" not in work


def test_the_pod_satisfies_the_restricted_level(make: Any) -> None:
    pod = build(make, http=HTTP)
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False
