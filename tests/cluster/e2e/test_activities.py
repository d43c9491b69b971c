"""Activities as real pods: results, failures, retries, and cleanup."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.engine import events as ev
from support.cluster.namespace import IMAGE, Cluster, check_history, one_step, python, recorded

pytestmark = pytest.mark.cluster

ONCE = {"exponential": {"maximumAttempts": 1}}
QUICK = {"exponential": {"initialInterval": "1s", "backoffCoefficient": "1"}}


def test_an_activity_gets_its_input_and_returns_a_result(namespace: Cluster) -> None:
    value = {"name": "Ada", "numbers": [1, 2.5, None, "drei"], "quote": 'it\'s "$(HOME)" \n ok'}
    namespace.start("echo", one_step(python("activity.complete(activity.input())"), input=value))
    status = namespace.closed("echo")
    assert status["phase"] == "Completed"
    assert status["output"] == value
    run = namespace.with_history("echo")
    check_history(run)


def test_a_container_writes_its_result_to_the_termination_message(namespace: Cluster) -> None:
    code = (
        "import json, os; given = json.load(open('/perdure/input.json'));"
        "result = {'twice': given * 2, 'env': json.loads(os.environ['PERDURE_INPUT'])};"
        "open('/dev/termination-log', 'w').write(json.dumps(result))"
    )
    work = {
        "name": "plain",
        "startToCloseTimeout": "1m",
        "container": {"image": IMAGE, "command": ["python", "-c", code]},
    }
    namespace.start("plain", one_step(work, input=21))
    assert namespace.closed("plain")["output"] == {"twice": 42, "env": 21}


def test_a_container_gets_the_values_of_its_expressions_unchanged(namespace: Cluster) -> None:
    code = "import json, os, sys; json.dump([sys.argv[1:], os.environ['A'], os.environ['B']], open('/dev/termination-log', 'w'))"
    work = {
        "name": "work",
        "startToCloseTimeout": "2m",
        "container": {
            "image": "${input.image}",
            "command": ["python", "-c", code],
            "args": ["${input.text}", "$(PERDURE_RUN)", "n=${input.list}", "$${HOME}", "${attempt}"],
            "env": [{"name": "A", "value": "${input.text}"}, {"name": "B", "value": "$(A) of ${run.name}"}],
        },
    }
    hostile = "$(PERDURE_RUN) $$(B) `id` '; exit 1; \" $x \n ä"
    namespace.start("args", one_step(work, input={"image": IMAGE, "text": hostile, "list": [1, None]}))
    want = [[hostile, "args", "n=[1,null]", "${HOME}", "1"], hostile, f"{hostile} of args"]
    assert namespace.closed("args")["output"] == want


def test_a_failure_is_retried_with_backoff_and_each_attempt_is_one_pod(namespace: Cluster) -> None:
    code = (
        "def work(_):\n"
        "    if activity.info().attempt < 3:\n"
        "        raise activity.ApplicationError('not yet', type='NotYet')\n"
        "    return 'done'\n"
        "activity.main({'work': work})"
    )
    namespace.start("flaky", one_step(python(code, retryPolicy=QUICK)))
    status = namespace.closed("flaky")
    assert status["output"] == "done"
    run = namespace.with_history("flaky")
    check_history(run)
    started = next(e for e in recorded(run) if isinstance(e, ev.ActivityTaskStarted))
    assert started.attempt == 3
    assert started.last_failure is not None
    assert started.last_failure.type == "NotYet"
    # The pods are kept for their logs, the successful one only for some minutes.
    assert names(namespace) == ["flaky-2-1", "flaky-2-2", "flaky-2-3"]

    def expiring() -> list[str]:
        return [pod["metadata"]["name"] for pod in namespace.list("pods", "-l", "perdure.dev/expires")]

    namespace.wait("the pods to settle", lambda: expiring() == ["flaky-2-3"])


def test_a_pod_with_a_failed_init_container_is_kept_for_its_log(namespace: Cluster) -> None:
    work = python("pass", retryPolicy=ONCE)
    main = work.pop("container")
    init = {"name": "prepare", "image": IMAGE, "command": ["python", "-c", "raise SystemExit('nothing to prepare')"]}
    work["podTemplate"] = {"spec": {"initContainers": [init], "containers": [main]}}
    namespace.start("unprepared", one_step(work))
    assert namespace.closed("unprepared")["failure"]["cause"]["type"] == "InitContainerFailed"
    namespace.wait(
        "nothing to hold it", lambda: not namespace.pod("unprepared-2-1", "Failed")["metadata"].get("finalizers")
    )
    assert "nothing to prepare" in namespace("logs", "unprepared-2-1", "-c", "prepare")


def test_the_message_of_a_failed_run_has_step_activity_attempts_and_cause(namespace: Cluster) -> None:
    code = "import sys; print('the disk is full', file=sys.stderr); sys.exit(65)"
    types = [{"exitCodes": [65], "type": "DiskFull", "nonRetryable": True}]
    namespace.start("broken", one_step(python(code, failureTypes=types)))
    status = namespace.closed("broken")
    assert status["phase"] == "Failed"
    assert status["failure"]["kind"] == "Activity"
    assert status["failure"]["retryState"] == "NonRetryableFailure"
    cause = status["failure"]["cause"]
    assert cause["type"] == "DiskFull"
    assert "65" in cause["message"]
    assert "the disk is full" in cause["message"]
    (condition,) = (c for c in status["conditions"] if c["type"] == "Succeeded")
    assert condition["status"] == "False"
    assert "`work`" in condition["message"]
    assert "1 attempt" in condition["message"]


def test_a_large_result_is_passed_in_the_lease_and_a_too_large_one_is_rejected(namespace: Cluster) -> None:
    def sized(size: int) -> dict[str, object]:
        return python(f"activity.main({{'work': lambda _: 'x' * {size}}})", resultSize="Large", retryPolicy=ONCE)

    namespace.start("large", one_step(sized(100_000)))
    namespace.start("huge", one_step(sized(300_000)))
    namespace.start("small", one_step(python("activity.main({'work': lambda _: 'x' * 5000})", retryPolicy=ONCE)))
    assert namespace.closed("large")["output"] == "x" * 100_000
    for name in ("huge", "small"):
        status = namespace.closed(name)
        assert status["phase"] == "Failed"
        assert status["failure"]["cause"]["type"] == "PayloadTooLarge"


def test_start_to_close_ends_an_attempt_and_its_container_and_its_log_is_kept(namespace: Cluster) -> None:
    work = python(
        "import time; print('waiting for the stock', flush=True); time.sleep(600)",
        startToCloseTimeout="5s",
        retryPolicy=ONCE,
        podSpecPatch={"terminationGracePeriodSeconds": 5},
    )
    namespace.start("slow", one_step(work))
    status = namespace.closed("slow")
    assert status["failure"]["cause"]["timeoutType"] == "StartToClose"
    pod = namespace.pod("slow-2-1", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    namespace.wait("its finalizer", lambda: not namespace.get("pod", "slow-2-1")["metadata"].get("finalizers"))
    command = [sys.executable, "-c", "from perdure.cli.app import main; main()", "logs", "slow", "--failed"]
    environ = {**os.environ, "KUBECONFIG": str(namespace.kubeconfig)}
    done = subprocess.run(
        [*command, "-n", namespace.namespace], env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, ["only#1: waiting for the stock"])


def test_an_attempt_without_heartbeats_times_out_and_the_next_one_gets_its_details(namespace: Cluster) -> None:
    code = (
        "import time\n"
        "def work(_):\n"
        "    before = activity.last_heartbeat_details()\n"
        "    if before: return before\n"
        "    activity.heartbeat({'at': 7})\n"
        "    time.sleep(600)\n"
        "activity.main({'work': work})"
    )
    namespace.start("silent", one_step(python(code, heartbeatTimeout="3s", retryPolicy=QUICK)))
    status = namespace.closed("silent")
    assert status["output"] == {"at": 7}
    run = namespace.get("workflowrun", "silent")
    assert run is not None
    started = next(e for e in recorded(run) if isinstance(e, ev.ActivityTaskStarted))
    assert started.last_failure is not None
    assert started.last_failure.timeout_type == "Heartbeat"


@pytest.mark.slow
@pytest.mark.parametrize("hours", [1, -1], ids=["ahead", "behind"])
def test_a_wrong_node_clock_neither_causes_nor_prevents_a_heartbeat_timeout(namespace: Cluster, hours: int) -> None:
    code = (
        "import time\n"
        "from perdure.activity import _heartbeats as beats\n"
        "right = beats.micro_time\n"
        f"beats.micro_time = lambda nanoseconds: right(nanoseconds + {hours * 3600 * 10**9})\n"
        "def work(_):\n"
        "    before = activity.last_heartbeat_details()\n"
        "    for beat in range(75):\n"
        "        activity.heartbeat(beat)\n"
        "        time.sleep(0.2)\n"
        "    if activity.info().attempt == 1: time.sleep(600)\n"
        "    return [activity.info().attempt, before]\n"
        "activity.main({'work': work})"
    )
    namespace.start("skewed", one_step(python(code, heartbeatTimeout="10s", retryPolicy=QUICK)))
    attempt, details = namespace.closed("skewed")["output"]
    assert attempt >= 2  # a node without idle CPU may miss heartbeats once more
    assert details == 74 or attempt > 2
    run = namespace.get("workflowrun", "skewed")
    assert run is not None
    started = next(e for e in recorded(run) if isinstance(e, ev.ActivityTaskStarted))
    assert started.last_failure is not None
    assert started.last_failure.timeout_type == "Heartbeat"


def test_schedule_to_start_ends_an_activity_that_never_gets_a_node(namespace: Cluster) -> None:
    work = python("pass", scheduleToStartTimeout="3s")
    work["podTemplate"] = {"spec": {"containers": [work.pop("container")], "nodeSelector": {"no": "such-node"}}}
    namespace.start("nowhere", one_step(work))
    status = namespace.closed("nowhere")
    assert status["failure"]["cause"]["timeoutType"] == "ScheduleToStart"
    assert "node" in status["failure"]["cause"]["message"].partition("has not started:")[2]
    assert status["failure"]["retryState"] == "Timeout"


def test_schedule_to_close_bounds_all_attempts_together(namespace: Cluster) -> None:
    retry = {
        "exponential": {"initialInterval": "10m"}
    }  # the second attempt would start too late, however slow the first is
    work = python("raise SystemExit(1)", scheduleToCloseTimeout="5m", retryPolicy=retry)
    namespace.start("bounded", one_step(work))
    status = namespace.closed("bounded")
    assert status["phase"] == "Failed"
    assert status["failure"]["retryState"] == "Timeout"


def test_a_pod_that_someone_deletes_is_replaced_without_counting_as_an_attempt(namespace: Cluster) -> None:
    code = "import time\nif activity.info().attempt == 1: time.sleep(600)\nactivity.complete(activity.info().attempt)"
    namespace.start("deleted", one_step(python(code, retryPolicy=ONCE)))
    namespace.pod("deleted-2-1", "Running")
    namespace("delete", "pod", "deleted-2-1", "--grace-period=1")
    status = namespace.closed("deleted")
    assert status["phase"] == "Completed"
    assert status["output"] == 2


def test_deleting_a_run_removes_its_pods_and_leases(namespace: Cluster) -> None:
    work = python("import time; activity.heartbeat(); time.sleep(600)", heartbeatTimeout="1m")
    namespace.start("gone", one_step(work))
    namespace.pod("gone-2-1", "Running")
    namespace.delete("workflowrun", "gone")
    namespace.wait("its pods to be gone", lambda: not names(namespace))
    namespace.wait("its Leases to be gone", lambda: not namespace.list("lease"))


def test_a_pod_cannot_change_the_lease_of_another_pod_or_of_a_later_attempt(
    namespace: Cluster,
) -> None:
    code = (
        "import json, os, ssl, time, urllib.request\n"
        "def patch(lease):\n"
        "    base = '/var/run/secrets/kubernetes.io/serviceaccount/'\n"
        "    url = f\"https://{os.environ['KUBERNETES_SERVICE_HOST']}/apis/coordination.k8s.io/v1/namespaces/\"\n"
        "    url += f\"{os.environ['PERDURE_NAMESPACE']}/leases/{lease}\"\n"
        "    body = json.dumps({'spec': {'renewTime': '2026-01-01T00:00:00.000000Z'}}).encode()\n"
        "    request = urllib.request.Request(url, body, method='PATCH', headers={\n"
        "        'Content-Type': 'application/merge-patch+json',\n"
        "        'Authorization': 'Bearer ' + open(base + 'token').read()})\n"
        "    try:\n"
        "        context = ssl.create_default_context(cafile=base + 'ca.crt')\n"
        "        return urllib.request.urlopen(request, context=context).status\n"
        "    except urllib.error.HTTPError as error:\n"
        "        return error.code\n"
        "def work(other):\n"
        "    activity.heartbeat()\n"
        "    mine = activity.info()\n"
        "    if other == 'wait': time.sleep(600)\n"
        "    return [patch(os.environ['PERDURE_LEASE']), patch(other)]\n"
        "activity.main({'work': work})"
    )
    work = python(code, heartbeatTimeout="1m")
    namespace.start("victim", one_step(work, input="wait"))
    namespace.pod("victim-2-1", "Running")
    namespace.wait("its Lease", lambda: namespace.get("lease", "victim-2-1"))
    namespace.start("thief", one_step(work, input="victim-2-1"))
    assert namespace.closed("thief")["output"] == [200, 403]
    # The second attempt of the victim is another pod: the first one, were it still alive, is no better than the thief.
    namespace("delete", "pod", "victim-2-1", "--grace-period=1", "--wait=false")
    namespace.wait("the second attempt's Lease", lambda: namespace.get("lease", "victim-2-2"))
    namespace.start("late", one_step(work, input="victim-2-2"))
    assert namespace.closed("late")["output"] == [200, 403]


def names(namespace: Cluster) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in namespace.list("pods"))


def test_a_forged_pod_of_an_attempt_is_ignored(namespace: Cluster) -> None:
    namespace.start("real", one_step(python("import time; time.sleep(4); activity.complete('real')")))
    mine = namespace.pod("real-2-1", "Running")["metadata"]
    forged = python("activity.complete('forged')")["container"]
    forged |= {
        "name": "activity",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    namespace.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "forged",
                "labels": mine["labels"],
                "annotations": mine["annotations"],
                "ownerReferences": mine["ownerReferences"],
            },
            "spec": {
                "restartPolicy": "Never",
                "containers": [forged],
                "securityContext": {"runAsNonRoot": True, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}},
            },
        }
    )
    namespace.pod("forged", "Succeeded")
    assert namespace.closed("real")["output"] == "real"


def test_describe_shows_events_of_the_run(namespace: Cluster) -> None:
    namespace.start(
        "failing", one_step(python("raise SystemExit(3)", retryPolicy={"exponential": {"maximumAttempts": 2}}))
    )
    namespace.closed("failing")

    def reasons() -> set[str]:
        return {
            e["reason"]
            for e in json.loads(namespace("get", "events", "-o", "json"))["items"]
            if e["involvedObject"]["name"] == "failing"
        }

    namespace.wait("its events", lambda: {"AttemptFailed", "Failed"} <= reasons())
    assert "Started" not in reasons()


def test_describe_shows_why_a_pod_cannot_be_created(namespace: Cluster) -> None:
    namespace("create", "quota", "none", "--hard=pods=0")
    namespace.start("refused", one_step(python("activity.complete('done')")))

    def described() -> str:
        command = [str(Path(sys.executable).with_name("perdure")), "describe", "refused", "-n", namespace.namespace]
        environment = {**os.environ, "KUBECONFIG": str(namespace.kubeconfig), "COLUMNS": "400"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    namespace.wait("the refusal to be shown", lambda: "exceeded quota: none" in described())
    namespace.delete("quota", "none")
    assert namespace.closed("refused")["output"] == "done"


def test_a_run_reports_a_missing_image_once(namespace: Cluster) -> None:
    work = {"name": "work", "startToCloseTimeout": "1m", "container": {"image": "localhost/there-is-no-such-image:1"}}
    namespace.start("missing", one_step(work))
    condition = namespace.condition("workflowrun", "missing", "AttemptNotStarting")
    assert "attempt 1 does not start: container" in condition["message"]

    def reported() -> list[str]:
        events = json.loads(namespace("get", "events", "-o", "json"))["items"]
        return [e["reason"] for e in events if e["involvedObject"]["name"] == "missing"]

    namespace.wait("the Event", lambda: "AttemptNotStarting" in reported())
    assert reported().count("AttemptNotStarting") == 1
