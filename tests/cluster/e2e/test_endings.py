"""The table of endings, row by row, with real pods: the cause of each ending, and the outcome of the attempt.

`PERDURE_ENDINGS=file.md` writes the observed table.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.cluster.namespace import IMAGE, Cluster, Json, one_step, python

pytestmark = pytest.mark.cluster

ONCE = {"exponential": {"maximumAttempts": 1}}
OUTCOMES: list[tuple[str, str, str]] = []


@pytest.fixture(scope="module", autouse=True)
def report() -> Iterator[None]:
    yield
    file = os.environ.get("PERDURE_ENDINGS")
    if file:
        rows = [f"| {what} | {outcome} | {message} |" for what, outcome, message in OUTCOMES]
        table = ["| cause | type of the failure | message |", "| --- | --- | --- |", *rows]
        Path(file).write_text("\n".join(table) + "\n", encoding="utf-8")


def see(what: str, failure: Json) -> None:
    type_ = str(failure.get("timeoutType") or failure.get("type") or failure["kind"])
    OUTCOMES.append((what, type_, " ⏎ ".join(str(failure.get("message", "")).splitlines())[:300].replace("|", "\\|")))


@dataclass
class Ending:
    """An activity that fails with one attempt, and its expected failure."""

    work: Json
    type: str
    mentions: list[str] = field(default_factory=list)
    """Parts of its message."""


def shell(script: str, **options: Any) -> Json:
    container = {"image": IMAGE, "command": ["sh", "-c", script], **options.pop("container", {})}
    return {"name": "work", "startToCloseTimeout": "2m", "container": container, **options}


def template(spec: Json, **options: Any) -> Json:
    spec.setdefault("containers", [{"name": "main", "image": IMAGE, "command": ["true"]}])
    return {"name": "work", "startToCloseTimeout": "2m", "podTemplate": {"spec": spec}, **options}


DOCUMENT = {"error": {"type": "OutOfStock", "message": "no lamps left", "details": {"left": 0}, "nextRetryDelay": "1s"}}
SIDECAR = {"name": "side", "image": IMAGE, "command": ["sleep", "600"], "restartPolicy": "Always"}
ENDINGS = {
    "an exit code": Ending(
        shell("echo the disk is full; exit 3"), "ExitCode3", ["container activity", "exit code 3", "disk is full"]
    ),
    "an exit code with a type": Ending(
        shell("exit 64", failureTypes=[{"exitCodes": [64], "type": "Bad", "nonRetryable": True}]), "Bad", ["64"]
    ),
    "an error document": Ending(
        shell(f"echo '{json.dumps(DOCUMENT)}' > /dev/termination-log; exit 1"), "OutOfStock", ["no lamps left"]
    ),
    "too much memory": Ending(
        {
            **python("x = bytearray(300 << 20)"),
            "container": {
                "image": IMAGE,
                "command": ["python", "-c", "x = b'x' * (300 << 20); print(len(x))"],
                "resources": {"limits": {"memory": "48Mi"}},
            },
            # A very busy kubelet does not always notice it and reports only a SIGKILL: then the test retries.
            "retryPolicy": {
                "exponential": {"initialInterval": "1s", "maximumAttempts": 5, "nonRetryableErrorTypes": ["OOMKilled"]}
            },
        },
        "OOMKilled",
        ["memory", "resources.limits.memory"],
    ),
    "a signal": Ending(shell("python -c 'import os; os.abort()'; exit $?"), "SIGABRT", ["SIGABRT"]),
    "killed": Ending(shell("python -c 'import os; os.kill(os.getpid(), 9)'; exit $?"), "SIGKILL", ["SIGKILL"]),
    "no such command": Ending(
        {**shell(""), "container": {"image": IMAGE, "command": ["/no/such/command"]}}, "StartError", ["`command`"]
    ),
    "a bad image name": Ending(
        {**shell(""), "container": {"image": "No Image: At all"}}, "InvalidImageName", ["fix the image name"]
    ),
    "an image that does not exist": Ending(
        template(
            {
                "activeDeadlineSeconds": 45,
                "containers": [{"name": "main", "image": "localhost/none:1", "imagePullPolicy": "Always"}],
            }
        ),
        "ImagePullBackOff",
        ["localhost/none:1", "check that the image exists"],
    ),
    "a ConfigMap that does not exist": Ending(
        template(
            {
                "activeDeadlineSeconds": 45,
                "containers": [
                    {"name": "main", "image": IMAGE, "envFrom": [{"configMapRef": {"name": "none"}}]},
                ],
            }
        ),
        "CreateContainerConfigError",
        ["none"],
    ),
    "a volume that does not exist": Ending(
        template(
            {
                "activeDeadlineSeconds": 45,
                "volumes": [{"name": "v", "configMap": {"name": "none"}}],
                "containers": [
                    {
                        "name": "main",
                        "image": IMAGE,
                        "command": ["true"],
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    }
                ],
            }
        ),
        "NotStarted",
    ),
    "an init container that fails": Ending(
        template(
            {"initContainers": [{"name": "fetch", "image": IMAGE, "command": ["sh", "-c", "echo none there; exit 7"]}]}
        ),
        "InitContainerFailed",
        ["init container fetch", "exit code 7", "none there"],
    ),
    "one of several containers": Ending(
        template(
            {
                "containers": [
                    {"name": "main", "image": IMAGE, "command": ["true"], "needs": ["fetch"]},
                    {"name": "fetch", "image": IMAGE, "command": ["sh", "-c", "echo none there; exit 7"]},
                ]
            }
        ),
        "ExitCode7",
        ["container fetch", "exit code 7", "none there"],
    ),
    "no shell in a container that waits": Ending(
        template(
            {
                "containers": [
                    {
                        "name": "main",
                        "image": IMAGE,
                        "command": ["true"],
                        "env": [{"name": "PATH", "value": "/none"}],
                        "needs": ["patient"],
                    },
                    {"name": "patient", "image": IMAGE, "command": ["sleep", "600"]},
                ]
            }
        ),
        "StartError",
        ["container main", "sh"],
    ),
    "too much memory in one of several containers": Ending(
        {
            **template(
                {
                    "containers": [
                        {"name": "main", "image": IMAGE, "command": ["true"], "needs": ["greedy", "patient"]},
                        {"name": "patient", "image": IMAGE, "command": ["sleep", "600"]},
                        {
                            "name": "greedy",
                            "image": IMAGE,
                            "command": ["python", "-c", "x = b'x' * (300 << 20); print(len(x))"],
                            "resources": {"limits": {"memory": "48Mi"}},
                        },
                    ]
                }
            ),
            "retryPolicy": {
                "exponential": {"initialInterval": "1s", "maximumAttempts": 5, "nonRetryableErrorTypes": ["OOMKilled"]}
            },
        },
        "OOMKilled",
        ["container greedy", "memory"],
    ),
    "success with a sidecar that keeps running, and a result that is too large": Ending(
        template(
            {
                "initContainers": [SIDECAR],
                "containers": [
                    {
                        "name": "main",
                        "image": IMAGE,
                        "command": ["python", "-c", "open('/dev/termination-log', 'w').write('x' * 5000)"],
                    }
                ],
            }
        ),
        "PayloadTooLarge",
        ["resultSize: Large"],
    ),
    "no such volume in the pod": Ending(
        template(
            {"containers": [{"name": "main", "image": IMAGE, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}
        ),
        "InvalidPod",
    ),
    "too much storage": Ending(
        template(
            {
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
                "containers": [
                    {
                        "name": "main",
                        "image": IMAGE,
                        "command": ["sh", "-c", "head -c 20000000 /dev/zero > /v/full; sleep 300"],
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    }
                ],
            },
            startToCloseTimeout="5m",
        ),
        "Evicted",
        ["exceeds the limit"],
    ),
    "start-to-close": Ending(shell("sleep 300", startToCloseTimeout="2s"), "StartToClose"),
    "schedule-to-start, of a pod that fits no node": Ending(
        template({"nodeSelector": {"no": "node"}}, scheduleToStartTimeout="30s"), "ScheduleToStart", ["Unschedulable"]
    ),
    "schedule-to-start, of a pod that a policy refuses": Ending(
        template({"hostNetwork": True}, scheduleToStartTimeout="4s"), "ScheduleToStart", ["PodSecurity"]
    ),
}


def failed(namespace: Cluster, name: str) -> Json:
    status = namespace.closed(name, seconds=300)
    assert status["phase"] == "Failed", status
    cause: Json = status["failure"]["cause"]
    return cause


@pytest.mark.slow
def test_each_ending_of_an_attempt_has_its_failure(namespace: Cluster) -> None:
    """Run all of them concurrently: most wait for their nodes."""
    names = {what: f"end-{number}" for number, what in enumerate(ENDINGS)}
    for what, ending in ENDINGS.items():
        work = {"retryPolicy": ONCE, **ending.work, "name": "work"}
        namespace.start(names[what], one_step(work))
    wrong = {}
    for what, ending in ENDINGS.items():
        cause = failed(namespace, names[what])
        see(what, cause)
        type_ = cause.get("timeoutType") or cause.get("type")
        missing = [part for part in ending.mentions if part not in cause["message"]]
        if type_ != ending.type or missing:
            wrong[what] = (ending.type, type_, missing, cause["message"])
    assert wrong == {}


def test_the_failure_has_the_last_4_kib_of_the_log(namespace: Cluster) -> None:
    script = "for i in $(seq 1 1000); do echo line $i of the log; done; exit 1"
    namespace.start("talkative", one_step(shell(script, retryPolicy=ONCE)))
    log = failed(namespace, "talkative")["log"]
    assert 3900 < len(log) <= 4096
    assert log.startswith("line ")
    assert log.endswith("line 1000 of the log")


WAITING = "trap 'exit 0' TERM; sleep 600 & wait"
"""A container that ends with 0 when it is stopped: its activity has not succeeded."""


def delete(namespace: Cluster, pod: str) -> None:
    namespace("delete", "pod", pod, "--wait=false")


def evict(namespace: Cluster, pod: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace.namespace}}
    namespace(
        "create",
        "--raw",
        f"/api/v1/namespaces/{namespace.namespace}/pods/{pod}/eviction",
        "-f",
        "-",
        stdin=json.dumps(body),
    )


def force(namespace: Cluster, pod: str) -> None:
    namespace("delete", "pod", pod, "--force", "--grace-period=0", "--wait=false")
    # The operator may have released it already.
    namespace.run("patch", "pod", pod, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')


@pytest.mark.parametrize(
    ("what", "do"),
    [("deleted by a person", delete), ("evicted through the API", evict), ("force-deleted", force)],
    ids=["delete", "evict", "force"],
)
def test_a_lost_pod_does_not_count_as_an_attempt(
    namespace: Cluster, what: str, do: Callable[[Cluster, str], None]
) -> None:
    # The first attempt fails when it is stopped; the second returns.
    script = (
        'if [ "$PERDURE_ATTEMPT" = 1 ]; then trap "exit 9" TERM; sleep 600 & wait; fi; echo 2 > /dev/termination-log'
    )
    namespace.start("lost", one_step(shell(script, retryPolicy=ONCE)))
    namespace.pod("lost-2-1", "Running")
    do(namespace, "lost-2-1")
    lost = namespace.pending("lost", attempt=2)["lastFailure"]
    see(what, lost)
    assert lost["kind"] == "Server"
    status = namespace.closed("lost")
    assert (status["phase"], status["output"]) == ("Completed", 2)


def test_a_pod_deleted_before_it_starts_is_lost(namespace: Cluster) -> None:
    work = template({"nodeSelector": {"no": "node"}}, retryPolicy=ONCE)
    namespace.start("early", one_step(work))
    namespace.pod("early-2-1", "Pending")
    delete(namespace, "early-2-1")
    lost = namespace.pending("early", attempt=2)["lastFailure"]
    see("deleted before it had a node", lost)
    assert lost["details"]["reason"] == "PodDeleted"


def test_a_pod_deleted_while_it_succeeds_has_succeeded(namespace: Cluster) -> None:
    script = "trap 'echo 42 > /dev/termination-log; exit 0' TERM; sleep 600 & wait"
    namespace.start("wise", one_step(shell(script, retryPolicy=ONCE)))
    namespace.pod("wise-2-1", "Running")
    delete(namespace, "wise-2-1")
    status = namespace.closed("wise")
    assert (status["phase"], status["output"]) == ("Completed", 42)
    OUTCOMES.append(("deleted by a person, and ended with exit code 0 and a result", "Completed", ""))


def test_a_pod_that_ends_with_0_when_it_is_stopped_is_lost(namespace: Cluster) -> None:
    """argo-workflows#12231."""
    script = f'if [ "$PERDURE_ATTEMPT" = 1 ]; then {WAITING}; else echo 42 > /dev/termination-log; fi'
    namespace.start("polite", one_step(shell(script, retryPolicy=ONCE)))
    namespace.pod("polite-2-1", "Running")
    evict(namespace, "polite-2-1")
    lost = namespace.pending("polite", attempt=2)["lastFailure"]
    see("evicted through the API, and ended with exit code 0 without a result", lost)
    assert lost["details"]["reason"] == "StoppedWithoutResult"
    status = namespace.closed("polite")
    assert (status["phase"], status["output"]) == ("Completed", 42)


