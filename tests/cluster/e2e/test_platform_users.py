"""A platform that chooses the users of pods, as OpenShift's `restricted-v2` does: all pods run with `runAsUser=null`.

Two policies of the API server play the platform in a namespace: one gives pods without a user the first user of the namespace's
range, and the other rejects pods that ask for a user or a group out of the range. The namespace also enforces the Pod Security
Standard `restricted`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from perdure.runtime.artifact_sets import build_deletion_pod
from perdure.runtime.attempts import PodSettings
from support.artifacts.gateway import BUCKET
from support.cluster.artifacts import start, store, url_of
from support.cluster.namespace import IMAGE, Cluster, Json, run_manifest, temporary_namespace
from support.cluster.releases import CHART, helm, install
from support.cluster.volumes import local_volume
from support.manuals import REPOSITORY

pytestmark = [pytest.mark.cluster, pytest.mark.own]

USER = 1_000_710_000
"""The first user of the namespace. No image knows it."""
END = USER + 10_000
POLICIES = "admissionregistration.k8s.io/v1"


@pytest.fixture
def platform(cluster: Cluster) -> Iterator[Cluster]:
    """A namespace of such a platform, without the deployed operator."""
    served = cluster.run("api-resources", f"--api-group={POLICIES.partition('/')[0]}", "--no-headers").stdout
    if f"{POLICIES} " not in "".join(line for line in served.splitlines(keepends=True) if "mutatingadmission" in line):
        pytest.skip("MutatingAdmissionPolicies exist from Kubernetes 1.36")
    with temporary_namespace(cluster, excluded=True) as namespace, enforced(namespace):
        yield namespace


@contextmanager
def enforced(namespace: Cluster) -> Iterator[None]:
    """Create the policies, and wait until the API server follows them."""
    cluster_wide, pods = policies(namespace.namespace)
    created = [*cluster_wide, *pods]
    namespace.apply(*created)
    try:
        sets_a_user = {"spec": {"containers": [container()], "securityContext": {"runAsUser": 65532}}}
        namespace.wait("the rejection of a user", lambda: "must be in the range" in refusal(namespace, sets_a_user))
        sets_none = {"spec": {"containers": [container()]}}
        namespace.wait("a user from the platform", lambda: not refusal(namespace, sets_none))
        yield
    finally:
        for each in created:
            namespace.objects.delete(each["kind"].lower(), "", each["metadata"]["name"])


def policies(name: str) -> tuple[list[Json], list[Json]]:
    """The policy that sets users, the one that checks them, and their bindings."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]
    where = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        "resourceRules": rules,
    }
    context = "object.spec.?securityContext"
    in_range = f".all(id, id >= {USER} && id < {END})"
    ids = (
        f"(object.spec.containers + object.spec.?initContainers.orValue([])).map(c, c.?securityContext.?runAsUser)"
        f" + [{context}.?runAsUser, {context}.?fsGroup]"
    )
    change = f"Object{{spec: Object.spec{{securityContext: Object.spec.securityContext{{runAsUser: {USER}, fsGroup: {USER}}}}}}}"

    def policy(kind: str, spec: Json, binding: Json) -> list[Json]:
        head = {"apiVersion": POLICIES, "metadata": {"name": f"{name}-{kind.lower()}"}}
        spec = {"failurePolicy": "Fail", "matchConstraints": where, **spec}
        binding = {"policyName": head["metadata"]["name"], **binding}
        return [
            {**head, "kind": f"{kind}AdmissionPolicy", "spec": spec},
            {**head, "kind": f"{kind}AdmissionPolicyBinding", "spec": binding},
        ]

    none_set = f"!{context}.?runAsUser.hasValue() && !{context}.?fsGroup.hasValue()"
    mutating = {
        "reinvocationPolicy": "Never",
        "matchConditions": [{"name": "none-set", "expression": none_set}],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": change}}],
    }
    expression = f"({ids}).filter(id, id.hasValue()).map(id, id.value()){in_range}"
    message = f"runAsUser and fsGroup must be in the range from {USER} to {END}"
    validating = {
        "validations": [
            {"expression": expression, "message": message},
            {"expression": f"{context}.?runAsUser.hasValue()", "message": "no user"},
        ]
    }
    return policy("Mutating", mutating, {}), policy("Validating", validating, {"validationActions": ["Deny"]})


def container(**fields: object) -> Json:
    """A container that the Pod Security Standard allows."""
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {"name": "main", "image": IMAGE, "command": ["true"], "securityContext": context, **fields}


