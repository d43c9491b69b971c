"""`perdure deadletters`: output, requests to the operator, and usage errors."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import Result

from perdure.view.deadletters import describe, table
from perdure.view.page import UNICODE, Page
from support.apiserver import ApiServer, items
from support.cli import perdure

PAGE = Page(
    now=datetime(2026, 1, 31, 12, 0, tzinfo=UTC), width=100, glyphs=UNICODE, iso=False, program="perdure", context=None
)


def letter(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "order-42-8-abc", "namespace": "shop"},
        "spec": {
            "workflowRun": {"name": "order-42", "workflowId": "order-42", "runId": "u"},
            "step": "pay",
            "activity": "charge",
            "input": {"amount": 7},
            "attempts": 3,
            "retryState": "MaximumAttemptsReached",
            "failedTime": "2026-01-31T11:00:00Z",
            "failure": {
                "kind": "Activity",
                "message": "failed after 3 attempts",
                "cause": {"kind": "Application", "type": "CardDeclined", "message": "no funds", "log": "a\nb"},
            },
        },
        "status": status,
    }


def redriven(status: str) -> dict[str, Any]:
    return {"conditions": [{"type": "Redriven", "status": status, "reason": "x", "message": "as WorkflowRun `r`"}]}


def test_each_dead_letter_is_listed_on_a_line() -> None:
    heading, line = (str(text) for text in table([letter(**redriven("False"))], PAGE))
    assert heading.split() == ["NAME", "RUN", "STEP", "ACTIVITY", "ATTEMPTS", "REDRIVEN", "FAILURE", "AGE"]
    assert line.split() == ["order-42-8-abc", "order-42", "pay", "charge", "3", "Failed", "CardDeclined", "1h"]


def test_one_dead_letter_is_described_with_the_next_commands() -> None:
    shown = "\n".join(map(str, describe(letter(), PAGE)))
    for part in (
        '{"amount": 7}',
        "3 (MaximumAttemptsReached)",
        "no funds",
        "  b",
        "deadletters redrive -n shop order-42-8-abc",
    ):
        assert part in shown
    done = "\n".join(map(str, describe(letter(**redriven("True"), output=5), PAGE)))
    assert "Succeeded: as WorkflowRun `r`" in done
    assert "Output:       5" in done
    assert "deadletters redrive" not in done


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["redrive"], "set either NAME or --all"),
        (["redrive", "x", "--all"], "set either NAME or --all"),
        (["delete"], "set NAME, --redriven or --older-than"),
        (["delete", "--older-than", "soon"], "--older-than: 'soon'"),
    ],
)
def test_incomplete_usage_is_rejected(arguments: list[str], reported: str) -> None:
    done = perdure("deadletters", *arguments)
    assert done.exit_code == 2
    assert reported in done.stderr


LETTERS = "/apis/perdure.dev/v1alpha1/namespaces/shop/deadletters"


def answered(**phases: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The status of Operations by their target; others have none yet."""

    def status(operation: dict[str, Any]) -> dict[str, Any]:
        phase = phases.get(operation["spec"]["target"]["name"])
        reported = {"type": phase, "status": "True", "reason": "RedriveSucceeded", "message": "told"}
        return {"phase": phase, "completionTime": "2026-01-31T12:00:00Z", "conditions": [reported]} if phase else {}

    return status


def redrive(*arguments: str) -> Result:
    return perdure("deadletters", "redrive", *arguments)


@pytest.mark.parametrize(
    ("phases", "code"),
    [
        ({"a": "Complete", "b": "Complete"}, 0),
        ({"a": "Complete", "b": "Failed"}, 1),
        ({"a": "Complete"}, 124),
        ({"b": "Failed"}, 1),
    ],
    ids=["done", "one refused", "one late", "one refused, one late"],
)
def test_redrive_waits_for_all_outcomes(server: ApiServer, phases: dict[str, str], code: int) -> None:
    server.status = answered(**phases)
    done = redrive("a", "b", "a", "--timeout", "1s")
    assert done.exit_code == code
    assert [each["spec"] for each in server.created] == [
        {"target": {"kind": "DeadLetter", "name": name}, "redrive": {}} for name in ("a", "b")
    ]
    done_line, late_line = "deadletter.perdure.dev/{} re-driven: told", "operation.perdure.dev/redrive-{} created: "
    assert done.stdout.splitlines() == [
        done_line.format(name) if name in phases else f"{late_line.format(number)}deadletter.perdure.dev/{name}"
        for number, name in ((1, "a"), (2, "b"))
        if phases.get(name) != "Failed"
    ]
    failed = [name for name, phase in phases.items() if phase == "Failed"]
    for name in failed:
        assert f"Error: deadletter.perdure.dev/{name} not re-driven: RedriveSucceeded: told\n" in done.stderr
    assert ("timed out after 1s waiting for Operation `redrive-" in done.stderr) == (len(phases) < 2)


def test_redrive_with_no_wait_returns_after_the_request(server: ApiServer) -> None:
    done = redrive("a", "--no-wait", "-o", "name")
    assert (done.exit_code, done.stdout) == (0, "operation.perdure.dev/redrive-1\n")
    assert not server.asked


def test_redrive_all_selects_dead_letters_without_a_successful_or_running_redrive(server: ApiServer) -> None:
    letters = [letter(**(redriven(status) if status else {})) for status in ("", "True", "Unknown", "False")]
    for name, each in zip("abcd", letters, strict=True):
        each["metadata"]["name"] = name
    server.answers[LETTERS] = items(*letters)
    server.status = answered(a="Complete", d="Complete")
    done = redrive("--all", "--output", "json")
    assert done.exit_code == 0, done.stderr
    assert [each["spec"]["target"]["name"] for each in json.loads(done.stdout)["items"]] == ["a", "d"]
    done = redrive("--all", "--activity", "ship")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "There is nothing to re-drive.\n")


def test_requests_made_before_a_failed_one_are_printed(server: ApiServer) -> None:
    server.refuses = lambda operation: operation["spec"]["target"]["name"] == "b"
    done = redrive("a", "b", "c")
    assert (done.exit_code, done.stdout) == (2, "operation.perdure.dev/redrive-1 created: deadletter.perdure.dev/a\n")
    assert done.stderr == "Error: the API server refused the request: it must not be\n"
