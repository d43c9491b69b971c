"""`perdure start` and `perdure wait`."""

from typing import Any

import pytest
from click.exceptions import Exit

from perdure.api.crdgen import KINDS as KIND_MODELS
from perdure.api.kinds.workflowrun import WorkflowRun
from perdure.cli.connection import connect
from perdure.cli.options import KINDS
from perdure.cli.starts import wait_for_verdict
from perdure.engine import commands as cmd
from support.apiserver import ApiServer, items
from support.cli import RUNS, perdure
from support.engine.coded import Coded
from support.view.coderun import object_of
from support.view.flow import Flow


@pytest.mark.parametrize(
    ("workflow", "options", "warning"),
    [
        ({"metadata": {"name": "flow"}}, [], ""),
        (
            None,
            ["--wait-for-workflow"],
            "Warning: there is no Workflow `flow` in namespace `shop` yet; its runs wait until it exists\n",
        ),
        ((403, {"message": "no"}), [], ""),
    ],
    ids=["existing", "missing", "unreadable"],
)
def test_start_creates_a_run_that_may_wait_for_its_workflow(
    server: ApiServer, workflow: Any, options: list[str], warning: str
) -> None:
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = lambda: workflow
    done = perdure("start", "flow", "--no-wait", *options)
    assert (done.exit_code, done.stderr) == (0, warning)
    assert done.stdout == "workflowrun.perdure.dev/flow-1 created\n"


@pytest.mark.parametrize("options", [[], ["--dry-run=server"], ["--wait"]])
def test_start_of_an_unknown_workflow_fails(server: ApiServer, options: list[str]) -> None:
    done = perdure("start", "flow", *options)
    assert (done.exit_code, done.stdout, server.created, server.tried) == (1, "", [], [])
    assert done.stderr == (
        "Error: there is no Workflow `flow` in namespace `shop`; nothing was created: create it first, or pass "
        "--wait-for-workflow\n"
    )


@pytest.mark.parametrize(
    "written", ["order", "workflowrun.perdure.dev/order", "workflowruns/order", "WFR/order", "workflowrun/order"]
)
def test_a_run_can_be_named_as_output_name_prints_it(server: ApiServer, written: str) -> None:
    done = perdure("cancel", written, "--no-wait", "-o", "name")
    assert (done.exit_code, done.stdout) == (0, "operation.perdure.dev/cancel-1\n"), done.stderr
    assert server.created[0]["spec"]["target"] == {"kind": "WorkflowRun", "name": "order"}


@pytest.mark.parametrize("written", ["schedule.perdure.dev/order", "pods/order", "operation/order"])
def test_the_name_of_another_kind_is_rejected(server: ApiServer, written: str) -> None:
    done = perdure("describe", written)
    assert (done.exit_code, server.asked) == (2, [])
    assert f"'{written}' is not a WorkflowRun" in " ".join(done.stderr.split())


def test_a_workflow_id_with_a_slash_that_is_given_as_a_name_gets_a_hint(server: ApiServer) -> None:
    said = [
        " ".join(perdure(verb, "whole/1/part").stderr.split()) for verb in ("describe", "cancel", "stack", "delete")
    ]
    assert all("'whole/1/part' is not a WorkflowRun" in each for each in said)
    assert [each.endswith("; pass a workflow ID with `--workflow-id`") for each in said] == [True, True, True, False]
    assert server.asked == []


def test_a_schedule_can_be_named_in_the_same_way_and_an_id_can_have_a_slash(server: ApiServer) -> None:
    named = [perdure("schedule", "pause", name, "--no-wait").exit_code for name in ("wsch/nightly", "nightly")]
    assert named == [0, 0]
    assert [each["spec"]["target"]["name"] for each in server.created] == ["nightly", "nightly"]
    assert perdure("schedule", "pause", "team/nightly", "--no-wait").exit_code == 0
    assert server.created[-1]["spec"]["target"]["name"].startswith("team-nightly-")


def test_kinds_have_the_names_of_their_resources() -> None:
    known = {kind.__name__: (kind.info.plural, kind.info.short_name) for kind in KIND_MODELS}
    assert {kind: known[kind] for kind in KINDS} == KINDS


def condition(reason: str, message: str = "", status: str = "Unknown") -> dict[str, Any]:
    return {"conditions": [{"type": "Succeeded", "status": status, "reason": reason, "message": message}]}


