"""Requests of the command line, without a cluster: errors are reported before any request."""

from pathlib import Path
from typing import Any

import click
import pytest

from perdure.cli.inputs import value
from perdure.cli.operations import TargetOptions, request_of
from perdure.client.errors import ClientError
from perdure.kube import clock
from perdure.view.page import ASCII, Page
from perdure.view.tables import operations
from support.apiserver import ApiServer
from support.cli import perdure


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cancel"], "set either NAME or --workflow-id"),
        (["cancel", "a", "-w", "b"], "set either"),
        (["signal", "a"], "--name"),
        (["signal", "a", "--name", "go", "--input", "yes"], "is not JSON"),
        (["signal", "a", "--name", "go", "--start", "cart"], "requires --workflow-id"),
        (["signal", "a", "--name", "go", "--start-input", "1"], "requires --start"),
        (["pause", "a", "--timeout", "soon"], "--timeout"),
        (["schedule", "unpause", "a", "--timeout", "soon"], "--timeout"),
        (["reset", "a"], "--event-id, --type"),
        (["reset", "a", "--event-id", "3", "--type", "FirstWorkflowTask"], "set one of the two"),
        (["reset", "a", "--event-id", "third"], "'third' is not a whole number"),
        (["reset", "a", "--event-id", "0"], "0 is less than 1"),
        (["complete", "a", "--step", "s"], "one of the three"),
        (["complete", "a", "--step", "s", "--result", "1", "--cancelled"], "one of the three"),
        (["start", "flow", "--timeout", "5m"], "requires --wait"),
        (["start", "Order"], "to start code, use --type Order --task-queue QUEUE"),
        (["start"], "set either WORKFLOW, or --type and --task-queue"),
        (["start", "flow", "--type", "Order", "--task-queue", "orders"], "set either"),
        (["start", "--type", "Order"], "--type: requires --task-queue"),
        (["start", "flow", "--task-queue", "orders"], "--task-queue: requires --type"),
        (["list", "--phase", "faild"], "'--phase' / '--status': `faild` is not one of Pending, Running"),
        (["list", "--phase", "faild"], "did you mean Failed?"),
        (["list", "--output", "xml"], "'--output' / '-o': 'xml' is not one of"),
        (["schedule", "trigger", "a", "--overlap-policy", "Forbid"], "did you mean Skip?"),
        (["schedule", "trigger", "a", "--overlap-policy", "replace"], "did you mean TerminateOther, or CancelOther?"),
        (["signal", "a", "--name", "go", "--input", "@/not/there"], "cannot be read"),
        (["stack", "a", "--timeout", "soon"], "--timeout"),
        (["deployment", "set-ramping", "a", "--percentage", "inf"], "'inf' is not a number"),
        (["deployment", "set-ramping", "a", "--percentage", "101"], "101.0 is more than 100"),
        (["migrate", "--from", "old:port"], "'old:port' is not the address of a Temporal server"),
        (["query", "a", "state", "--timeout", "soon"], "--timeout"),
        (["schedule", "trigger", "a\udcff"], "contains '\\udcff', which is not UTF-8"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_usage_is_rejected_before_any_request(arguments: list[str], said: str) -> None:
    done = perdure(*arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_enumeration_values_are_case_insensitive() -> None:
    assert perdure("list", "--phase", "failed", "--phase", "timedout", "--context", "none").stderr.startswith("Error: ")
    done = perdure("schedule", "create", "a", "--workflow", "w", "--overlap-policy", "bufferone", "--dry-run")
    assert "overlapPolicy: BufferOne" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("text", "want"), [(None, None), ("null", None), ('"yes"', "yes"), ('{"a": [1.5, true]}', {"a": [1.5, True]})]
)
def test_a_value_is_json(text: str | None, want: Any) -> None:
    assert value(text, "--input") == want


def test_a_value_can_be_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "approval.json").write_text('{"by": "ada"}')
    assert value(f"@{tmp_path}/approval.json", "--input") == {"by": "ada"}
    with pytest.raises(ClientError, match="cannot be read"):
        value(f"@{tmp_path}/none.json", "--input")
    with pytest.raises(click.BadParameter, match="not JSON"):
        value("[" * 100_000, "--input")


@pytest.mark.parametrize(
    ("name", "workflow_id", "target"),
    [
        ("order", None, {"kind": "WorkflowRun", "name": "order"}),
        (None, "A/1", {"kind": "WorkflowRun", "workflowId": "A/1"}),
    ],
)
def test_a_run_is_selected_by_name_or_workflow_id(name: str | None, workflow_id: str | None, target: Any) -> None:
    asked = TargetOptions(
        name=name,
        workflow_id=workflow_id,
        namespace=None,
        cluster=None,
        wait=True,
        timeout="1s",
        output="text",
    )
    assert asked.as_object == target


