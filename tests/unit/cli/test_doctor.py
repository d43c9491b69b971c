"""`perdure doctor`: each check passes on a healthy cluster, and otherwise fails with a remedy."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from perdure import VERSION, __version__
from perdure.kube import clock
from perdure.kube.paths import PLURALS
from support.apiserver import ApiServer, items
from support.cli import perdure
from support.clock import stopped_clock
from support.doctor import (
    BINDINGS,
    CRDS,
    DEPLOYMENTS,
    IN_SHOP,
    LEASES,
    OURS,
    PODS,
    POLICIES,
    Json,
    crd,
    deployment,
    findings,
    make_healthy,
    member,
    policy,
    run,
)

DAY = 86_410
"""A little more than the seconds of a day."""


@pytest.fixture
def healthy(server: ApiServer) -> ApiServer:
    return make_healthy(server)


def created(seconds: float, name: str = "order", **fields: Any) -> Json:
    """An object that was created some time ago."""
    time = (clock.now() - timedelta(seconds=seconds)).isoformat()
    return {"metadata": {"name": name, "namespace": "shop", "creationTimestamp": time}, **fields}


def with_condition(kind: str, status: str, reason: str, message: str = "", **fields: Any) -> Json:
    condition = {"type": kind, "status": status, "reason": reason, "message": message}
    return {"conditions": [condition], **fields}


def serving_the_version_before(reason: str, message: str) -> Json:
    serving = {"type": "Ready", "status": "True", "reason": "Idle", "message": ""}
    return {"conditions": [serving, {"type": "RolledOut", "status": "False", "reason": reason, "message": message}]}


@pytest.mark.usefixtures("healthy")
def test_each_check_of_a_healthy_cluster_is_a_line() -> None:
    done = run()
    assert done.exit_code == 0, done.output + repr(done.exception)
    lines = done.stdout.splitlines()
    assert len(lines) == 20
    assert all(line.startswith("✓ OK ") for line in lines), done.stdout
    assert [line[11:31].strip() for line in lines][:4] == ["API server", "CRDs", "Operator", "Versions"]


def test_every_kind_is_checked() -> None:
    crds = Path(__file__).resolve().parents[3] / "crds"
    assert {file.stem.removeprefix("perdure.dev_") for file in crds.glob("*.yaml")} == PLURALS


@pytest.mark.parametrize(
    ("chart", "running", "result", "part"),
    [
        (VERSION, VERSION, "Warning", f"use the command of version {VERSION}"),
        (f"{VERSION}-dev", f"{VERSION}-dev.gc0ffee", "OK", ""),
        (f"{VERSION}-dev.gbad", f"{VERSION}-dev.gc0ffee", "Warning", "remove `image.tag`"),
        ("0.0.9", "0.0.9", "Warning", "install the CRDs of the operator's version"),
    ],
    ids=["a release and a checkout", "a checkout without a commit", "two commits", "two releases"],
)
def test_builds_are_told_apart(healthy: ApiServer, chart: str, running: str, result: str, part: str) -> None:
    healthy.answers[DEPLOYMENTS] = items(deployment(version=chart))
    if chart == VERSION:
        healthy.answers[CRDS] = items(*(crd(kind, chart) for kind in PLURALS))
    healthy.answers[LEASES] = lambda: items(
        *(member(name, "op-1", "op-2", release=running) for name in ("op-1", "op-2"))
    )
    finding = findings()["Versions"]
    assert finding["result"] == result
    assert f"operator {running}, " in finding["message"]
    assert part in finding.get("fix", "")


def test_a_failed_check_shows_its_remedy_and_exits_with_1(healthy: ApiServer) -> None:
    healthy.answers[DEPLOYMENTS] = items()
    done = run()
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    (place,) = (index for index, line in enumerate(lines) if "✗ Failed" in line)
    assert "There is no operator in namespace `perdure-system`" in lines[place]
    assert lines[place + 1].strip().startswith("Fix: ")


def test_no_cluster_is_an_error(healthy: ApiServer) -> None:
    answer = (503, {"kind": "Status", "message": "etcd is down"})
    healthy.answers = dict.fromkeys(healthy.answers, answer)
    done = run()
    assert done.exit_code == 2
    assert "etcd is down" in done.stderr


@pytest.mark.parametrize(
    ("path", "answer", "expected", "part"),
    [
        ("/version", {"major": "1", "minor": "31"}, "API server: Failed", "1.31 is too old"),
        (OURS, {"resources": []}, "CRDs: Failed", "no kind"),
        (OURS, {"resources": [{"name": n} for n in PLURALS - {"payloads"}]}, "CRDs: Failed", "no payloads"),
        (OURS, {"resources": [{"name": n} for n in PLURALS]}, "CRDs: Failed", "No status subresource"),
        (CRDS, items(crd("schedules", "0.0.9")), "Versions: Warning", "0.0.9"),
        (DEPLOYMENTS, items(deployment(version="0.0.9")), "Versions: Warning", "chart 0.0.9: the image is not that"),
        (
            LEASES,
            lambda: items(
                member("op-1", "op-1", "op-2", release=f"{__version__}.gc0ffee"), member("op-2", "op-1", "op-2")
            ),
            "Versions: Warning",
            "the operators are different builds",
        ),
        (POLICIES, items(), "Admission policies: Warning", "None"),
        (BINDINGS, items(), "Admission policies: Failed", "`perdure-runs` denies nothing"),
        (BINDINGS, items(policy("perdure-runs", "Audit")[1]), "Admission policies: Failed", "denies nothing"),
        (DEPLOYMENTS, items(deployment(ready=0)), "Operator: Failed", "0 of 2 pods ready"),
        (DEPLOYMENTS, items(deployment(ready=1)), "Operator: Warning", "1 of 2 pods ready"),
        (DEPLOYMENTS, items(deployment(ready=0, wanted=0)), "Operator: Failed", "scaled to 0"),
        (DEPLOYMENTS, items(deployment(PERDURE_FLEET="")), "Fleet: OK", "A single operator"),
        (DEPLOYMENTS, items(deployment(PERDURE_WATCH_NAMESPACES="a,b")), "Namespace: Failed", "`shop`"),
        (DEPLOYMENTS, items(deployment(PERDURE_EXCLUDE_NAMESPACES="sh*")), "Namespace: Failed", "`shop`"),
        (DEPLOYMENTS, items(deployment(wanted=3, ready=3)), "Fleet: Warning", "2 of 3 operators"),
        (LEASES, items(), "Fleet: Failed", "No operator has a valid Lease"),
        (LEASES, lambda: items(member("op-1", "op-1", ago=60)), "Fleet: Failed", "No operator has a valid Lease"),
        (
            LEASES,
            lambda: items(member("op-1", "op-1"), member("op-2", "op-1", "op-2")),
            "Fleet: Warning",
            "disagree",
        ),
        (LEASES, lambda: items(member("op-1", "op-1", ago=-60)), "Clocks: Failed", "ahead of the API server's"),
        (
            f"{IN_SHOP}/workflowruns",
            items(created(3 * DAY)),
            "Runs: Failed",
            "`order` has been pending for 3d (no operator has seen it)",
        ),
        (f"{IN_SHOP}/workflowruns", lambda: items(created(30)), "Runs: OK", "1 open run"),
        (
            f"{IN_SHOP}/workflowruns",
            items(created(600, status=with_condition("Succeeded", "Unknown", "StartDelayed", phase="Pending"))),
            "Runs: OK",
            "1 open run",
        ),
        (
            f"{IN_SHOP}/workflowruns",
            items(created(9, status=with_condition("Succeeded", "Unknown", "NoWorker", "on `q`", phase="Running"))),
            "Runs: Failed",
            "`order` NoWorker: on `q`",
        ),
        (
            f"{IN_SHOP}/workflowruns",
            items(created(600, status={"phase": "Completed", "completionTime": "2026-01-01T00:00:00Z"})),
            "Runs: OK",
            "0 open runs",
        ),
        (
            f"{IN_SHOP}/schedules",
            items(created(0, "nightly", status=with_condition("Ready", "False", "UnknownTimeZone", "`Mars`"))),
            "Schedules: Failed",
            "`nightly` UnknownTimeZone: `Mars`",
        ),
        (
            f"{IN_SHOP}/schedules",
            items(created(0, "once", status=with_condition("Ready", "False", "NoMoreTimes"))),
            "Schedules: OK",
            "1, all ready",
        ),
        (
            f"{IN_SHOP}/workflows",
            items(created(0, "flow", status=with_condition("Ready", "False", "InvalidWorkflow", "steps[0]"))),
            "Workflows: Failed",
            "`flow` InvalidWorkflow: steps[0]",
        ),
        (
            f"{IN_SHOP}/workerdeployments",
            items(created(0, "etl", status=serving_the_version_before("WorkersFailing", "Version `2`: it crashes"))),
            "WorkerDeployments: Failed",
            "`etl` WorkersFailing: Version `2`: it crashes",
        ),
        (
            f"{IN_SHOP}/workerdeployments",
            items(created(0, "etl", status=serving_the_version_before("Ramping", "10 %"))),
            "WorkerDeployments: OK",
            "1, all ready",
        ),
        (
            "/api/v1/namespaces/shop/pods",
            items(
                created(3 * DAY, "order-1", status=with_condition("PodScheduled", "False", "Unschedulable", "no room"))
            ),
            "Pods: Failed",
            "`order-1` for 3d: no room",
        ),
        (
            "/api/v1/namespaces/shop/pods",
            lambda: items(
                created(5, "order-1", status=with_condition("PodScheduled", "False", "Unschedulable", "no room"))
            ),
            "Pods: OK",
            "1 pending pod",
        ),
    ],
)
def test_each_problem_is_found(healthy: ApiServer, path: str, answer: Any, expected: str, part: str) -> None:
    healthy.answers[path] = answer
    check, _, result = expected.partition(": ")
    finding = findings()[check]
    assert finding["result"] == result
    assert part in finding["message"]
    assert bool(finding.get("fix")) == (result != "OK")


def test_the_reason_why_operator_pods_are_not_ready_is_shown(healthy: ApiServer) -> None:
    waiting = {"name": "operator", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    homeless = with_condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")
    healthy.answers[DEPLOYMENTS] = items(deployment(ready=0))
    healthy.answers[PODS] = items(
        created(9, "op-1", status={"containerStatuses": [waiting]}), created(9, "op-2", status=homeless)
    )
    finding = findings()["Operator"]
    assert finding["message"].endswith(
        "0 of 2 pods ready: `op-1`: ImagePullBackOff; `op-2` has no node: 0/3 nodes are available"
    )


@pytest.mark.parametrize(
    ("denied", "result", "part"),
    [
        (("list", "workflowruns"), "Failed", "You cannot list workflowruns in namespace `shop`"),
        (("create", "operations"), "Warning", "You can read, but not create operations in namespace `shop`"),
    ],
)
def test_missing_permissions_of_the_caller_are_shown(
    healthy: ApiServer, denied: tuple[str, str], result: str, part: str
) -> None:
    def permits(spec: Json) -> bool:
        attributes = spec["resourceAttributes"]
        return "user" in spec or (attributes["verb"], attributes["resource"]) != denied

    healthy.reviews = permits
    found = findings()
    assert (found["Your permissions"]["result"], found["Your permissions"]["message"]) == (result, part)
    assert found["Operator permissions"]["result"] == "OK"


def test_missing_permissions_of_the_operator_are_shown(healthy: ApiServer) -> None:
    def permits(spec: Json) -> bool:
        attributes = spec["resourceAttributes"]
        is_operator = spec.get("user") == "system:serviceaccount:perdure-system:perdure"
        return not (is_operator and attributes["resource"] == "pods" and attributes["namespace"] == "b")

    healthy.reviews = permits
    healthy.answers[DEPLOYMENTS] = items(deployment(PERDURE_WATCH_NAMESPACES="shop,b"))
    found = findings()
    assert found["Your permissions"]["result"] == "OK"
    assert found["Operator permissions"]["result"] == "Failed"
    assert "cannot watch pods in namespace `b`, create pods" in found["Operator permissions"]["message"]


@pytest.mark.parametrize(
    ("path", "check"),
    [(DEPLOYMENTS, "Operator"), (CRDS, "Versions"), (POLICIES, "Admission policies"), (LEASES, "Fleet")],
)
def test_without_permission_a_result_is_unknown(healthy: ApiServer, path: str, check: str) -> None:
    healthy.answers[path] = (403, {"kind": "Status", "reason": "Forbidden", "message": "user cannot list things"})
    finding = findings()[check]
    assert (finding["result"], finding["message"]) == ("Unknown", "user cannot list things")


@pytest.mark.parametrize(
    ("watched", "excluded", "served"),
    [
        ("", "", "all namespaces"),
        ("", "own-*", "all namespaces, except `own-*`"),
        ("a,b", "", "the namespaces `a`, `b`"),
    ],
)
def test_all_namespaces_can_be_checked(healthy: ApiServer, watched: str, excluded: str, served: str) -> None:
    def permits(spec: Json) -> bool:
        attributes = spec["resourceAttributes"]
        return "user" in spec or attributes["verb"] != "delete" or attributes["namespace"] == "shop"

    healthy.reviews = permits
    environment = {"PERDURE_WATCH_NAMESPACES": watched, "PERDURE_EXCLUDE_NAMESPACES": excluded}
    healthy.answers[DEPLOYMENTS] = items(deployment(**environment))
    healthy.answers |= {f"{OURS}/{kind}": items() for kind in PLURALS}
    healthy.answers |= {"/api/v1/pods": items(), f"{OURS}/workflowruns": items(created(600))}
    found = findings("-A")
    assert "`shop/order` has been pending" in found["Runs"]["message"]
    assert found["Namespace"]["message"] == f"The operator serves {served}"
    assert found["Your permissions"]["message"] == "You can read, but not delete workflowruns in all namespaces"


@pytest.mark.usefixtures("healthy")
def test_clock_skew_is_reported() -> None:
    with stopped_clock() as machine:
        machine.forward(timedelta(minutes=5))
        finding = findings()["Clocks"]
    assert finding["result"] == "Warning"
    assert finding["message"].startswith("The clock of this machine is ")
    assert finding["message"].endswith("ahead of that of the API server")


@pytest.mark.usefixtures("healthy")
def test_version_shows_the_installed_versions() -> None:
    def call(*options: str) -> Result:
        return perdure("version", *options)

    assert call().stdout == f"perdure {__version__}\n"
    lines = [f"perdure {__version__}", f"operator {__version__}", f"crds {__version__}", "kubernetes v1.34.1"]
    assert call("--server").stdout.splitlines() == lines
    assert call("--server", "-o", "jsonpath={.kubernetes}").stdout == "v1.34.1\n"
    empty = call("--server", "--system-namespace", "other")
    assert empty.stdout.splitlines()[1] == "operator not found"


FRONTEND = "system:serviceaccount:perdure-system:perdure-frontend"


def frontends(ready: int) -> Json:
    made = deployment(ready=ready)
    labels = {**made["metadata"]["labels"], "app.kubernetes.io/component": "frontend"}
    return {**made, "metadata": {**made["metadata"], "name": "perdure-frontend", "labels": labels}}


@pytest.mark.parametrize(
    ("found", "result", "message"),
    [
        ([frontends(2)], "OK", "2 of 2 pods ready"),
        ([frontends(1)], "Warning", "1 of 2 pods ready"),
        ([frontends(0)], "Failed", "0 of 2 pods ready"),
        ([], "Failed", "No Deployment of frontends exists, but the operators rely on it to serve Temporal SDKs"),
    ],
    ids=["all", "one", "none", "no Deployment"],
)
def test_frontends_of_their_own_must_be_ready(healthy: ApiServer, found: list[Json], result: str, message: str) -> None:
    healthy.answers[DEPLOYMENTS] = items(deployment(PERDURE_FRONTEND_USER=FRONTEND), *found)
    check = findings()["Frontends"]
    assert (check["result"], check["message"]) == (result, message)


@pytest.mark.usefixtures("healthy")
def test_without_frontends_of_their_own_nothing_is_said_about_them() -> None:
    assert "Frontends" not in findings()