def test_an_activity_fails_when_too_many_attempts_are_lost(namespace: Cluster) -> None:
    """airflow#53015."""
    policy = {"exponential": {"initialInterval": "1s"}, "maximumLosses": 1}
    namespace.start("lossy", one_step(shell(WAITING, retryPolicy=policy)))
    for attempt in (1, 2):
        namespace.pod(f"lossy-2-{attempt}", "Running")
        delete(namespace, f"lossy-2-{attempt}")
    assert failed(namespace, "lossy")["type"] == "TooManyLosses"


def test_an_activity_that_waits_for_a_quota_continues_when_there_is_room(namespace: Cluster) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    namespace.apply(quota)
    namespace.wait(
        "the quota to count", lambda: "used" in (namespace.get("resourcequota", "none") or {}).get("status", {})
    )
    namespace.start("patient", one_step(shell("echo 1 > /dev/termination-log", retryPolicy=ONCE)))
    reasons = ["get", "events", "--field-selector", "reason=PodRefused", "-o", "name"]
    namespace.wait("its pod to be refused", lambda: namespace(*reasons))
    namespace.delete("resourcequota", "none")
    assert namespace.closed("patient")["output"] == 1
    OUTCOMES.append(("rejected by a quota that was then lifted", "Completed", ""))


def limit(namespace: Cluster, what: str, count: int) -> None:
    """Set a quota, and wait until it counts."""
    namespace("create", "quota", "none", f"--hard={what}={count}")
    namespace.wait(
        "the quota to count", lambda: "used" in (namespace.get("resourcequota", "none") or {}).get("status", {})
    )