@pytest.mark.parametrize(
    ("status", "want", "said"),
    [
        (condition("Running"), 0, ""),
        (condition("Failed", "Boom: it broke", "False"), 0, ""),
        (
            condition("WorkflowNotFound", "Workflow `flow` cannot be run: there is no Workflow `library`"),
            0,
            "Warning: the run `order` waits: Workflow `flow` cannot be run: there is no Workflow `library`",
        ),
        (
            condition("RetryPolicyNotFound", "there is no RetryPolicy"),
            0,
            "Warning: the run `order` waits: there is no Ret",
        ),
        (condition("LimitReached", "WorkflowLimit `a` has"), 0, "Warning: the run `order` waits: WorkflowLimit `a`"),
        (condition("LimitReached", "`a` is full", "False"), 1, "was not started: `a` is full"),
        (
            condition("InvalidInput", "input.amount: is missing", "False"),
            1,
            "was not started: input.amount: is missing",
        ),
        (
            condition("WorkflowExecutionAlreadyStarted", "`a` is open", "False"),
            1,
            "Error: the run `order` was not started: `a` is open",
        ),
    ],
    ids=[
        "accepted",
        "accepted and failed",
        "no library",
        "no RetryPolicy",
        "limit",
        "full",
        "invalid input",
        "id in use",
    ],
)
def test_start_waits_for_the_first_status(server: ApiServer, status: Any, want: int, said: str) -> None:
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = (403, {"message": "no"})
    looks = iter([{}, {}])
    server.status = lambda _: next(looks, status)
    done = perdure("start", "flow", "--name", "order")
    assert done.exit_code == want
    assert done.stdout == "workflowrun.perdure.dev/order created\n"
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)


async def test_start_warns_if_no_operator_reconciles_the_run(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers[f"{RUNS}/order"] = {"metadata": {"name": "order"}}
    async with connect(context=None, namespace=None, program="perdure") as cluster:
        with pytest.raises(Exit) as ended:
            await wait_for_verdict(cluster, "order", seconds=0.1)
    assert (ended.value.exit_code, "the operator has not processed the run `order`" in capsys.readouterr().err) == (
        124,
        True,
    )


SCHEMA = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer"}}}
FLOW = {"metadata": {"name": "flow"}, "spec": {"input": {"schema": SCHEMA}, "steps": [{"name": "a", "set": {"x": 1}}]}}


@pytest.mark.parametrize(
    "arguments",
    [
        ["start", "flow"],
        ["signal", "-w", "cart-7", "--name", "add", "--start", "flow"],
        ["schedule", "create", "nightly", "--workflow", "flow", "--cron", "30 2 * * *"],
    ],
    ids=["start", "signal --start", "schedule create"],
)
def test_start_rejects_an_input_that_violates_the_schema(server: ApiServer, arguments: list[str]) -> None:
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = FLOW
    option = "--start-input" if "--start" in arguments else "--input"
    done = perdure(*arguments, option, '{"amount": "ten"}')
    assert (done.exit_code, done.stdout, server.created) == (1, "", [])
    assert done.stderr.startswith("Error: the input is not valid for Workflow `flow`: spec.input.amount: ")
    assert done.stderr.endswith("; nothing was created\n")


def test_start_rejects_the_workflow_id_of_an_open_run(server: ApiServer) -> None:
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = {"metadata": {"name": "flow"}, "spec": {}}
    open_run = {
        "metadata": {"name": "first", "uid": "f"},
        "spec": {"workflowId": "A-1"},
        "status": {"phase": "Running"},
    }
    server.answers[RUNS] = items(open_run)
    done = perdure("start", "flow", "-w", "A-1")
    assert (done.exit_code, server.created) == (1, [])
    assert done.stderr.startswith("Error: the open run `first` has workflow ID `A-1`")
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = FLOW
    server.status = lambda _: {"phase": "Complete", "completionTime": "2026-01-31T12:00:00Z"}
    signalled = perdure("signal", "-w", "A-1", "--name", "add", "--start", "flow", "--start-input", '{"amount": "ten"}')
    assert signalled.exit_code == 0  # nothing is started: the open run has the signal
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = (403, {"message": "no"})
    server.status = lambda _: condition("Running")
    assert perdure("start", "flow", "-w", "A-1", "--id-conflict-policy", "UseExisting").exit_code == 0


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        ("OrderWorkflow", "order-workflow-1"),
        ("orders.v2/Bill", "orders-v2-bill-1"),
        ("Überweisung", "berweisung-1"),
        ("注文", "run-1"),
    ],
)
def test_start_creates_a_code_run(server: ApiServer, kind: str, called: str) -> None:
    done = perdure(
        "start", "--type", kind, "--task-queue", "orders", "-w", "A-1001", "-i", '{"id": 7}', "--paused", "--no-wait"
    )
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"workflowrun.perdure.dev/{called} created\n"
    assert server.created[0]["spec"] == {
        "workflow": {"type": kind, "taskQueue": "orders"},
        "workflowId": "A-1001",
        "input": {"id": 7},
        "startPaused": True,
    }
    assert WorkflowRun.parse(server.created[0]).spec.workflow is not None


def test_start_sets_the_priority(server: ApiServer) -> None:
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = {"metadata": {"name": "flow"}}
    done = perdure("start", "flow", "--priority", "-5", "--no-wait")
    assert done.exit_code == 0, done.stderr
    assert server.created[0]["spec"] == {"workflow": {"name": "flow"}, "priority": -5}
    refused = perdure("start", "flow", "--priority", "1001", "--no-wait")
    assert (refused.exit_code, len(server.created)) == (2, 1)


