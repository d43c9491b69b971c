"""The API server admits a write to an activity's Lease from that activity's own pod, and nothing else from it.

The policies are the chart's, installed for one throw-away namespace; the callers are real pods (never scheduled) with
real bound tokens. A caller that already passes for a node, a controller or the operator is impersonated.
"""

import base64
import json
import os
import secrets
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.api import labels
from perdure.runtime.pods import payloads

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).resolve().parents[3]
OPERATOR = "system:serviceaccount:perdure-system:perdure"
ACTIVITY = "perdure-activity"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of the API server; `message` is empty on success."""

    code: int
    message: str
    warnings: str = field(default="", compare=False)


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("PERDURE_CACHE") or f"{base}/perdure")


def tool(name: str) -> str:
    found = shutil.which(name, path=cache_folder() / "bin") or shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is needed: put it on PATH, or run `python3 hack/cluster tools`")
    return found


@dataclass(frozen=True)
class Cluster:
    """A namespace of a real cluster, seen by an administrator and by pods."""

    namespace: str
    release: str

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        kubeconfig = os.environ.get("KUBECONFIG") or str(cache_folder() / "clusters/perdure/kubeconfig")
        command = [tool("kubectl"), "--kubeconfig", kubeconfig, "--namespace", self.namespace, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, *manifests: Json) -> list[Json]:
        """Create objects, and return them as stored."""
        text = self.kubectl("create", "-o", "json", "-f", "-", stdin=yaml.safe_dump_all(manifests))
        decoder, objects, position = json.JSONDecoder(), [], 0
        while position < len(text):
            value, position = decoder.raw_decode(text, position)
            objects.append(value)
            position += len(text[position:]) - len(text[position:].lstrip())
        return objects

    @cached_property
    def connection(self) -> tuple[str, ssl.SSLContext]:
        """Address of the API server and how to trust it; no one's credentials."""
        view = json.loads(self.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        cluster = view["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return cluster["server"], ssl.create_default_context(cadata=authority)

    def token(self, account: str, pod: Json | None = None) -> str:
        bound = []
        if pod is not None:
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            bound = ["--bound-object-kind=Pod", f"--bound-object-name={name}", f"--bound-object-uid={uid}"]
        return self.kubectl("create", "token", account, *bound).strip()

    def patch(self, token: str, lease: str, change: Json) -> Answer:
        """Patch a Lease as the owner of a token."""
        server, trust = self.connection
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{lease}"
        request = urllib.request.Request(
            server + path,
            data=json.dumps(change).encode(),
            method="PATCH",
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
        )
        try:
            with urllib.request.urlopen(request, context=trust, timeout=20) as response:
                return Answer(response.status, "")
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, json.load(error)["message"], str(error.headers.get_all("Warning")))

    def patch_as(self, user: str, lease: str, change: Json, *groups: str) -> str:
        """Patch a Lease as someone impersonated; return the refusal, or nothing."""
        flags = [f"--as-group={group}" for group in groups]
        done = self.run("patch", "lease", lease, "--type=merge", "-p", json.dumps(change), f"--as={user}", *flags)
        return "" if done.returncode == 0 else done.stderr


def renewal(second: int) -> Json:
    return {"spec": {"renewTime": f"2026-11-21T00:00:{second:02d}.000000Z"}}


def annotations(**values: str | None) -> Json:
    """A patch of Perdure's annotations; underscores stand for dashes."""
    named = {f"{labels.GROUP}/{name.replace('_', '-')}": value for name, value in values.items()}
    return {"metadata": {"annotations": named}}


def make_account(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


def make_pod(name: str, account: str) -> Json:
    spec = {
        "serviceAccountName": account,
        "schedulerName": "nobody",
        "containers": [{"name": "activity", "image": "none"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def make_lease(name: str, owner: Json | None = None) -> Json:
    metadata: Json = {"name": name}
    if owner is not None:
        reference = {"apiVersion": "v1", "kind": "Pod"} | {x: owner["metadata"][x] for x in ("name", "uid")}
        metadata |= {
            "labels": {labels.RUN_ID_LABEL: "a1b2", labels.RUN_LABEL: "order"},
            "annotations": {labels.ATTEMPT_ANNOTATION: "1", labels.CANCEL_REQUESTED_ANNOTATION: "stop"},
            "ownerReferences": [reference],
        }
    spec = {"holderIdentity": name, "leaseDurationSeconds": 30, "leaseTransitions": 1}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def make_role(name: str, rules: list[Json], *subjects: Json) -> tuple[Json, Json]:
    """A Role and its binding."""
    api = "rbac.authorization.k8s.io"
    reference = {"apiGroup": api, "kind": "Role", "name": name}
    role = {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}
    return role, {
        "apiVersion": f"{api}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": reference,
        "subjects": list(subjects),
    }


@dataclass(frozen=True, slots=True)
class Fence:
    """Two attempts of one activity, an activity with another ServiceAccount, and pods that are not activities."""

    cluster: Cluster
    first: str
    """Token of the pod order-1-1, a superseded attempt that still runs."""
    second: str
    """Token of the pod order-1-2, the attempt that counts."""
    unbound: str
    """Token of perdure-activity, bound to no pod."""
    billing: str
    """Token of a pod with the ServiceAccount billing, which is bound to the role of activities."""
    wildcard: str
    """Token of a pod whose ServiceAccount may do everything here."""
    leader: str
    """Token of a pod that has to do with leader election and nothing with Perdure."""


def chart(cluster: Cluster, *, reach: str) -> list[Json]:
    """The chart's policies and the role of activities, with the identity that a usual install gives its operator.

    Where Perdure is installed in the cluster too, its policies judge the same requests, and must come to the same.
    """
    settings = [f"watchNamespaces={{{reach}}}"] if reach else []
    done = subprocess.run(
        [
            *(tool("helm"), "template", cluster.release, str(REPOSITORY / "charts/perdure")),
            *("--namespace=perdure-system", "--set=serviceAccount.name=perdure"),
            *("--show-only=templates/leasefence.yaml", "--show-only=templates/rbac-activity.yaml"),
            *(f"--set={setting}" for setting in settings),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def warn_everywhere(policy: Json) -> Json:
    """A cluster-wide binding of a policy that only warns, because the cluster is shared."""
    name = policy["metadata"]["name"]
    return {
        "apiVersion": policy["apiVersion"],
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": f"{name}-warn", "labels": policy["metadata"]["labels"]},
        "spec": {"policyName": name, "validationActions": ["Warn"]},
    }


def until_in_force(fence: Fence) -> None:
    """Wait for the API server to have compiled the policies: some seconds at most.

    The warning shows it, because the rejection may come from a Perdure that is installed in the cluster.
    """
    deadline = time.monotonic() + 60
    for lease, by in (("leader", "perdure-other-leases"), ("order-1-2", "perdure-leases")):
        want = f"{fence.cluster.release}-{by}-warn"
        while want not in fence.cluster.patch(fence.first, lease, renewal(0)).warnings:
            assert time.monotonic() < deadline, f"the policy {by} did not come into force"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def fence() -> Iterator[Fence]:
    suffix = secrets.token_hex(3)
    cluster = Cluster(namespace=f"fence-{suffix}", release=f"fence-{suffix}")
    manifests = chart(cluster, reach=cluster.namespace)
    (role,) = [x for x in manifests if x["kind"] == "ClusterRole"]
    policies = [x for x in manifests if x["kind"].startswith("ValidatingAdmissionPolicy")]
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    leases = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "patch"]}]
    accounts = {x: {"kind": "ServiceAccount", "name": x} for x in (ACTIVITY, "billing", "wildcard", "leader")}
    operator = {"kind": "ServiceAccount", "name": "perdure", "namespace": "perdure-system"}
    editor = {"kind": "User", "name": "editor", "apiGroup": "rbac.authorization.k8s.io"}
    cluster.kubectl("create", "namespace", cluster.namespace)
    try:
        cluster.apply(
            *map(make_account, accounts),
            *make_role("activity", role["rules"], accounts[ACTIVITY], accounts["billing"]),
            *make_role("everything", everything, accounts["wildcard"]),
            *make_role("leases", leases, accounts["leader"], operator, editor),
        )
        pods = {
            x["metadata"]["name"]: x
            for x in cluster.apply(
                make_pod("order-1-1", ACTIVITY),
                make_pod("order-1-2", ACTIVITY),
                make_pod("billing-1-1", "billing"),
                make_pod("wildcard", "wildcard"),
                make_pod("leader", "leader"),
            )
        }
        attempts = ("order-1-1", "order-1-2", "billing-1-1")
        cluster.apply(*(make_lease(x, pods[x]) for x in attempts), make_lease("leader"), *policies)
        cluster.apply(*(warn_everywhere(x) for x in policies if x["kind"] == "ValidatingAdmissionPolicy"))
        scene = Fence(
            cluster,
            first=cluster.token(ACTIVITY, pods["order-1-1"]),
            second=cluster.token(ACTIVITY, pods["order-1-2"]),
            unbound=cluster.token(ACTIVITY),
            billing=cluster.token("billing", pods["billing-1-1"]),
            wildcard=cluster.token("wildcard", pods["wildcard"]),
            leader=cluster.token("leader", pods["leader"]),
        )
        until_in_force(scene)
        yield scene
    finally:
        kinds = "validatingadmissionpolicybindings,validatingadmissionpolicies"
        cluster.run("delete", kinds, "-l", f"app.kubernetes.io/instance={cluster.release}")
        cluster.run("delete", "namespace", cluster.namespace, "--wait=false")


# --- The Lease of an activity -----------------------------------------------------------------------------------------


def test_a_pod_renews_its_own_lease(fence: Fence) -> None:
    change = renewal(1) | annotations(heartbeat_details='{"done": 3}', result='{"ok": true}')
    assert fence.cluster.patch(fence.second, "order-1-2", change) == Answer(200, "")
    assert fence.cluster.patch(fence.billing, "billing-1-1", renewal(1)) == Answer(200, "")


def test_a_pod_can_remove_its_heartbeat_details(fence: Fence) -> None:
    assert fence.cluster.patch(fence.second, "order-1-2", annotations(heartbeat_details="1")).code == 200
    assert fence.cluster.patch(fence.second, "order-1-2", annotations(heartbeat_details=None)).code == 200


def test_a_superseded_attempt_cannot_change_the_lease_of_the_next(fence: Fence) -> None:
    answer = fence.cluster.patch(fence.first, "order-1-2", renewal(2))
    assert answer.code == 403
    assert (
        'Lease "order-1-2" must only be changed by the pod "order-1-2" that owns it or by Perdure,'
        f' not by pod "order-1-1" as "system:serviceaccount:{fence.cluster.namespace}:{ACTIVITY}"'
    ) in answer.message


def test_a_pod_of_another_activity_is_rejected_with_any_service_account(fence: Fence) -> None:
    answer = fence.cluster.patch(fence.billing, "order-1-2", renewal(2))
    assert answer.code == 403
    assert 'not by pod "billing-1-1"' in answer.message


def test_a_token_that_is_not_bound_to_a_pod_is_rejected(fence: Fence) -> None:
    answer = fence.cluster.patch(fence.unbound, "order-1-2", renewal(2))
    assert answer.code == 403
    assert f'not by "system:serviceaccount:{fence.cluster.namespace}:{ACTIVITY}"' in answer.message


def test_a_pod_with_the_name_but_not_the_uid_of_the_owner_is_rejected(fence: Fence) -> None:
    (pod,) = fence.cluster.apply(make_pod("order-1-3", ACTIVITY))
    owner = json.loads(fence.cluster.kubectl("get", "pod", "order-1-2", "-o", "json"))
    fence.cluster.apply(make_lease("order-1-3", owner))
    answer = fence.cluster.patch(fence.cluster.token(ACTIVITY, pod), "order-1-3", renewal(2))
    assert answer.code == 403
    assert "this pod has the name but not the UID of the owner" in answer.message


@pytest.mark.parametrize(
    ("change", "want_field"),
    [
        ({"spec": {"holderIdentity": "me"}}, "spec.holderIdentity"),
        ({"spec": {"holderIdentity": None}}, "spec.holderIdentity"),
        ({"spec": {"leaseTransitions": 2}}, "spec.leaseTransitions"),
        ({"spec": {"acquireTime": "2026-11-21T00:00:00.000000Z"}}, "spec.acquireTime"),
        ({"metadata": {"labels": {labels.RUN_ID_LABEL: "c3d4"}}}, "metadata.labels"),
        ({"metadata": {"labels": {labels.RUN_ID_LABEL: None}}}, "metadata.labels"),
        ({"metadata": {"ownerReferences": None}}, "metadata.ownerReferences"),
        ({"metadata": {"finalizers": ["example.com/stay"]}}, "metadata.finalizers"),
        (annotations(attempt="2"), f"annotation {labels.ATTEMPT_ANNOTATION}"),
        (annotations(cancel_requested=None), f"annotation {labels.CANCEL_REQUESTED_ANNOTATION}"),
        (annotations(more="x"), "annotation perdure.dev/more"),
    ],
)
def test_a_pod_cannot_change_other_fields_of_its_lease(fence: Fence, change: Json, want_field: str) -> None:
    answer = fence.cluster.patch(fence.second, "order-1-2", change)
    assert answer.code == 403
    assert answer.message.endswith(
        'pod "order-1-2" must only change spec.renewTime and the annotations perdure.dev/heartbeat-details'
        f' and perdure.dev/result of its Lease "order-1-2", not {want_field}'
    )


@pytest.mark.parametrize(
    ("annotation", "limit", "want_what"),
    [
        ("heartbeat_details", payloads.HEARTBEAT_DETAILS_LIMIT, "heartbeat details"),
        ("result", payloads.LARGE_RESULT_LIMIT, "a result"),
    ],
)
def test_annotations_written_by_a_pod_have_a_size_limit(
    fence: Fence, annotation: str, limit: int, want_what: str
) -> None:
    for text in ("x" * limit, "é" * (limit // 2)):
        change = annotations(**{annotation: text})
        assert fence.cluster.patch(fence.second, "order-1-2", change) == Answer(200, "")
        answer = fence.cluster.patch(fence.second, "order-1-2", annotations(**{annotation: text + "x"}))
        assert answer.code == 413
        assert answer.message.endswith(
            f'{want_what} that pod "order-1-2" writes to Lease "order-1-2" must have at most {limit} bytes,'
            f" not {limit + 1}"
        )
    assert fence.cluster.patch(fence.second, "order-1-2", annotations(**{annotation: None})).code == 200


def test_the_operator_can_request_cancellation(fence: Fence) -> None:
    assert not fence.cluster.patch_as(OPERATOR, "order-1-1", annotations(cancel_requested="because"))


def test_administrators_and_controllers_can_change_leases(fence: Fence) -> None:
    change = json.dumps(annotations(cancel_requested="by hand"))
    fence.cluster.kubectl("patch", "lease", "order-1-1", "--type=merge", "-p", change)
    collector = "system:serviceaccount:kube-system:generic-garbage-collector"
    assert not fence.cluster.patch_as(collector, "order-1-1", {"metadata": {"labels": {"seen": "yes"}}})
    assert not fence.cluster.patch_as("root", "order-1-1", renewal(3), "system:masters")


def test_permission_to_edit_leases_does_not_suffice(fence: Fence) -> None:
    refusal = fence.cluster.patch_as("editor", "order-1-1", renewal(4))
    assert 'must only be changed by the pod "order-1-1" that owns it or by Perdure, not by "editor"' in refusal


# --- Leases of others -------------------------------------------------------------------------------------------------


def test_an_activity_cannot_take_over_a_leader_election(fence: Fence) -> None:
    for token, account in ((fence.first, ACTIVITY), (fence.unbound, ACTIVITY), (fence.billing, "billing")):
        answer = fence.cluster.patch(token, "leader", {"spec": {"holderIdentity": "me"}})
        assert answer.code == 403
        assert answer.message.endswith(
            f'"system:serviceaccount:{fence.cluster.namespace}:{account}" runs activities of Perdure and must only'
            ' change their own Leases, not Lease "leader", which does not belong to Perdure'
        )


def test_an_activity_cannot_label_another_lease_as_perdures(fence: Fence) -> None:
    answer = fence.cluster.patch(fence.first, "leader", {"metadata": {"labels": {labels.RUN_ID_LABEL: "a1b2"}}})
    assert answer.code == 403


@pytest.mark.parametrize("who", ["wildcard", "leader"])
def test_pods_that_are_not_activities_can_change_their_leases(fence: Fence, who: str) -> None:
    assert fence.cluster.patch(getattr(fence, who), "leader", renewal(5)) == Answer(200, "")


def test_system_leases_are_not_subject_to_the_policies(fence: Fence) -> None:
    for namespace, user, groups in (
        ("kube-node-lease", "system:node:{name}", ["system:nodes"]),
        ("kube-system", "system:{name}", []),
    ):
        names = fence.cluster.kubectl("get", "leases", "-n", namespace, "-o", "name").split()
        known = [x.partition("/")[2] for x in names if "/apiserver-" not in x]
        assert known, f"no Lease in {namespace}"
        for lease in known:
            assert "Warning" not in renew_as(
                fence.cluster, namespace, lease, f"--as={user.format(name=lease)}", *(f"--as-group={x}" for x in groups)
            )


def renew_as(cluster: Cluster, namespace: str, lease: str, *identity: str) -> str:
    """Renew someone's Lease as its holder does, in a dry run; return the warnings that kubectl printed.

    On a busy machine, the holder often writes first, so this tries until the test times out.
    """
    while True:
        live = json.loads(cluster.kubectl("get", "lease", lease, "-n", namespace, "-o", "json"))
        live["spec"]["renewTime"] = "2026-11-21T00:00:00.000000Z"
        flags = ("-n", namespace, "--dry-run=server", "-f", "-", *identity)
        done = cluster.run("replace", *flags, stdin=json.dumps(live))
        if done.returncode == 0:
            return done.stderr
        assert "Conflict" in done.stderr, done.stderr


def test_the_policies_compile_without_warnings(fence: Fence) -> None:
    for policy in ("perdure-leases", "perdure-other-leases"):
        name = f"validatingadmissionpolicy/{fence.cluster.release}-{policy}"
        fence.cluster.kubectl("wait", name, "--for=jsonpath={.status.observedGeneration}=1", "--timeout=30s")
        status = json.loads(fence.cluster.kubectl("get", name, "-o", "json"))["status"]
        assert not status.get("typeChecking", {}).get("expressionWarnings")