def warned(namespace: Cluster, reason: str, words: str) -> bool:
    """Whether a run has an Event with that reason and text."""
    return words in namespace(
        "get", "events", f"--field-selector=reason={reason}", "-o", "jsonpath={.items[*].message}"
    )


def signal(namespace: Cluster, name: str) -> None:
    """Send the signal `go` to a run."""
    spec = {"target": {"kind": "WorkflowRun", "name": name}, "signal": {"name": "go"}}
    kind = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Operation"}
    namespace.apply({**kind, "metadata": {"name": f"{name}-go"}, "spec": spec})


def progress(namespace: Cluster, name: str) -> str:
    """How many steps of a run are done."""
    run = namespace.get("workflowrun", name)
    assert run is not None
    return str(run["status"].get("progress"))


def test_a_lease_rejected_by_a_quota_is_reported_and_blocks_nothing_else(namespace: Cluster) -> None:
    limit(namespace, "count/leases.coordination.k8s.io", 0)
    beats = shell("sleep 1000", name="beats", heartbeatTimeout="10m")
    steps = [
        {"name": "beats", "needs": [], "activity": {"name": "beats"}},
        {"name": "signaled", "needs": [], "waitForSignal": {"name": "go"}},
        {"name": "after", "needs": ["signaled"], "activity": {"name": "work"}},
    ]
    work = shell("echo 1 > /dev/termination-log", name="work")
    namespace.start("leased", {"inline": {"activities": [beats, work], "steps": steps}})
    namespace.wait("an Event about the refusal", lambda: warned(namespace, "PodRefused", "no Lease for attempt 1 yet"))
    signal(namespace, "leased")
    namespace.wait("the other branch to continue", lambda: progress(namespace, "leased") == "2/3")
    namespace.delete("resourcequota", "none")
    namespace.wait("the Lease", lambda: namespace.list("leases"))
    namespace.delete("workflowrun", "leased")


