"""The verbs of the command line that make requests, with a real cluster and the operator."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from support import cli
from support.cluster.namespace import Cluster

pytestmark = pytest.mark.cluster

Call = Callable[..., Result]
FLOW = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "flow"},
    "spec": {
        "steps": [
            {"name": "approval", "waitForSignal": {"name": "approved"}},
            {"name": "told", "return": {"output": ["${input}", "${steps.approval.output}"]}},
        ]
    },
}


@pytest.fixture
def perdure(namespace: Cluster, monkeypatch: pytest.MonkeyPatch) -> Call:
    # The official client reads KUBECONFIG when it is imported, which in tests is only once.
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    namespace.apply(FLOW)

    def call(*arguments: str) -> Result:
        return cli.perdure(*arguments, "-n", namespace.namespace)

    return call


def test_a_run_started_paused_receives_signals_and_is_followed(
    namespace: Cluster, perdure: Call, tmp_path: Path
) -> None:
    (tmp_path / "approval.json").write_text('{"by": "ada"}')
    started = perdure("start", "flow", "--name", "order", "-w", "A/1", "--input", "7", "--paused")
    assert (started.exit_code, started.stdout) == (0, "workflowrun.perdure.dev/order created\n")
    namespace.condition("workflowrun", "order", "Paused")
    reported = perdure(
        "signal", "-w", "A/1", "--name", "approved", "--input", f"@{tmp_path}/approval.json", "-o", "json"
    )
    assert reported.exit_code == 0, reported.stderr
    operation = json.loads(reported.stdout)
    assert operation["spec"]["signal"] == {"name": "approved", "input": {"by": "ada"}}
    assert operation["status"]["result"]["workflowRun"] == "order"
    gone_on = perdure("unpause", "order", "--reason", "all is well")
    assert gone_on.exit_code == 0
    assert gone_on.stdout == "workflowrun.perdure.dev/order unpaused: `order` has recorded it\n"
    assert perdure("wait", "order", "--timeout", "2m").exit_code == 0
    assert namespace.closed("order")["output"] == [7, {"by": "ada"}]
    refused = perdure("terminate", "order")
    assert refused.exit_code == 1
    assert refused.stderr == (
        "Error: workflowrun.perdure.dev/order not terminated: WorkflowExecutionCompleted: the run has closed: Completed\n"
    )
    listed = perdure("operations", "-o", "wide").stdout
    assert [line.split()[1] for line in listed.splitlines()] == ["VERB", "terminate", "unpause", "signal"]


def test_a_signal_can_start_its_run(namespace: Cluster, perdure: Call) -> None:
    done = perdure(
        "signal", "-w", "cart 7", "--name", "approved", "--input", '"lamp"', "--start", "flow", "--start-input", "1"
    )
    assert done.exit_code == 0, done.stdout
    (run,) = namespace.list("workflowruns")
    assert namespace.closed(run["metadata"]["name"])["output"] == [1, "lamp"]


def test_waiting_for_an_answer_ends_with_the_timeout(namespace: Cluster, perdure: Call) -> None:
    namespace.start("order", {"workflow": {"name": "not-there"}, "startPaused": True, "startDelay": "1h"})
    namespace.condition("workflowrun", "order", "WorkflowNotFound")
    late = perdure("signal", "order", "--name", "approved", "--timeout", "1s")
    assert late.exit_code == 124
    assert "it stays pending" in late.stderr
    asked = perdure("pause", "order", "--no-wait", "-o", "name")
    assert (asked.exit_code, asked.stdout.partition("/")[0]) == (0, "operation.perdure.dev")
    ended = perdure("cancel", "order")
    assert ended.exit_code == 0
    assert namespace.closed("order")["phase"] == "Cancelled"


def test_a_request_rejected_by_the_api_server_is_an_error(perdure: Call) -> None:
    for arguments in (
        ["cancel", "Not A Name"],
        ["start", "flow", "--name", "Not A Name"],
        ["start", "flow", "--name", "x" * 300],
    ):
        done = perdure(*arguments)
        assert done.exit_code == 2, done.stdout
        assert done.stderr.startswith("Error: the API server refused the request")
    result = cli.perdure("cancel", "a", "-n", "not-there")
    assert result.exit_code == 2
    assert "there is no namespace `not-there`" in result.stderr


def test_an_awaited_signal_is_shown_and_a_misspelled_one_causes_a_warning(namespace: Cluster, perdure: Call) -> None:
    assert perdure("start", "flow", "--name", "order-1").exit_code == 0
    namespace.wait(
        "the run to wait", lambda: namespace("get", "wfr", "order-1", "-o", "jsonpath={.status.awaitedSignals}")
    )
    header, row = namespace("get", "wfr", "order-1").splitlines()
    assert (header.split()[4], row.split()[4]) == ("AWAITS", "approved")
    namespace.start("naps", {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "1h"}}]}})
    namespace.wait(
        "the run to sleep", lambda: namespace("get", "wfr", "naps", "-o", "jsonpath={.status.pendingTimers}")
    )
    assert namespace("get", "wfr", "naps").splitlines()[1].split()[4] == "nap"
    message = namespace("get", "wfr", "order-1", "-o", "jsonpath={.status.conditions[0].message}")
    assert message == "waits for signal `approved` (step `approval`)"
    done = perdure("signal", "order-1", "--name", "aproved")
    assert done.exit_code == 0
    assert "Warning: `order-1` keeps the signal, but the workflow never waits for signal `aproved`" in done.stderr
    (reported,) = namespace.list("operations")
    assert reported["status"]["conditions"][0]["reason"] == "SignalNotAwaited"
    assert perdure("signal", "order-1", "--name", "approved").stderr == ""
    namespace.closed("order-1")


def test_count_and_a_limited_list_agree_with_the_cluster(namespace: Cluster, perdure: Call) -> None:
    for name in ("order-1", "order-2", "order-3"):
        namespace.start(name, {"workflow": {"name": "flow"}})
        namespace.condition("workflowrun", name, "Running")
    assert perdure("terminate", "order-2").exit_code == 0
    namespace.closed("order-2")
    assert perdure("count").stdout.split() == ["Running", "2", "Terminated", "1", "Total", "3"]
    assert perdure("count", "--completed", "--since", "1h").stdout.split() == ["Terminated", "1", "Total", "1"]
    names = perdure("list", "--running", "-o", "name").stdout.split()
    assert sorted(names) == ["workflowrun.perdure.dev/order-1", "workflowrun.perdure.dev/order-3"]
    (newest,) = json.loads(perdure("list", "--running", "--limit", "1", "-o", "json").stdout)["items"]
    assert f"workflowrun.perdure.dev/{newest['metadata']['name']}" == names[0]
    assert (newest["spec"]["workflow"], newest["status"]["phase"]) == ({"name": "flow"}, "Running")
