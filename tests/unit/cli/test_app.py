"""The command line: help, errors, exit codes. A test HTTP server stands in for a cluster."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from perdure.cli.app import VERBS, program_name, verb_first, verb_of
from perdure.runtime import segments, status_encoding
from perdure.runtime.attempts import RunRef
from support.apiserver import ApiServer, items, use_kubeconfig
from support.cli import RUNS, perdure
from support.view.flow import ORDER, UID, Flow, charged_after_two_refusals


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("program", ["perdure", "kubectl perdure"])
def test_help_fits_80_columns_and_has_an_example(verb: str, program: str) -> None:
    shown = perdure(verb, "-h", program=program).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert f"Usage: {program} {verb}" in shown
    assert f"\n    {program} {verb}" in shown.partition("Examples:")[2]
    assert "{" not in shown


def test_the_table_of_verbs_has_the_first_sentence_of_their_help() -> None:
    width = 200
    assert {name: summary for name, (_, summary) in VERBS.items()} == {
        name: verb_of(name).get_short_help_str(width) for name in VERBS
    }


@pytest.mark.parametrize(
    ("called", "want"),
    [
        ("/usr/bin/perdure", "perdure"),
        ("/home/a/.krew/bin/kubectl-perdure", "kubectl perdure"),
        ("kubectl-perdure.exe", "kubectl perdure"),
        ("-c", "perdure"),
    ],
)
def test_the_plugin_names_itself_as_kubectl_does(called: str, want: str) -> None:
    assert program_name(called) == want


@pytest.mark.parametrize("verb", ["schedule create", "signal", "list", "history"])
def test_help_shows_no_types_of_python(verb: str) -> None:
    shown = perdure(*verb.split(), "--help").output
    assert not re.search(r"<\w+|list\[|\{", shown.partition("Examples:")[0] + shown.partition("Options:")[2])
    assert "[OPTIONS] NAME" in perdure("schedule", "create", "--help").output
    assert "--color [auto|always|never]" in perdure("list", "--help").output


def test_describe_shows_the_run_and_requests_its_pods(server: ApiServer) -> None:
    flow = charged_after_two_refusals()
    server.answers[f"{RUNS}/order-42"] = flow.object
    server.answers["/api/v1/namespaces/shop/pods"] = items({"metadata": {"name": "order-42-5-2"}})
    server.answers["/apis/coordination.k8s.io/v1/namespaces/shop/leases"] = (403, {"message": "no"})
    done = perdure("describe", "order-42", "--output", "json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["pods"] == ["order-42-5-2"]
    assert server.asked[1][1]["labelSelector"] == [f"perdure.dev/run-id={UID}"]
    text = perdure("describe", "order-42", "--color", "always").stdout
    assert "\x1b[32m✓ Succeeded" in text
    assert "\x1b" not in perdure("describe", "order-42", "--color", "never").stdout
    assert yaml.safe_load(perdure("describe", "order-42", "-o", "yaml").stdout)["name"] == "order-42"
    assert perdure("describe", "order-42", "-o", "name").stdout == "workflowrun.perdure.dev/order-42\n"
    assert perdure("describe", "order-42", "-o", "wide").stdout == perdure("describe", "order-42").stdout


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
    done = perdure("describe", "order-42", "--watch", "--color", "never")
    assert done.exit_code == 0, done.stderr
    progress, _, description = done.stdout.partition("Name: ")
    assert [line.split(" ", 1)[1] for line in progress.splitlines() if "order-42" in line][-1].startswith("✓ order-42")
    assert "Status:       ✓ Completed" in description
    assert perdure("describe", "order-42", "--watch", "-o", "json").exit_code == 2


def test_history_as_json_is_the_stored_history_and_replays(server: ApiServer, tmp_path: Path) -> None:
    flow = charged_after_two_refusals().at(56)
    server.answers[f"{RUNS}/order-42"] = flow.object
    done = perdure("history", "order-42", "-o", "json")
    assert json.loads(done.stdout) == {"events": flow.status["history"]["events"]}
    assert yaml.safe_load(perdure("history", "order-42", "-o", "yaml").stdout) == json.loads(done.stdout)
    workflow = {"kind": "Workflow", "metadata": {"name": "order-flow"}, "spec": yaml.safe_load(ORDER)}
    (tmp_path / "h.json").write_text(done.stdout)
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(workflow))
    files = ("--file", str(tmp_path / "h.json"), "--workflow", str(tmp_path / "w.yaml"))
    assert perdure("replay", *files).stdout == "replays: 10 events\n"
    (tmp_path / "w.yaml").write_text(
        yaml.safe_dump(workflow).replace("30s}", "31s}").replace("duration: 30s", "duration: 31s")
    )
    changed = perdure("replay", *files)
    assert changed.exit_code == 1
    assert changed.stdout.startswith("does not replay: event 8 differs\n")


def test_a_run_is_shown_the_same_however_it_is_stored(server: ApiServer) -> None:
    flow = charged_after_two_refusals().at(56)
    shown = []
    for status in (flow.status, status_encoding.encode(flow.status)):
        stored = {**flow.object, "status": status}
        server.answers |= {f"{RUNS}/order-42": stored, RUNS: items(stored)}
        shown.append(
            [perdure(*words).stdout for words in (("describe", "order-42"), ("history", "order-42"), ("list",))]
        )
    assert shown[0] == shown[1]
    assert all("charge" in text or "order-42" in text for text in shown[0])


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
    assert json.loads(perdure("history", "order-42", "-o", "json").stdout) == {"events": events}
    path, query = server.asked[-1]
    assert (path, query["fieldSelector"]) == (where, [f"spec.workflowRun.runId={UID}"])
    server.asked.clear()
    assert perdure("wait", "order-42").exit_code == 0
    assert where in [path for path, _ in server.asked]  # once the run has closed, the complete history is shown
    document = perdure("describe", "order-42", "-o", "json").stdout
    server.answers[f"{RUNS}/order-42"] = flow.object
    assert perdure("describe", "order-42", "-o", "json").stdout == document
    server.answers[f"{RUNS}/order-42"] = run
    server.answers[where] = items(second)
    done = perdure("history", "order-42")
    assert done.exit_code == 2
    assert f"`{first['metadata']['name']}` is missing" in done.stderr
    assert perdure("describe", "order-42").exit_code == 0
    second["spec"]["events"][0]["eventType"] = "TimerFired"
    server.answers[where] = items(first, second)
    assert f"`{second['metadata']['name']}` has events with hash" in perdure("history", "order-42").stderr


def test_list_shows_the_newest_first_and_names_for_xargs(server: ApiServer) -> None:
    old, new = Flow(name="old").object, Flow(name="new").object
    new["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    server.answers[RUNS] = items(old, new)
    server.answers["/apis/perdure.dev/v1alpha1/workflowruns"] = items(old)
    assert perdure("list", "-o", "name").stdout.split() == [
        "workflowrun.perdure.dev/new",
        "workflowrun.perdure.dev/old",
    ]
    assert perdure("list", "-A").stdout.splitlines()[1].split()[:2] == ["shop", "old"]
    assert json.loads(perdure("list", "-o", "json").stdout)["items"] == [new, old]


def test_an_empty_list_is_reported_on_stderr(server: ApiServer) -> None:
    server.answers[RUNS] = items()
    done = perdure("list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "no runs in namespace shop" in done.stderr


@pytest.mark.parametrize(
    "verb",
    [
        ["list"],
        ["list", "--phase", "Failed"],
        ["operations"],
        ["schedule", "list"],
        ["deadletters", "list"],
        ["webhooks"],
    ],
)
def test_a_missing_namespace_is_reported(server: ApiServer, verb: list[str]) -> None:
    for plural in ("workflowruns", "operations", "schedules", "deadletters", "webhooks"):
        server.answers[f"/apis/perdure.dev/v1alpha1/namespaces/nope/{plural}"] = items()
    done = perdure(*verb, "-n", "nope")
    assert done.exit_code == 1
    assert done.stderr == "Error: there is no namespace `nope`; choose another one with -n\n"


@pytest.mark.parametrize("verb", ["describe", "history", "wait"])
def test_a_run_is_selected_by_either_its_name_or_its_workflow_id(server: ApiServer, verb: str) -> None:
    server.answers[RUNS] = items({**Flow(name="order-7").object, "status": {"phase": "Running"}})
    assert "no WorkflowRun `A`" in perdure(verb, "A").stderr
    for wrong in (["a", "-w", "b"], []):
        done = perdure(verb, *wrong)
        assert (done.exit_code, "set either" in " ".join(done.stderr.split())) == (2, True)


def test_the_end_of_the_run_of_a_workflow_id_can_be_awaited(server: ApiServer) -> None:
    run = {**Flow(name="second").object, "spec": {"workflowId": "A/1,b"}, "status": {"phase": "Running"}}
    server.answers |= {RUNS: items(run), f"{RUNS}/second": run}
    done = perdure("wait", "--workflow-id", "A/1,b", "--timeout", "100ms")
    assert (done.exit_code, done.stderr) == (
        124,
        "Error: the run with workflow ID `A/1,b` has not ended within 100ms; it keeps running\n",
    )


@pytest.mark.parametrize("verb", ["describe", "history", "wait"])
def test_an_error_of_the_api_server_is_one_sentence(server: ApiServer, verb: str) -> None:
    server.answers[f"{RUNS}/x"] = (500, {"reason": "Any", "message": "oh"})
    done = perdure(verb, "x")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: ")
    assert done.stderr.endswith(" is not available (500: oh); try again later\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "want"),
    [(None, "set KUBECONFIG, or run `make cluster`"), ("{a: [", "make cluster"), ("[]", "make cluster")],
    ids=["none", "no YAML", "something else"],
)
def test_a_missing_cluster_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, want: str
) -> None:
    use_kubeconfig(tmp_path / "config", monkeypatch)
    if content is not None:
        (tmp_path / "config").write_text(content)
    done = perdure("list")
    assert done.exit_code == 2
    assert want in done.stderr


def test_a_context_that_does_not_exist_is_named(server: ApiServer) -> None:
    assert server.asked == []
    done = perdure("list", "--context", "elsewhere")
    assert done.exit_code == 2
    assert "elsewhere" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["describe"], ["descrbe", "x"], ["wait", "x", "--timeout", "soon"], ["list", "-o", "xml"], ["replay"]],
)
def test_invalid_usage_has_exit_code_2(arguments: list[str]) -> None:
    done = perdure(*arguments)
    assert done.exit_code == 2
    assert "Error: " in done.stderr


def test_verbs_have_one_of_two_sets_of_output_formats() -> None:
    verbs = [
        verb
        for one in map(verb_of, VERBS)
        for verb in (one.commands.values() if isinstance(one, click.Group) else [one])
    ]
    found = [each for verb in verbs for each in verb.params if each.name == "output"]
    assert len(found) > 20
    for each in found:
        assert each.opts == ["--output", "-o"]
        assert "jsonpath=TEMPLATE, or custom-columns=TITLE:PATH,…" in (each.help or "")


@pytest.mark.parametrize(
    ("verb", "taken"),
    [
        (["history", "run"], {"text", "json", "yaml"}),
        (["start", "flow"], {"text", "wide", "json", "yaml", "name"}),
        (["list"], {"text", "wide", "json", "yaml", "name"}),
        (["describe", "run"], {"text", "wide", "json", "yaml", "name"}),
    ],
)
def test_an_invalid_output_format_is_rejected_with_the_valid_ones(verb: list[str], taken: set[str]) -> None:
    done = perdure(*verb, "--output", "xml")
    assert done.exit_code == 2
    words = set(re.findall(r"'([^']+)'", " ".join(done.stderr.split()).partition("is not one of")[2]))
    assert words == taken | {"jsonpath=…", "custom-columns=…"}


@pytest.mark.parametrize(
    ("arguments", "want"),
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
def test_namespace_and_context_can_precede_the_verb(arguments: str, want: str) -> None:
    assert verb_first(arguments.split()) == want.split()
