"""The checks of histories find what SDKs reject."""

from typing import Any

import pytest

from simulated.checks.event_order import problems


def history(*events: tuple[str, dict[str, int | str]]) -> list[dict[str, Any]]:
    """A history that starts with event 5."""
    return [{"eventId": number, "eventType": type_, **fields} for number, (type_, fields) in enumerate(events, start=5)]


SCHEDULED = ("ActivityTaskScheduled", {})
STARTED = ("ActivityTaskStarted", {"scheduledEventId": 5})
COMPLETED = ("ActivityTaskCompleted", {"scheduledEventId": 5, "startedEventId": 6})
TIMER = ("TimerStarted", {})
FIRED = ("TimerFired", {"startedEventId": 5})
CHILD = ("StartChildWorkflowExecutionInitiated", {})
CHILD_STARTED = ("ChildWorkflowExecutionStarted", {"initiatedEventId": 5})
CHILD_FAILED = ("ChildWorkflowExecutionFailed", {"initiatedEventId": 5, "startedEventId": 6})
TASK = ("WorkflowTaskScheduled", {})
TASK_STARTED = ("WorkflowTaskStarted", {"scheduledEventId": 5})
TASK_COMPLETED = ("WorkflowTaskCompleted", {"scheduledEventId": 5, "startedEventId": 6})
SIGNAL = ("WorkflowExecutionSignaled", {"requestId": "one"})


@pytest.mark.parametrize(
    "events",
    [
        (SCHEDULED, STARTED, COMPLETED),
        (SCHEDULED, ("ActivityTaskTimedOut", {"scheduledEventId": 5})),
        (TIMER, FIRED),
        (CHILD, CHILD_STARTED, CHILD_FAILED),
        (CHILD, ("StartChildWorkflowExecutionFailed", {"initiatedEventId": 5})),
        (TASK, TASK_STARTED, TASK_COMPLETED, TASK),
        (TASK, ("WorkflowTaskTimedOut", {"scheduledEventId": 5}), TASK),
        (TASK, TASK_STARTED, ("WorkflowTaskFailed", {"cause": "ResetWorkflow", "scheduledEventId": 1})),
        (SIGNAL, ("WorkflowExecutionSignaled", {"requestId": "two"}), ("WorkflowExecutionSignaled", {})),
    ],
)
def test_a_history_that_sdks_accept_has_no_problems(events: Any) -> None:
    assert list(problems(history(*events))) == []


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ((SCHEDULED, STARTED, STARTED), "of activity 5, which event 6 has started"),
        ((SCHEDULED, STARTED, COMPLETED, COMPLETED), "after the end of activity 5"),
        ((SCHEDULED, STARTED, COMPLETED, STARTED), "after the end of activity 5"),
        ((SCHEDULED, COMPLETED), "names another start than 0"),
        ((TIMER, STARTED), "of activity 5, which no event opens"),
        ((TIMER, FIRED, ("TimerCanceled", {"startedEventId": 5})), "after the end of timer 5"),
        ((CHILD, CHILD_STARTED, CHILD_STARTED), "of child 5, which event 6 has started"),
        ((CHILD, CHILD_STARTED, CHILD_FAILED, CHILD_FAILED), "after the end of child 5"),
        ((TASK, TASK), "while task 5 is open"),
        ((TASK, TASK_STARTED, TASK_STARTED), "the open task is 5, started by 6"),
        ((TASK, TASK_COMPLETED), "(5, 0) is open"),
        ((TASK, TASK_STARTED, TASK_COMPLETED, TASK_COMPLETED), "(0, 0) is open"),
        ((SIGNAL, SIGNAL), "has signal one twice"),
    ],
)
def test_each_problem_is_described(events: Any, problem: str) -> None:
    assert problem in " ".join(problems(history(*events)))
