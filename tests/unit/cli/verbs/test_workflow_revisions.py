"""`workflow history`, `diff`, and `rollback`; runs of a revision; a run whose definition is in its revision."""

from typing import Any

import pytest
import yaml

from perdure.runtime.revisions import Content
from support.apiserver import ApiServer, items
from support.cli import RUNS, perdure
from support.view.flow import ORDER, Flow

PERDURE = RUNS.rpartition("/")[0]
WORKFLOW = f"{PERDURE}/workflows/order"


def waits(seconds: int) -> dict[str, Any]:
    return {"steps": [{"name": "nap", "sleep": {"duration": f"{seconds}s"}}]}


def revision(seconds: int, number: int, written: dict[str, Any] | None = None) -> dict[str, Any]:
    built = Content(workflow="order", definition=waits(seconds), written=written).build("shop", number)
    built["metadata"] |= {"uid": f"r{number}", "creationTimestamp": "2026-01-02T00:00:00Z"}
    return built


FIRST, SECOND, THIRD = revision(1, 1), revision(2, 2, written={"steps": [], "blocks": []}), revision(3, 3)


def run(name: str, of: dict[str, Any], phase: str) -> dict[str, Any]:
    status = {"phase": phase, "revision": Content.of(of).reference().stored()}
    if phase == "Completed":
        status["completionTime"] = "2026-01-02T00:00:00Z"
    meta = {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": "2026-01-02T00:00:00Z"}
    return {"metadata": meta, "spec": {"workflow": {"name": "order"}}, "status": status}


@pytest.fixture
def revisions(server: ApiServer) -> ApiServer:
    server.answers[f"{PERDURE}/workflowrevisions"] = items(FIRST, THIRD, SECOND)
    server.answers[WORKFLOW] = {
        "metadata": {"name": "order", "namespace": "shop", "uid": "w", "resourceVersion": "7"},
        "spec": waits(3),
        "status": {"revision": THIRD["metadata"]["name"]},
    }
    runs = run("a", FIRST, "Running"), run("b", THIRD, "Running"), run("c", THIRD, "Completed")
    server.answers[RUNS] = items(*runs)
    for each in runs:
        server.answers[f"{RUNS}/{each['metadata']['name']}"] = each
    return server


def test_the_history_of_a_workflow_shows_which_runs_use_a_revision(revisions: ApiServer) -> None:
    shown = perdure("workflow", "history", "order")
    assert shown.exit_code == 0, shown.output
    heading, *rows = (line.split() for line in shown.stdout.splitlines())
    assert heading[:4] == ["REVISION", "NAME", "CURRENT", "OPEN"]
    assert [row[:5] for row in rows] == [
        ["3", THIRD["metadata"]["name"], "yes", "1", "1"],
        ["2", SECOND["metadata"]["name"], "-", "0", "0"],
        ["1", FIRST["metadata"]["name"], "-", "1", "0"],
    ]
    assert all("fieldSelector" in query for path, query in revisions.asked if path.endswith(("revisions", "runs")))


def test_a_deleted_workflow_has_a_history_as_long_as_it_has_revisions(revisions: ApiServer) -> None:
    del revisions.answers[WORKFLOW]
    assert perdure("workflow", "history", "order").exit_code == 0
    revisions.answers[f"{PERDURE}/workflowrevisions"] = items()
    gone = perdure("workflow", "history", "order")
    assert gone.exit_code == 2
    assert "there is no Workflow `order`" in gone.stderr


@pytest.mark.usefixtures("revisions")
def test_revisions_are_compared_with_each_other_and_with_the_workflow() -> None:
    assert "-    duration: 1s\n+    duration: 3s" in perdure("workflow", "diff", "order", "1", "3").stdout
    assert "-blocks: []" in perdure("workflow", "diff", "order").stdout, "the previous one as it was written"
    same = perdure("workflow", "diff", "order", THIRD["metadata"]["name"])
    assert (same.exit_code, same.stdout) == (0, "")
    assert "are the same" in same.stderr
    unknown = perdure("workflow", "diff", "order", "9")
    assert unknown.exit_code == 2
    assert "has no revision `9`; it has: 3, 2, 1" in unknown.stderr


def test_a_rollback_gives_the_workflow_the_spec_of_a_revision_as_it_was_written(revisions: ApiServer) -> None:
    dry = perdure("workflow", "rollback", "order", "--to", "1", "--dry-run")
    assert yaml.safe_load(dry.stdout) == waits(1)
    assert revisions.answers[WORKFLOW]["spec"] == waits(3)
    done = perdure("workflow", "rollback", "order", "--to", "1")
    assert done.exit_code == 0, done.output
    assert "has the definition of revision 1" in done.stdout
    assert revisions.answers[WORKFLOW]["spec"] == waits(1)
    assert perdure("workflow", "rollback", "order").exit_code == 0
    assert revisions.answers[WORKFLOW]["spec"] == {"steps": [], "blocks": []}
    again = perdure("workflow", "rollback", "order", "--to", "2")
    assert again.exit_code == 2
    assert "already has the definition of revision 2" in again.stderr


def test_a_rollback_creates_a_deleted_workflow_again(revisions: ApiServer) -> None:
    del revisions.answers[WORKFLOW]
    assert perdure("workflow", "rollback", "order", "--to", "2").exit_code == 0
    (made,) = revisions.created
    assert (made["kind"], made["metadata"]["name"], made["spec"]) == ("Workflow", "order", {"steps": [], "blocks": []})


def test_two_revisions_of_one_number_must_be_named(revisions: ApiServer) -> None:
    revisions.answers[f"{PERDURE}/workflowrevisions"] = items(FIRST, revision(5, 1))
    refused = perdure("workflow", "rollback", "order", "--to", "1")
    assert refused.exit_code == 2
    assert "pass the name" in refused.stderr
    assert perdure("workflow", "rollback", "order", "--to", FIRST["metadata"]["name"]).exit_code == 0


@pytest.mark.usefixtures("revisions")
def test_a_run_of_a_revision_is_started() -> None:
    manifest = perdure("start", "order", "--revision", "1", "--dry-run=client")
    assert manifest.exit_code == 0, manifest.output
    chosen = {"name": "order", "revision": FIRST["metadata"]["name"]}
    assert yaml.safe_load(manifest.stdout)["spec"]["workflow"] == chosen
    refused = perdure("start", "--type", "Order", "--task-queue", "q", "--revision", "1")
    assert refused.exit_code == 2
    assert "requires WORKFLOW" in refused.stderr


def test_the_runs_of_a_revision_are_listed(revisions: ApiServer) -> None:
    listed = perdure("list", "--workflow", "order", "--revision", "1", "--output", "name")
    assert listed.exit_code == 0, listed.output
    assert listed.stdout.split() == ["workflowrun.perdure.dev/a"]
    selector = f"status.revision.name={FIRST['metadata']['name']}"
    assert any(query.get("fieldSelector") == [selector] for path, query in revisions.asked if path == RUNS)
    refused = perdure("list", "--revision", "1")
    assert refused.exit_code == 2
    assert "requires --workflow" in refused.stderr


def test_a_run_is_described_with_the_definition_of_its_revision(server: ApiServer) -> None:
    content = Content(workflow="order-flow", definition=yaml.safe_load(ORDER))
    status = dict(Flow().status)
    assert status.pop("definition") == content.definition
    status["revision"] = content.reference().stored()
    meta = {"name": "order-42", "namespace": "shop", "uid": "order-42"}
    server.answers[f"{RUNS}/order-42"] = {
        "kind": "WorkflowRun",
        "metadata": meta,
        "spec": {"workflow": {"name": "order-flow"}},
        "status": status,
    }
    without = perdure("describe", "order-42")
    assert content.reference().name in without.stdout
    server.answers[f"{PERDURE}/workflowrevisions/{content.reference().name}"] = content.build("shop", 1)
    complete = perdure("describe", "order-42")
    assert complete.exit_code == 0, complete.output
    assert len(complete.stdout.splitlines()) > len(without.stdout.splitlines()), "all steps of the definition"