def test_start_waits_for_a_code_run(server: ApiServer) -> None:
    run = Coded.begin()
    run.decide(cmd.CompleteWorkflowExecution(), seconds=1)
    server.status = lambda _: object_of(run)["status"]
    done = perdure("start", "--type", "Order", "--task-queue", "orders", "--name", "k9", "--wait")
    assert done.exit_code == 0, done.stderr
    assert "k9 Completed" in done.stdout


@pytest.mark.parametrize(("end", "want"), [("completed", 0), ("failed", 1)])
def test_wait_ends_with_the_run_and_its_exit_code_shows_the_outcome(server: ApiServer, end: str, want: int) -> None:
    definition = """
    activities:
    - {name: only, startToCloseTimeout: 1m, retryPolicy: {exponential: {maximumAttempts: 1}}, container: {image: shop}}
    steps: [{name: only, activity: {name: only}}]
    """
    flow = Flow(definition)
    looks = 0

    def look() -> Any:
        nonlocal looks
        looks += 1
        if looks == 2:
            return 503, {"reason": "ServiceUnavailable", "message": "etcd is away"}
        if looks == 3:
            getattr(flow, end)(5)
        return flow.object

    server.answers[f"{RUNS}/order-42"] = look
    done = perdure("wait", "order-42")
    assert done.exit_code == want, done.stderr
    assert "etcd is away" in done.stderr
    assert done.stdout.splitlines()[-1].startswith(
        f"+5s {'✓' if want == 0 else '✗'} order-42 {end.capitalize()}: after 5s"
    )


def test_wait_times_out_with_exit_code_124(server: ApiServer) -> None:
    server.answers[f"{RUNS}/order-42"] = Flow().object
    done = perdure("wait", "order-42", "--timeout", "100ms")
    assert done.exit_code == 124
    assert done.stderr == "Error: the run `order-42` has not ended within 100ms; it keeps running\n"


def test_wait_ends_when_the_run_is_deleted(server: ApiServer) -> None:
    looks: list[dict[str, Any] | None] = [Flow().object]
    server.answers[f"{RUNS}/order-42"] = lambda: looks.pop() if looks else None
    done = perdure("wait", "order-42")
    assert done.exit_code == 2
    assert "was deleted before it ended" in done.stderr


@pytest.mark.parametrize("existing", [[], [Flow().object]], ids=["not found", "deleted"])
def test_wait_can_ignore_a_missing_run(server: ApiServer, existing: list[dict[str, Any]]) -> None:
    server.answers[f"{RUNS}/order-42"] = lambda: existing.pop() if existing else None
    server.answers[RUNS] = items()
    done = perdure("wait", "order-42", "--ignore-not-found")
    assert done.exit_code == 0
    assert "order-42" in done.stderr
    assert "no WorkflowRun with workflow ID `A-1`" in perdure("wait", "-w", "A-1", "--ignore-not-found").stderr
    server.answers[f"{RUNS}/order-42"] = (403, {"message": "workflowruns is forbidden"})
    assert perdure("wait", "order-42", "--ignore-not-found").exit_code == 2


@pytest.mark.parametrize(
    ("input_", "warned"),
    [('{"day": "${schedule.scheduledTime}"}', True), ('{"day": "${HOME} $${now}"}', False)],
    ids=["expression", "other text"],
)
def test_start_warns_of_an_expression_in_the_input(server: ApiServer, input_: str, warned: bool) -> None:
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = (403, {"message": "no"})
    done = perdure("start", "flow", "--input", input_, "--no-wait")
    assert (done.exit_code, len(server.created)) == (0, 1)
    assert done.stderr.startswith("Warning: spec.input.day: `${…}` is not evaluated here:") == warned
    assert bool(done.stderr) == warned


@pytest.mark.parametrize(
    ("arguments", "warns"),
    [
        (["start", "flow"], True),
        (["signal", "-w", "cart-7", "--name", "add", "--start", "flow", "--no-wait"], True),
        (["schedule", "create", "nightly", "--workflow", "flow", "--cron", "30 2 * * *"], False),
    ],
    ids=["start", "signal --start", "schedule create"],
)
def test_start_warns_of_what_only_a_schedule_gives_a_value(
    server: ApiServer, arguments: list[str], warns: bool
) -> None:
    """Two days of new users: such a run failed after its work was done."""
    spec = {"steps": [{"name": "a", "set": {"x": 1}}], "output": "${schedule.scheduledTime}"}
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = {"metadata": {"name": "flow"}, "spec": spec}
    server.status = lambda _: condition("Running")
    done = perdure(*arguments)
    assert done.exit_code == 0, done.stderr
    warning = "Warning: Workflow `flow`: spec.output: `schedule.scheduledTime` has a value only in runs of a Schedule"
    assert (warning in done.stderr) == warns