def refusal(namespace: Cluster, template: Json) -> str:
    """Why the API server would reject a pod; empty: it would not."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked"}, "spec": template["spec"]}
    return namespace.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod)).stderr


def activity(name: str, program: str, **options: object) -> Json:
    return {
        "name": name,
        "startToCloseTimeout": "3m",
        "retryPolicy": {"exponential": {"maximumAttempts": 1}},
        "container": {"image": IMAGE, "command": ["sh", "-ec", program]},
        **options,
    }


def work(server: str) -> Json:
    """A definition with an activity of each kind that has pods of Perdure, or containers of it in them."""
    who, result = 'printf "\\"%s\\"" "$(id -u)"', "> /dev/termination-log"
    script = {"image": IMAGE, "result": "LastLine", "source": who}
    http = {"url": f"{server}/id", "output": "${response.body}"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}, "data": {"a": "b"}}
    written = {"outputs": [{"name": "report", "path": "/out/report"}], "archiveLogs": True, "sizeLimit": "10Mi"}
    read = {"inputs": [{"name": "report", "path": "/in/report", "from": "${input}"}], "sizeLimit": "10Mi"}
    workspace = [{"name": "files", "mountPath": "/data"}]
    definitions = [
        activity("plain", f"{who} {result}"),
        activity("sidecar", f"{who} > $PERDURE_FILES/result", sidecar={}),
        activity("write", "echo logged; id -u > /out/report", artifacts=written),
        activity("read", 'printf "\\"%s\\"" "$(cat /in/report)" > /dev/termination-log', artifacts=read),
        activity("keep", "id -u > /data/who", workspaces=workspace),
        activity("look", 'printf "\\"%s\\"" "$(cat /data/who)" > /dev/termination-log', workspaces=workspace),
    ]
    for name, kind in (("script", script), ("http", http)):
        definitions.append({"name": name, "startToCloseTimeout": "3m", name: kind})
    create = {"action": "Create", "serviceAccountName": "publisher", "owned": True, "manifest": config_map}
    definitions.append(
        {"name": "resource", "startToCloseTimeout": "3m", "resource": {**create, "output": "${object.kind}"}}
    )
    inputs = {"read": "${steps.write.artifacts.report}"}
    order = ["plain", "sidecar", "script", "http", "resource", "write", "read", "keep", "look"]
    steps = [
        {"name": name, "activity": {"name": name, **({"input": inputs[name]} if name in inputs else {})}}
        for name in order
    ]
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    users = ["plain", "sidecar", "script", "read", "look"]
    return {
        "inline": {
            "workspaces": [{"name": "files", "volumeClaimTemplate": claim}],
            "activities": definitions,
            "steps": steps,
            "output": {
                "users": [f"${{steps.{name}.output}}" for name in users],
                "http": "${steps.http.output}",
                "resource": "${steps.resource.output}",
            },
        }
    }


def perdure(namespace: Cluster, *arguments: str) -> str:
    command = [sys.executable, "-c", "from perdure.cli.app import main; main()", *arguments]
    done = subprocess.run(
        [*command, "-n", namespace.namespace],
        env={**os.environ, "KUBECONFIG": str(namespace.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SERVER = """
import http.server, os
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(os.getuid()).encode())
http.server.ThreadingHTTPServer(("", 8000), Answer).serve_forever()
"""


def test_every_pod_runs_as_the_user_of_the_platform(platform: Cluster, tmp_path: Path) -> None:
    install(platform, "runAsUser=null", "console.enabled=true")
    helm(platform, "test", "perdure", "--timeout=4m")
    start(platform, "server", ["python", "-c", SERVER])
    store(platform)
    platform.apply(*yaml.safe_load_all((REPOSITORY / "examples/work/account.yaml").read_text(encoding="utf-8")))
    with local_volume(platform, f"files-{platform.namespace}"):
        platform.apply(run_manifest("all", work(url_of(platform, "server"))))
        status = platform.closed("all", seconds=600)
    assert status["phase"] == "Completed", status.get("failure")
    assert status["output"] == {"users": [str(USER)] * 5, "http": USER, "resource": "ConfigMap"}
    perdure(platform, "artifacts", "get", "all", "write/report", "--file", str(tmp_path / "report"))
    assert "logged" in perdure(platform, "logs", "all")
    pods = {each["metadata"]["name"]: each["spec"] for each in platform.list("pods")}
    assert {each["securityContext"]["runAsUser"] for each in pods.values()} == {USER}
    delete_artifacts(platform)


def delete_artifacts(platform: Cluster) -> None:
    """Delete the artifacts of the run, as the operator does five minutes after nothing holds them any longer."""
    objects = ("exec", "store", "--", "sh", "-c", f"find /tmp/objects/{BUCKET} -type f")
    assert platform(*objects).split()
    settings = PodSettings(run_as_user=None, sidecar_image=IMAGE)
    sets = platform.list("artifactsets")
    pod = build_deletion_pod(platform.namespace, "perdure-artifacts", sets, settings, unique=platform.namespace)
    platform.create(pod)
    platform.wait("the deletion of the artifacts", lambda: not platform(*objects).split())


def test_with_a_fixed_user_no_pod_of_the_chart_starts(platform: Cluster) -> None:
    parts = ("ui.enabled=true", "console.enabled=true", "temporal.enabled=true")
    for fixed in (False, True):
        values = [*parts, *([] if fixed else ["runAsUser=null"])]
        rendered = helm(platform, "template", "perdure", CHART, *(f"--set={value}" for value in values))
        found = [each for each in yaml.safe_load_all(rendered) if each]
        templates = {
            each["metadata"]["name"]: each["spec"].get("template", each)
            for each in found
            if each["kind"] in {"Deployment", "Pod", "Job"}
        }
        assert {"perdure", "perdure-ui", "perdure-console"} <= templates.keys()
        for name, template in templates.items():
            template["spec"].pop("serviceAccountName", None)  # it does not exist here
            problem = refusal(platform, template)
            assert ("must be in the range" in problem) == fixed, (name, problem)
            assert fixed or not problem, (name, problem)
