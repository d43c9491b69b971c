"""The command as it is called: help, errors, exit codes. An HTTP server of the tests' own stands in for a cluster."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from engine.coded import Coded
from perdure.api.workflowrun import WorkflowRun
from perdure.cli.app import VERBS, build, program_name, verb_first
from perdure.engine import commands as cmd
from perdure.runtime import segments
from perdure.runtime.attempts import RunRef
from unit.cli.apiserver import ApiServer, items, kubeconfig, use_kubeconfig
from unit.cli.coderun import object_of
from unit.cli.flow import ORDER, UID, Flow, charged_after_two_refusals

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"


def call(*arguments: str, program: str = "perdure") -> Result:
    return CliRunner().invoke(build(program), list(arguments), prog_name=program)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("program", ["perdure", "kubectl perdure"])
def test_help_fits_80_columns_and_has_an_example(verb: str, program: str) -> None:
    shown = call(verb, "-h", program=program).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert f"Usage: {program} {verb}" in shown
    assert f"\n    {program} {verb}" in shown.partition("Examples:")[2]
    assert "{" not in re.sub(r"\{(NAME|DIR|WORKFLOW|SHELL|TOPIC)\}", "", shown)


@pytest.mark.parametrize(
    ("called", "want"),
    [
        ("/usr/bin/perdure", "perdure"),
        ("/home/a/.krew/bin/kubectl-perdure", "kubectl perdure"),
        ("kubectl-perdure.exe", "kubectl perdure"),
        ("-c", "perdure"),
    ],
)
def test_the_plugin_calls_itself_as_kubectl_does(called: str, want: str) -> None:
    assert program_name(called) == want


def test_version_imports_nothing_that_it_does_not_need() -> None:
    code = (
        "import sys; sys.argv = ['perdure', 'version']\n"
        "from perdure.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'aiohttp', 'asyncio', 'kubernetes', 'kopf', 'rich', 'yaml'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["perdure 0.1.0", "[]"]


def test_describe_shows_the_run_and_asks_for_its_pods(server: ApiServer) -> None:
    flow = charged_after_two_refusals()
    server.answers[f"{RUNS}/order-42"] = flow.object
    server.answers["/api/v1/namespaces/shop/pods"] = items({"metadata": {"name": "order-42-5-2"}})
    server.answers["/apis/coordination.k8s.io/v1/namespaces/shop/leases"] = (403, {"message": "no"})
    done = call("describe", "order-42", "--output", "json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["pods"] == ["order-42-5-2"]
    assert server.asked[1][1]["labelSelector"] == [f"perdure.dev/run-id={UID}"]
    text = call("describe", "order-42", "--color", "always").stdout
    assert "\x1b[32m✓ Succeeded" in text
    assert "\x1b" not in call("describe", "order-42", "--color", "never").stdout
    assert yaml.safe_load(call("describe", "order-42", "-o", "yaml").stdout)["name"] == "order-42"
    assert call("describe", "order-42", "-o", "name").stdout == "workflowrun.perdure.dev/order-42\n"
    assert call("describe", "order-42", "-o", "wide").stdout == call("describe", "order-42").stdout


def test_describe_watches_until_the_run_ends_and_then_shows_it(server: ApiServer) -> None:
    flow, asked = charged_after_two_refusals(), 0

    def look() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        if asked == 2:
            flow.at(56)
        return json.loads(json.dumps(flow.object))

    server.answers[f"{RUNS}/order-42"] = look
    server.answers["/api/v1/namespaces/shop/pods"] = items()
    done = call("describe", "order-42", "--watch", "--color", "never")
    assert done.exit_code == 0, done.stderr
    progress, _, whole = done.stdout.partition("Name: ")
    assert [line.split(" ", 1)[1] for line in progress.splitlines() if "order-42" in line][-1].startswith("✓ order-42")
    assert "Status:       ✓ Completed" in whole
    assert call("describe", "order-42", "--watch", "-o", "json").exit_code == 2


def test_history_as_json_is_what_is_stored_and_can_be_replayed(server: ApiServer, tmp_path: Path) -> None:
    flow = charged_after_two_refusals().at(56)
    server.answers[f"{RUNS}/order-42"] = flow.object
    done = call("history", "order-42", "-o", "json")
    assert json.loads(done.stdout) == {"events": flow.status["history"]["events"]}
    assert yaml.safe_load(call("history", "order-42", "-o", "yaml").stdout) == json.loads(done.stdout)
    workflow = {"kind": "Workflow", "metadata": {"name": "order-flow"}, "spec": yaml.safe_load(ORDER)}
    (tmp_path / "h.json").write_text(done.stdout)
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(workflow))
    files = ("--file", str(tmp_path / "h.json"), "--workflow", str(tmp_path / "w.yaml"))
    assert call("replay", *files).stdout == "replays: 10 events\n"
    (tmp_path / "w.yaml").write_text(
        yaml.safe_dump(workflow).replace("30s}", "31s}").replace("duration: 30s", "duration: 31s")
    )
    changed = call("replay", *files)
    assert changed.exit_code == 1
    assert changed.stdout.startswith("does not replay: event 8 differs\n")


def test_sealed_segments_come_before_the_events_in_the_status(server: ApiServer) -> None:
    flow = charged_after_two_refusals().at(56)
    run = json.loads(json.dumps(flow.object))
    events = run["status"]["history"]["events"]
    ref = RunRef(namespace="shop", name="order-42", uid=UID, workflow_id="order-42")
    first = segments.build(ref, 0, events[:3], None)
    second = segments.build(ref, 1, events[3:5], first["spec"]["hash"])
    run["status"]["history"] |= {"events": events[5:], "segments": 2, "lastSegmentHash": second["spec"]["hash"]}
    server.answers[f"{RUNS}/order-42"] = run
    where = "/apis/perdure.dev/v1alpha1/namespaces/shop/historysegments"
    server.answers[where] = items(second, first)
    assert json.loads(call("history", "order-42", "-o", "json").stdout) == {"events": events}
    path, query = server.asked[-1]
    assert (path, query["fieldSelector"]) == (where, [f"spec.workflowRun.runId={UID}"])
    server.asked.clear()
    assert call("wait", "order-42").exit_code == 0
    assert where in [path for path, _ in server.asked]  # once the run has closed, the whole history is shown
    whole = call("describe", "order-42", "-o", "json").stdout
    server.answers[f"{RUNS}/order-42"] = flow.object
    assert call("describe", "order-42", "-o", "json").stdout == whole
    server.answers[f"{RUNS}/order-42"] = run
    server.answers[where] = items(second)
    done = call("history", "order-42")
    assert done.exit_code == 2
    assert f"`{first['metadata']['name']}` is missing" in done.stderr
    assert call("describe", "order-42").exit_code == 0
    second["spec"]["events"][0]["eventType"] = "TimerFired"
    server.answers[where] = items(first, second)
    assert f"`{second['metadata']['name']}` has events with hash" in call("history", "order-42").stderr


def test_list_shows_the_newest_first_and_names_for_xargs(server: ApiServer) -> None:
    old, new = Flow(name="old").object, Flow(name="new").object
    new["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    server.answers[RUNS] = items(old, new)
    server.answers["/apis/perdure.dev/v1alpha1/workflowruns"] = items(old)
    assert call("list", "-o", "name").stdout.split() == ["workflowrun.perdure.dev/new", "workflowrun.perdure.dev/old"]
    assert call("list", "-A").stdout.splitlines()[1].split()[:2] == ["shop", "old"]
    assert json.loads(call("list", "-o", "json").stdout)["items"] == [new, old]


def test_list_of_nothing_says_so_on_stderr(server: ApiServer) -> None:
    server.answers[RUNS] = items()
    done = call("list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "no runs in namespace shop" in done.stderr


@pytest.mark.parametrize(
    "verb", [["list"], ["list", "--phase", "Failed"], ["operations"], ["schedule", "list"], ["deadletters", "list"]]
)
def test_a_namespace_that_is_not_there_is_told_of(server: ApiServer, verb: list[str]) -> None:
    for plural in ("workflowruns", "operations", "schedules", "deadletters"):
        server.answers[f"/apis/perdure.dev/v1alpha1/namespaces/nope/{plural}"] = items()
    done = call(*verb, "-n", "nope")
    assert done.exit_code == 1
    assert done.stderr == "Error: there is no namespace `nope`; choose another one with -n\n"


@pytest.mark.parametrize("status", [403, 500])
def test_a_namespace_that_cannot_be_looked_at_may_be_there(server: ApiServer, status: int) -> None:
    server.answers[RUNS] = items()
    server.answers["/api/v1/namespaces/shop"] = (status, {"message": "no"})
    done = call("list")
    assert (done.exit_code, "no runs in namespace shop" in done.stderr) == (0, True)


@pytest.mark.parametrize(
    ("workflow", "warning"),
    [
        ({"metadata": {"name": "flow"}}, ""),
        (None, "Warning: there is no Workflow `flow` in namespace `shop` yet; runs of it wait until there is one\n"),
        ((403, {"message": "no"}), ""),
    ],
    ids=["there", "not there", "not to be seen"],
)
def test_start_warns_of_a_workflow_that_is_not_there(server: ApiServer, workflow: Any, warning: str) -> None:
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = lambda: workflow
    done = call("start", "flow", "--no-wait")
    assert (done.exit_code, done.stderr) == (0, warning)
    assert done.stdout == "workflowrun.perdure.dev/flow-1 created\n"


def condition(reason: str, message: str = "", status: str = "Unknown") -> dict[str, Any]:
    return {"conditions": [{"type": "Succeeded", "status": status, "reason": reason, "message": message}]}


@pytest.mark.parametrize(
    ("status", "want", "said"),
    [
        (condition("Running"), 0, ""),
        (condition("Failed", "Boom: it broke", "False"), 0, ""),
        (condition("WorkflowNotFound", "there is no Workflow"), 0, ""),
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
        "no Workflow",
        "no RetryPolicy",
        "limit",
        "full",
        "invalid input",
        "id in use",
    ],
)
def test_start_waits_for_what_the_operator_says(server: ApiServer, status: Any, want: int, said: str) -> None:
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = (403, {"message": "no"})
    looks = iter([{}, {}])
    server.status = lambda _: next(looks, status)
    done = call("start", "flow", "--name", "order")
    assert done.exit_code == want
    assert done.stdout == "workflowrun.perdure.dev/order created\n"
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)


def test_start_says_so_where_no_operator_looks_at_the_run(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.cli.starting.VERDICT_SECONDS", 0.1)
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = (403, {"message": "no"})
    done = call("start", "flow", "--name", "order")
    assert (done.exit_code, "the operator has not looked at the run `order`" in done.stderr) == (124, True)


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
def test_nothing_is_created_whose_input_does_not_fit(server: ApiServer, arguments: list[str]) -> None:
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = FLOW
    option = "--start-input" if "--start" in arguments else "--input"
    done = call(*arguments, option, '{"amount": "ten"}')
    assert (done.exit_code, done.stdout, server.created) == (1, "", [])
    assert done.stderr.startswith("Error: the input does not fit Workflow `flow`: spec.input.amount: ")
    assert done.stderr.endswith("; nothing is created\n")


def test_nothing_is_created_where_an_open_run_has_the_workflow_id(server: ApiServer) -> None:
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = {"metadata": {"name": "flow"}, "spec": {}}
    open_run = {
        "metadata": {"name": "first", "uid": "f"},
        "spec": {"workflowId": "A-1"},
        "status": {"phase": "Running"},
    }
    server.answers[RUNS] = items(open_run)
    done = call("start", "flow", "-w", "A-1")
    assert (done.exit_code, server.created) == (1, [])
    assert done.stderr.startswith("Error: the open run `first` has workflow ID `A-1`")
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = FLOW
    server.status = lambda _: {"phase": "Complete", "completionTime": "2026-01-31T12:00:00Z"}
    signalled = call("signal", "-w", "A-1", "--name", "add", "--start", "flow", "--start-input", '{"amount": "ten"}')
    assert signalled.exit_code == 0  # nothing is started: the open run has the signal
    server.answers[RUNS.replace("workflowruns", "workflows/flow")] = (403, {"message": "no"})
    server.status = lambda _: condition("Running")
    assert call("start", "flow", "-w", "A-1", "--id-conflict-policy", "UseExisting").exit_code == 0


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        ("OrderWorkflow", "order-workflow-1"),
        ("orders.v2/Bill", "orders-v2-bill-1"),
        ("Überweisung", "berweisung-1"),
        ("注文", "run-1"),
    ],
)
def test_start_makes_a_run_of_code(server: ApiServer, kind: str, called: str) -> None:
    done = call(
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


def test_start_gives_a_run_its_priority(server: ApiServer) -> None:
    done = call("start", "flow", "--priority", "-5", "--no-wait")
    assert done.exit_code == 0, done.stderr
    assert server.created[0]["spec"] == {"workflow": {"name": "flow"}, "priority": -5}
    refused = call("start", "flow", "--priority", "1001", "--no-wait")
    assert (refused.exit_code, len(server.created)) == (2, 1)


def test_start_waits_for_a_run_of_code(server: ApiServer) -> None:
    run = Coded.begin()
    run.decide(cmd.CompleteWorkflowExecution(), seconds=1)
    server.status = lambda _: object_of(run)["status"]
    done = call("start", "--type", "Order", "--task-queue", "orders", "--name", "k9", "--wait")
    assert done.exit_code == 0, done.stderr
    assert "k9 Completed" in done.stdout


@pytest.mark.parametrize(("end", "want"), [("completed", 0), ("failed", 1)])
def test_wait_ends_with_the_run_and_tells_how_by_its_exit_code(server: ApiServer, end: str, want: int) -> None:
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
    done = call("wait", "order-42")
    assert done.exit_code == want, done.stderr
    assert "etcd is away" in done.stderr
    assert done.stdout.splitlines()[-1].startswith(
        f"+5s {'✓' if want == 0 else '✗'} order-42 {end.capitalize()}: after 5s"
    )


def test_wait_gives_up_with_the_code_of_timeout(server: ApiServer) -> None:
    server.answers[f"{RUNS}/order-42"] = Flow().object
    done = call("wait", "order-42", "--timeout", "100ms")
    assert done.exit_code == 124
    assert done.stderr == "Error: the run `order-42` has not ended within 100ms; it keeps running\n"


def test_wait_does_not_wait_for_what_was_deleted(server: ApiServer) -> None:
    looks: list[dict[str, Any] | None] = [Flow().object]
    server.answers[f"{RUNS}/order-42"] = lambda: looks.pop() if looks else None
    done = call("wait", "order-42")
    assert done.exit_code == 2
    assert "was deleted before it ended" in done.stderr


def of_workflow_id(server: ApiServer, *found: dict[str, Any]) -> None:
    """Have the list answer with the runs that a field selector takes."""

    def answer() -> dict[str, Any]:
        field, _, value = server.asked[-1][1]["fieldSelector"][0].partition("=")
        kind, key = field.split(".")
        return items(*(run for run in found if run[kind].get(key) == value.replace("\\", "")))

    server.answers[RUNS] = answer
    for run in found:
        server.answers[f"{RUNS}/{run['metadata']['name']}"] = run


def named(name: str, workflow_id: str | None, **status: Any) -> dict[str, Any]:
    run = Flow(name=name).object
    spec = run["spec"] | ({"workflowId": workflow_id} if workflow_id else {})
    return {**run, "metadata": run["metadata"] | {"uid": name}, "spec": spec, "status": run["status"] | status}


def test_a_run_may_be_named_by_its_workflow_id(server: ApiServer) -> None:
    ended = {"phase": "Completed", "completionTime": "2026-01-01T12:00:05Z"}
    later = {"phase": "Failed", "completionTime": "2026-01-01T12:00:09Z"}
    taken = {"failure": {"type": "WorkflowExecutionAlreadyStarted"}, "completionTime": "2026-01-01T13:00:00Z"}
    open_ = named("second", "A/1,b", phase="Running")
    of_workflow_id(server, named("first", "A/1,b", **ended), open_)
    for verb in ("describe", "history"):
        assert call(verb, "-w", "A/1,b").exit_code == 0
    assert json.loads(call("describe", "-w", "A/1,b", "-o", "json").stdout)["name"] == "second"
    assert ["spec.workflowId=A/1\\,b"] in [query.get("fieldSelector") for _, query in server.asked]
    done = call("wait", "--workflow-id", "A/1,b", "--timeout", "100ms")
    assert (done.exit_code, done.stderr) == (
        124,
        "Error: the run with workflow ID `A/1,b` has not ended within 100ms; it keeps running\n",
    )
    of_workflow_id(server, named("last", "b", **later), named("first", "b", **ended), named("refused", "b", **taken))
    assert json.loads(call("describe", "-w", "b", "-o", "json").stdout)["name"] == "last"
    of_workflow_id(server, named("order-7", None), named("other", "order-7", **ended), named("x", "y"))
    assert json.loads(call("describe", "-w", "order-7", "-o", "json").stdout)["name"] == "order-7"
    assert "no WorkflowRun with workflow ID `none`" in call("describe", "-w", "none").stderr
    activity = named("charge", "order-8", phase="Running")
    activity["spec"] = {"workflowId": "order-8", "activity": {"type": "Charge", "taskQueue": "q"}}
    of_workflow_id(server, activity, named("old", "order-8", **ended))
    assert json.loads(call("describe", "-w", "order-8", "-o", "json").stdout)["name"] == "old"
    assert call("describe", "charge").exit_code == 0


@pytest.mark.parametrize("verb", ["describe", "history", "wait"])
def test_a_name_that_is_a_workflow_id_is_told_of(server: ApiServer, verb: str) -> None:
    of_workflow_id(server, named("order-1-abc", "A 1"))
    done = call(verb, "A 1")
    assert done.exit_code == 2
    assert done.stderr == (
        "Error: there is no WorkflowRun `A 1` in namespace `shop`, but that is the workflow ID of `order-1-abc`; pass it with "
        "`-w 'A 1'`\n"
    )
    for wrong in (["a", "-w", "b"], []):
        done = call(verb, *wrong)
        assert (done.exit_code, "set either" in " ".join(done.stderr.split())) == (2, True)


@pytest.mark.parametrize(
    ("status", "message", "want"),
    [
        (404, 'workflowruns.perdure.dev "x" not found', "no WorkflowRun `x` in namespace `shop`; list those"),
        (404, "404 page not found", "Perdure is not installed in it; run `make install`"),
        (401, "Unauthorized", "log in again"),
        (403, 'workflowruns "x" is forbidden', "ask your administrator for the role `view`"),
        (500, "oh", "is not available (500: oh); try again"),
        (400, "bad", "refused the request: bad"),
    ],
)
def test_what_the_api_server_refuses_is_one_sentence_with_a_remedy(
    server: ApiServer, status: int, message: str, want: str
) -> None:
    server.answers[f"{RUNS}/x"] = (status, {"reason": "Any", "message": message})
    for verb in ("describe", "history", "wait"):
        done = call(verb, "x")
        assert done.exit_code == 2
        assert done.stderr.startswith("Error: ")
        assert want in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "want"),
    [(None, "set KUBECONFIG, or run `make cluster`"), ("{a: [", "make cluster"), ("[]", "make cluster")],
    ids=["none", "no YAML", "something else"],
)
def test_no_cluster_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, want: str
) -> None:
    use_kubeconfig(tmp_path / "config", monkeypatch)
    if content is not None:
        (tmp_path / "config").write_text(content)
    done = call("list")
    assert done.exit_code == 2
    assert want in done.stderr


def test_a_context_that_does_not_exist_is_named(server: ApiServer) -> None:
    assert server.asked == []
    done = call("list", "--context", "elsewhere")
    assert done.exit_code == 2
    assert "elsewhere" in done.stderr


def test_an_api_server_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig(tmp_path, monkeypatch, "http://127.0.0.1:9")
    done = call("list")
    assert done.exit_code == 2
    assert "http://127.0.0.1:9 does not respond" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["describe"], ["descrbe", "x"], ["wait", "x", "--timeout", "soon"], ["list", "-o", "xml"], ["replay"]],
)
def test_wrong_usage_is_trouble(arguments: list[str]) -> None:
    done = call(*arguments)
    assert done.exit_code == 2
    assert "Error: " in done.stderr


def test_verbs_have_one_of_two_sets_of_output_formats() -> None:
    app = get_command(build("perdure"))
    assert isinstance(app, TyperGroup)
    verbs = [
        verb
        for one in app.commands.values()
        for verb in (one.commands.values() if isinstance(one, TyperGroup) else [one])
    ]
    found = [each for verb in verbs for each in verb.params if each.name == "output"]
    assert len(found) > 20
    for each in found:
        assert each.opts == ["--output", "-o"]
        assert "jsonpath=TEMPLATE, or custom-columns=TITLE:PATH,…" in each.help  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("verb", "taken"),
    [
        (["history", "run"], {"text", "json", "yaml"}),
        (["start", "flow"], {"text", "wide", "json", "yaml", "name"}),
        (["list"], {"text", "wide", "json", "yaml", "name"}),
        (["describe", "run"], {"text", "wide", "json", "yaml", "name"}),
    ],
)
def test_an_output_format_that_a_verb_does_not_have_is_refused_with_those_it_has(
    verb: list[str], taken: set[str]
) -> None:
    done = call(*verb, "--output", "xml")
    assert done.exit_code == 2
    words = set(re.findall(r"'([^']+)'", " ".join(done.stderr.split()).partition("is not one of")[2]))
    assert words == taken | {"jsonpath=…", "custom-columns=…"}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("-n shop describe order-1", "describe -n shop order-1"),
        ("--namespace=shop --context kind list -o wide", "list --namespace=shop --context kind -o wide"),
        ("-n shop schedule describe nightly", "schedule describe -n shop nightly"),
        ("describe -n shop order-1", "describe -n shop order-1"),
        ("-n shop", "-n shop"),
        ("-n shop nothing", "-n shop nothing"),
        ("--help", "--help"),
        ("", ""),
    ],
)
def test_namespace_and_context_may_stand_before_the_verb(given: str, want: str) -> None:
    assert verb_first(given.split()) == want.split()
