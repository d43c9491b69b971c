"""Forbidden actions, and information that must not be disclosed."""

import pytest

from support.cluster.namespace import SYSTEM, Cluster, one_step, python

pytestmark = pytest.mark.cluster

SECRET = "nobody-reads-this-in-a-log-7d1f"
WEIRD = [
    "a b/c",
    "$(HOME) ${input}",
    "../../secrets/x",
    "ümläut 日本",
    "\"quotes\" 'and' `ticks`",
    "line\nbreak",
    "-._~:@!*",
    "x" * 900,
]


def test_inputs_and_heartbeat_details_are_not_logged(namespace: Cluster) -> None:
    code = f"activity.heartbeat({{'at': '{SECRET}'}})\nraise activity.ApplicationError('no', details='{SECRET}')"
    once = {"exponential": {"maximumAttempts": 2, "initialInterval": "1s"}}
    namespace.start("quiet", one_step(python(code, heartbeatTimeout="20s", retryPolicy=once), input={"token": SECRET}))
    assert namespace.closed("quiet")["phase"] == "Failed"
    logs = Cluster(namespace.kubectl, namespace.kubeconfig, SYSTEM)("logs", "deployment/perdure", "--tail=-1")
    assert logs
    assert SECRET not in logs


def test_a_workflow_id_can_be_any_text(namespace: Cluster) -> None:
    for number, text in enumerate(WEIRD):
        namespace.start(
            f"odd-{number}", one_step(python("activity.complete(activity.info().workflow_id)"), workflowId=text)
        )
    for number, text in enumerate(WEIRD):
        assert namespace.closed(f"odd-{number}")["output"] == text


@pytest.mark.parametrize(
    ("account", "verb", "resource", "allowed"),
    [
        (f"{SYSTEM}:perdure", "get", "secrets", False),
        (f"{SYSTEM}:perdure", "get", "configmaps", False),
        (f"{SYSTEM}:perdure", "create", "pods/exec", False),
        (f"{SYSTEM}:perdure", "update", "workflowruns.perdure.dev", False),
        (f"{SYSTEM}:perdure", "delete", "leases.coordination.k8s.io", False),
        (f"{SYSTEM}:perdure", "create", "clusterrolebindings.rbac.authorization.k8s.io", False),
        (f"{SYSTEM}:perdure", "get", "pods/log", True),
        ("{own}:perdure-activity", "patch", "leases.coordination.k8s.io", True),
        ("{own}:perdure-activity", "get", "leases.coordination.k8s.io", True),
        ("{own}:perdure-activity", "create", "leases.coordination.k8s.io", False),
        ("{own}:perdure-activity", "list", "leases.coordination.k8s.io", False),
        ("{own}:perdure-activity", "get", "pods", False),
        ("{own}:perdure-activity", "get", "secrets", False),
        ("{own}:perdure-activity", "get", "workflowruns.perdure.dev", False),
    ],
)
def test_accounts_have_only_the_permissions_that_they_need(
    namespace: Cluster, account: str, verb: str, resource: str, *, allowed: bool
) -> None:
    if "{own}" in account:
        namespace.start("beats", one_step(python("activity.heartbeat(1)", heartbeatTimeout="20s")))
        namespace.closed("beats")
    who = f"system:serviceaccount:{account.format(own=namespace.namespace)}"
    kind, _, part = resource.partition("/")
    asked = ["auth", "can-i", verb, kind, "--as", who, *([f"--subresource={part}"] if part else [])]
    answer = namespace.run(*asked).stdout.strip()
    assert answer == ("yes" if allowed else "no")
