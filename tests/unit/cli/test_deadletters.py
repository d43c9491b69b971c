"""`perdure deadletters`: how they are shown, and what is refused before any cluster is asked."""

from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from perdure.cli.app import build
from perdure.cli.view.deadletters import describe, table
from perdure.cli.view.page import UNICODE, Page

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


def test_a_line_for_each() -> None:
    heading, line = (str(text) for text in table([letter(**redriven("False"))], PAGE))
    assert heading.split() == ["NAME", "RUN", "STEP", "ACTIVITY", "ATTEMPTS", "REDRIVEN", "FAILURE", "AGE"]
    assert line.split() == ["order-42-8-abc", "order-42", "pay", "charge", "3", "Failed", "CardDeclined", "1h"]


def test_one_as_a_whole_with_what_to_do_next() -> None:
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
    ("arguments", "told"),
    [
        (["redrive"], "name DeadLetters, or give --all"),
        (["redrive", "x", "--all"], "name DeadLetters, or give --all"),
        (["delete"], "name DeadLetters, or give --redriven or --older-than"),
        (["delete", "--older-than", "soon"], "--older-than: 'soon'"),
    ],
)
def test_what_is_not_clear_is_asked_for(arguments: list[str], told: str) -> None:
    done = CliRunner().invoke(build("perdure", ["deadletters"]), ["deadletters", *arguments])
    assert done.exit_code == 2
    assert told in done.stderr