def test_a_child_rejected_by_a_quota_is_reported_and_blocks_nothing_else(namespace: Cluster) -> None:
    limit(namespace, "count/workflowruns.perdure.dev", 1)
    steps = [
        {"name": "child", "needs": [], "childWorkflow": {"workflow": {"name": "small"}}},
        {"name": "signaled", "needs": [], "waitForSignal": {"name": "go"}},
        {"name": "after", "needs": ["signaled"], "set": {"a": 1}},
    ]
    workflow = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "small"}}
    namespace.apply({**workflow, "spec": {"steps": [{"name": "end", "set": {"a": 1}}]}})
    namespace.start("parent", {"inline": {"steps": steps}})
    condition = namespace.condition("workflowrun", "parent", "CreateRefused")
    assert "the child `parent-" in condition["message"]
    assert "exceeded quota: none" in condition["message"]
    assert warned(namespace, "CreateRefused", "exceeded quota: none")
    signal(namespace, "parent")
    namespace.wait("the other branch to continue", lambda: progress(namespace, "parent") == "2/3")
    assert (namespace.get("workflowrun", "parent") or {})["status"]["phase"] == "Running"
    namespace.delete("resourcequota", "none")
    assert namespace.closed("parent")["phase"] == "Completed"


def test_a_pod_of_another_owner_is_not_adopted(namespace: Cluster) -> None:
    other = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "taken-2-1"},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "activity",
                    "image": IMAGE,
                    "command": ["sh", "-c", "echo forged > /dev/termination-log"],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }
    namespace.apply(other)
    namespace.pod("taken-2-1", "Succeeded")
    work = shell("echo true > /dev/termination-log", retryPolicy=ONCE, scheduleToCloseTimeout="5m")
    namespace.start("taken", one_step(work))
    namespace.wait(
        "an Event about it", lambda: namespace("get", "events", "--field-selector", "reason=PodRefused", "-o", "name")
    )
    namespace.delete("pod", "taken-2-1")
    assert namespace.closed("taken")["output"] is True
    OUTCOMES.append(("another pod has the name", "waits, then its own", ""))


