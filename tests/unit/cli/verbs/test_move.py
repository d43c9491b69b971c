"""What `perdure move` refuses, run by run. tests/rpc/cli/test_move.py moves runs between two operators."""

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.client.moves import KINDS
from support.apiserver import items, serving
from support.cli import RUNS, perdure

Json = dict[str, Any]
HEAD: Json = {"apiVersion": "perdure.dev/v1alpha1"}
PAUSED: Json = {"phase": "Paused", "state": {}, "history": {"events": [], "segments": 0}}
CODE: Json = {"state": {"code": {"workflowType": "Order"}}, "history": {"events": [], "segments": 2}}


def run(name: str, status: Json, **meta: Any) -> Json:
    head = {"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkflowRun"}
    return {**head, "metadata": {"name": name, "uid": name, **meta}, "spec": {}, "status": {**PAUSED, **status}}


REFUSED: dict[str, tuple[Json, str]] = {
    "it runs": (run("a", {"phase": "Running"}), "is not paused; pause it with `perdure pause`"),
    "it has not started": (run("a", {"phase": "Pending"}), "is not paused"),
    "an attempt runs": (
        run("a", {"pendingActivities": [{"step": "pay", "state": "Started"}]}),
        "has a running attempt of step `pay`; wait until it has ended",
    ),
    "a child": (run("a", {}, annotations={"perdure.dev/parent": "{}"}), "is a child, which is tied to the run ID"),
    "a parent": (run("a", {"pendingChildren": [{"workflowId": "c-1"}]}), "waits for its child `c-1`"),
    "it waits for a Nexus operation": (run("a", {"state": {"operations": {"5": {}}}}), "waits for a Nexus operation"),
    "a Nexus operation waits for it": (
        run("a", {"state": {"callbacks": {"1": {"url": "http://perdure"}}}}),
        "completes a Nexus operation of another run",
    ),
    "code with a long history": (run("a", CODE), "is code with a history of several objects"),
}


@pytest.mark.parametrize(("refused", "why"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_safe_is_refused(refused: Json, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = run("b", {"pendingActivities": [{"step": "pay", "state": "BackingOff"}]})
    closed = run("c", {"phase": "Completed", "completionTime": "2026-01-01T00:00:00Z"})
    with serving(tmp_path, monkeypatch) as api:
        api.answers |= {f"{RUNS.rpartition('/')[0]}/{plural}": items() for plural in KINDS.values()}
        api.answers[RUNS] = items(refused, waiting, closed)
        done = perdure("move", "export")
        assert done.exit_code == 1
        assert done.stdout == ""
        assert f"WorkflowRun `a` {why}" in done.stderr
        done = perdure("move", "export", "--skip")
        assert done.exit_code == 0, done.output
        assert f"left out: WorkflowRun `a` {why}" in done.stderr
        assert [each["metadata"]["name"] for each in json.loads(done.stdout)["items"]] == ["b"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "has no objects of Perdure"),
        ("[]", "is not a list of objects"),
        ("a", "cannot be read"),
    ],
)
def test_another_file_is_refused(content: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file.json").write_text(content)
    with serving(tmp_path, monkeypatch) as api:
        done = perdure("move", "import", "--file", str(tmp_path / "file.json"))
        assert done.exit_code == 2
        assert said in done.stderr
        assert api.created == []


@pytest.mark.parametrize(
    ("change", "exit_code"),
    [({"number": 1}, 0), ({"stateVersion": 2}, 0), ({"definition": {"steps": []}}, 1), ({"workflow": "other"}, 1)],
)
def test_a_revision_of_the_target_is_the_same_whatever_its_number(
    change: Json, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"workflow": "flow", "number": 3, "hash": "h", "definition": {"steps": [{"name": "wait"}]}}
    revision = {**HEAD, "kind": "WorkflowRevision", "metadata": {"name": "flow-1"}, "spec": spec}
    (tmp_path / "file.json").write_text(json.dumps(items(revision)))
    with serving(tmp_path, monkeypatch) as api:
        url = f"{RUNS.rpartition('/')[0]}/workflowrevisions/flow-1"
        api.answers[url] = {**revision, "spec": {**spec, **change}}
        done = perdure("move", "import", "--file", str(tmp_path / "file.json"))
        assert done.exit_code == exit_code, done.output
        assert ("WorkflowRevision `flow-1` exists" in done.stderr) is bool(exit_code)
        assert api.created == []
