"""Replay of histories by definitions that still match them, or no longer do."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.cli.files.replays import Difference, read_history, read_manifest, replay, show
from perdure.client.errors import ClientError
from perdure.engine import events as ev
from perdure.engine.events import AnyEvent
from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.language.compiler import compile_program
from perdure.language.keys import limit_keys
from perdure.language.program import InvalidWorkflowError
from support.cli import perdure
from support.view.flow import ORDER, Flow, charged_after_two_refusals, declined, golden, plain


def recorded(flow: Flow) -> tuple[AnyEvent, ...]:
    return read_history(json.dumps({"events": flow.status["history"]["events"]}), "h.json")


def manifest(definition: str) -> str:
    return yaml.safe_dump({"kind": "Workflow", "metadata": {"name": "order-flow"}, "spec": yaml.safe_load(definition)})


def check(flow: Flow, definition: str = ORDER) -> Difference | str | None:
    return replay(recorded(flow), read_manifest(manifest(definition), "w.yaml", ""), name=None, namespace=None)


@pytest.mark.parametrize(
    "flow",
    [
        charged_after_two_refusals().at(56),
        charged_after_two_refusals(),
        Flow().started(1).completed(2).failed(3, declined(non_retryable=True)),
        Flow(),
    ],
    ids=["completed", "open", "failed", "just started"],
)
def test_the_original_definition_replays_its_history(flow: Flow) -> None:
    assert check(flow) is None


def test_the_first_difference_is_shown_side_by_side() -> None:
    flow = charged_after_two_refusals()
    found = check(flow, ORDER.replace("${input.amount}", "${input.amount + 1}"))
    assert isinstance(found, Difference)
    assert plain(list(show(found, flow.page()))) == golden("""
        does not replay: event 5 differs
          history:    ActivityTaskScheduled
                      activityId: charge
                      activityType: charge-card
                      input: {"amount":349}
          definition: ScheduleActivityTask
                      activityId: charge
                      activityType: charge-card
                      input: {"amount":350}
    """)


def test_a_definition_that_continues_after_the_history_differs_at_its_end() -> None:
    definition = "steps: [{name: done, return: {output: 1}}]"
    flow = Flow(definition)
    flow.status["history"]["events"].pop()
    found = check(flow, definition)
    assert isinstance(found, Difference)
    assert (found.number, found.event) == (2, None)
    assert "history:    has ended" in plain(list(show(found, flow.page())))


def test_a_removed_step_is_a_difference_at_its_event() -> None:
    flow = charged_after_two_refusals()
    found = check(flow, ORDER.replace("- {name: change-of-mind, sleep: {duration: 30s}}\n", ""))
    assert isinstance(found, Difference)
    assert found.number == 8
    assert "WorkflowExecution" in plain(list(show(found, flow.page())))


T0 = datetime(2026, 1, 1, tzinfo=UTC)
LIMITED = "{limits: [{name: one, key: '${input.customer}'}], steps: [{name: nap, sleep: {duration: 10s}}]}"


@pytest.mark.parametrize(
    ("input_", "type_", "replays"),
    [
        ({"customer": "a"}, "LimitReached", True),
        ({"customer": "a"}, "WorkflowExecutionAlreadyStarted", True),
        ({"customer": "a"}, "Declined", False),
        ({}, "ExpressionError", True),
    ],
)
def test_a_run_that_was_refused_replays(input_: object, type_: str, *, replays: bool) -> None:
    text = "refused"
    if type_ == "ExpressionError":
        with pytest.raises(InvalidWorkflowError) as caught:
            list(limit_keys(compile_program(WorkflowSpec.parse(yaml.safe_load(LIMITED))), input_, {}))
        text = str(caught.value)
    failed = ev.WorkflowExecutionFailed(
        event_id=2,
        event_time=T0,
        failure=Failure(kind=FailureKind.APPLICATION, type=type_, message=text, non_retryable=True),
        retry_state=RetryState.RETRY_POLICY_NOT_SET,
    )
    started = ev.WorkflowExecutionStarted(
        event_id=1,
        event_time=T0,
        workflow_type="w",
        workflow_id="w",
        input=input_,
        first_execution_run_id="r",
        original_execution_run_id="r",
    )
    found = replay([started, failed], read_manifest(manifest(LIMITED), "w.yaml", ""), name=None, namespace=None)
    assert (found is None) == replays, found


@pytest.mark.parametrize(
    ("definition", "want"),
    [
        ("steps: [{name: a, activity: {name: none}}]", "activity `none` is not defined"),
        ("steps: [{name: a, nap: 3}]", "spec|unknown field|steps"),
    ],
)
def test_an_invalid_definition_is_reported_with_the_reason(definition: str, want: str) -> None:
    with_it = read_manifest(manifest(definition), "w.yaml", "")
    found = replay(recorded(Flow()), with_it, name=None, namespace=None)
    assert isinstance(found, str)
    assert found.startswith("the definition cannot be run: ")
    assert any(part in found for part in want.split("|"))


def test_a_history_with_a_gap_is_not_replayed() -> None:
    flow = charged_after_two_refusals()
    del flow.status["history"]["events"][1]
    found = check(flow)
    assert isinstance(found, str)
    assert "expected event 2, got 3" in found


def test_the_workflow_of_the_history_is_selected_among_several() -> None:
    other = manifest("steps: [{name: a, return: {}}]").replace("order-flow", "other")
    both = f"{other}---\n{manifest(ORDER)}"
    assert read_manifest(both, "w.yaml", "order-flow")["metadata"]["name"] == "order-flow"


@pytest.mark.parametrize("content", ["{", "{}", '{"events": [{"eventType": "X"}]}', '{"events": []}', "3"])
def test_a_file_that_is_not_a_history_is_rejected_with_the_command_to_write_one(content: str) -> None:
    with pytest.raises(ClientError, match="history --output json"):
        read_history(content, "h.json")


def in_the_archive(flow: Flow, folder: Path, **history: Any) -> str:
    """A file as the archive of files writes it."""
    found = {**flow.object, "kind": "WorkflowRun"}
    found["status"] = {**flow.status, "history": {**flow.status["history"], **history}}
    file = folder / "20261130T154740Z-12-48213.json.gz"
    lines = [json.dumps({"kind": "WorkflowRun", "metadata": {"name": "order-42"}}) + "\n", json.dumps(found)]
    file.write_bytes(b"".join(gzip.compress(line.encode()) for line in lines))
    return str(file)


@pytest.mark.parametrize("form", ["stored", "decoded"])
def test_a_file_of_the_archive_is_shown_and_replayed(form: str, tmp_path: Path) -> None:
    flow = charged_after_two_refusals()
    events = flow.status["history"]["events"]
    stored = {"events": [json.dumps(each) for each in events]} if form == "stored" else {}
    file, workflow = in_the_archive(flow, tmp_path, **stored), tmp_path / "workflow.yaml"
    workflow.write_text(manifest(ORDER), encoding="utf-8")
    done = perdure("replay", "--file", file, "--workflow", str(workflow))
    assert (done.exit_code, done.stdout) == (0, f"replays: {len(events)} events\n"), done.output
    done = perdure("history", "--file", file, "-o", "json")
    assert json.loads(done.stdout)["events"] == events
    written = tmp_path / "order-42.json"
    written.write_text(done.stdout, encoding="utf-8")
    shown = [perdure("history", "--file", name, "--color", "never").stdout for name in (file, str(written))]
    assert shown[0] == shown[1]
    assert len(shown[0].splitlines()) == len(events) + 1
    assert perdure("history", "order-42", "--file", file).exit_code == 2


def test_a_file_of_the_archive_without_its_history_says_so(tmp_path: Path) -> None:
    file = in_the_archive(charged_after_two_refusals(), tmp_path, events=[], historyOmittedBytes=70_000_000)
    done = perdure("history", "--file", file)
    assert done.exit_code == 2
    assert "has the run without its history, which exceeded `archive.maxHistoryMiB`" in done.stderr


@pytest.mark.parametrize("content", [b"\x1f\x8bbroken", b"\xff"])
def test_a_file_that_cannot_be_read_is_an_error(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    done = perdure("history", "--file", str(file))
    assert done.exit_code == 2
    assert f"{file} cannot be read" in done.stderr


@pytest.mark.parametrize("content", ["", "kind: Pod", "a: [", "kind: WorkflowRun\nspec: {workflow: {name: x}}"])
def test_a_manifest_without_a_definition_is_rejected(content: str) -> None:
    with pytest.raises(ClientError, match=r"w\.yaml"):
        read_manifest(content, "w.yaml", "")


LIBRARY = """
activities: [{name: charge-card, startToCloseTimeout: 5m, container: {image: shop}}]
"""
USER = """
activities: [{name: charge-card, from: {workflow: library}}]
steps: [{name: charge, activity: {name: charge-card}}]
"""


def with_library(library: str = LIBRARY) -> str:
    shared = {"kind": "Workflow", "metadata": {"name": "library"}, "spec": yaml.safe_load(library)}
    return f"{yaml.safe_dump(shared)}---\n{manifest(USER)}"


def test_a_history_replays_with_the_library_in_the_file_of_the_definition() -> None:
    flow = Flow(LIBRARY + "steps: [{name: charge, activity: {name: charge-card}}]").started(1).completed(2)
    found = read_manifest(with_library(), "w.yaml", "order-flow")
    assert replay(recorded(flow), found, name=None, namespace=None) is None
    changed = read_manifest(with_library(LIBRARY.replace("5m", "6m")), "w.yaml", "order-flow")
    assert isinstance(replay(recorded(flow), changed, name=None, namespace=None), Difference)


@pytest.mark.parametrize(
    ("content", "want"),
    [
        (manifest(USER), r"w\.yaml: spec\.activities\[0\]\.from\.workflow: has no Workflow `library`"),
        (
            with_library("activities: [{name: other}]"),
            r"spec\.activities\[0\]\.from: Workflow `library` has no activity",
        ),
    ],
)
def test_a_definition_without_its_library_is_rejected(content: str, want: str) -> None:
    with pytest.raises(ClientError, match=want):
        read_manifest(content, "w.yaml", "order-flow")