@pytest.mark.parametrize(("on_success", "on_failure"), [("Keep", "Delete"), ("Delete", "Keep")])
def test_pods_are_kept_according_to_the_policy(namespace: Cluster, on_success: str, on_failure: str) -> None:
    retention = {"onSuccess": on_success, "onFailure": on_failure}
    namespace.start("well", one_step(shell("true", podRetention=retention, retryPolicy=ONCE)))
    namespace.start("badly", one_step(shell("exit 1", podRetention=retention, retryPolicy=ONCE)))
    namespace.closed("well")
    namespace.closed("badly")
    kept = [name for name, policy in (("badly-2-1", on_failure), ("well-2-1", on_success)) if policy == "Keep"]

    def settled() -> bool:
        pods = namespace.list("pods")
        return sorted(p["metadata"]["name"] for p in pods) == kept and not any(
            p["metadata"].get("finalizers") for p in pods
        )

    namespace.wait("the pods to settle", settled)


def test_a_failed_pod_with_its_own_sidecar_is_kept_for_its_log(namespace: Cluster) -> None:
    proxy = {"name": "proxy", "image": IMAGE, "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait"]}
    main = {"name": "main", "image": IMAGE, "command": ["sh", "-c", "echo the disk is full; exit 3"]}
    namespace.start("beside", one_step(template({"containers": [main, proxy]}, retryPolicy=ONCE)))
    namespace.closed("beside")

    def stopped() -> bool:
        pod = namespace.get("pod", "beside-2-1")
        states = [each["state"] for each in pod["status"]["containerStatuses"]]
        return "deletionTimestamp" not in pod["metadata"] and all("terminated" in state for state in states)

    namespace.wait("the sidecar to be stopped", stopped)
    assert "the disk is full" in namespace("logs", "beside-2-1", "-c", "main")