def test_operations_are_shown_on_one_line_each() -> None:
    made = {"name": "approve-1", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"}
    refused = {"type": "Failed", "status": "True", "reason": "TargetNotFound", "message": "there is none"}
    page = Page(
        now=clock.now(), width=80, glyphs=ASCII, iso=True, program="perdure", context=None
    )  # fmt: skip
    lines = operations(
        [
            {"metadata": made, "spec": {"target": {"kind": "WorkflowRun", "name": "order"}, "signal": {"name": "a"}}},
            {
                "metadata": made | {"name": "stop"},
                "spec": {"target": {"kind": "WorkflowRun", "workflowId": "A 1"}, "cancel": {}},
                "status": {"phase": "Failed", "workflowRun": "order", "conditions": [refused]},
            },
        ],
        page,
        namespaces=True,
        wide=True,
    )
    assert [line.plain.split("  ")[0] for line in lines] == ["NAMESPACE", "shop", "shop"]
    assert [part for part in lines[1].plain.split() if part != "-"] == [
        "shop",
        "approve-1",
        "signal",
        "WorkflowRun/order",
        "Pending",
        "2026-01-01T00:00:00Z",
    ]
    assert "workflow ID A 1" in lines[2].plain
    assert lines[2].plain.endswith("there is none")


def test_a_reset_of_an_activity_is_an_operation(server: ApiServer) -> None:
    condition = {"type": "Complete", "status": "True", "reason": "Done", "message": "`order-42` has recorded it"}
    server.status = lambda _: {"phase": "Complete", "completionTime": "2026-01-31T12:00:00Z", "conditions": [condition]}
    found = perdure("reset-activity", "order-42", "--step", "rooms[3]", "--reset-heartbeats")
    assert found.stdout == "workflowrun.perdure.dev/order-42 updated: `order-42` has recorded it\n", found.stderr
    assert [made["spec"] for made in server.created] == [
        {
            "target": {"kind": "WorkflowRun", "name": "order-42"},
            "resetActivity": {"step": "rooms[3]", "resetHeartbeat": True, "keepPaused": False},
        }
    ]


def test_a_signal_that_the_workflow_never_awaits_causes_a_warning(server: ApiServer) -> None:
    message = (
        "`order-42` keeps the signal, but the workflow never waits for signal `aproved`, so nothing will receive it"
    )
    condition = {"type": "Complete", "status": "True", "reason": "SignalNotAwaited", "message": message}
    server.status = lambda _: {"phase": "Complete", "completionTime": "2026-01-31T12:00:00Z", "conditions": [condition]}
    found = perdure("signal", "order-42", "--name", "aproved")
    assert (found.exit_code, found.stderr) == (0, f"Warning: {message}\n")


def test_a_request_that_takes_effect_later_says_when(server: ApiServer) -> None:
    """argo-workflows#17041: the command must not report a paused run as cancelled."""
    message = "the request is recorded, and takes effect once the run is unpaused"
    condition = {"type": "Complete", "status": "True", "reason": "Deferred", "message": message}
    server.status = lambda _: {"phase": "Complete", "completionTime": "2026-01-31T12:00:00Z", "conditions": [condition]}
    found = perdure("cancel", "order-42")
    assert (found.exit_code, found.stdout) == (0, f"workflowrun.perdure.dev/order-42 not yet cancelled: {message}\n")


@pytest.mark.parametrize(("reason", "status"), [("TargetNotFound", 2), ("WorkflowExecutionCompleted", 1)])
def test_exit_codes_distinguish_missing_runs_from_rejected_requests(
    server: ApiServer, reason: str, status: int
) -> None:
    condition = {"type": "Failed", "status": "True", "reason": reason, "message": "no"}
    server.status = lambda _: {"phase": "Failed", "completionTime": "2026-01-31T12:00:00Z", "conditions": [condition]}
    assert perdure("signal", "order-42", "--name", "approve").exit_code == status


@pytest.mark.parametrize("verb", ["cancel", "signalWithStart", "unpause"])
def test_the_request_of_an_operation_ignores_defaulted_fields(verb: str) -> None:
    spec = {"target": {"name": "order"}, "ttlSecondsAfterFinished": 3600, verb: {}}
    assert request_of({"spec": dict(sorted(spec.items()))}) == verb


def test_a_request_without_an_answer_says_that_a_newer_version_has_written_the_run(server: ApiServer) -> None:
    newer = {"type": "NewerState", "status": "True", "reason": "NewerState", "message": "this operator cannot read it"}
    run = {"metadata": {"name": "order", "namespace": "shop"}, "status": {"conditions": [newer]}}
    server.answers["/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns/order"] = run
    done = perdure("cancel", "order", "-n", "shop", "--timeout", "1s")
    assert done.exit_code == 124
    first, second = done.stderr.splitlines()
    assert first == "Warning: workflowrun.perdure.dev/order is NewerState: this operator cannot read it"
    assert second.startswith("Error: timed out after 1s waiting for Operation")
