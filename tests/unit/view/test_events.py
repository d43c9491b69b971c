"""The output of `history`."""

from typing import Any, get_args

import pytest

from perdure.engine import events as ev
from perdure.view.runs import events as view
from perdure.view.runs.events import DESCRIBED, readable, short
from support.view.flow import Flow, charged_after_two_refusals, golden, plain


def test_each_event_is_a_line_with_its_main_attributes() -> None:
    flow = charged_after_two_refusals().at(56)
    assert plain(view.table(flow.status["history"]["events"], flow.page())) == golden("""
        ID  TIME  EVENT                       ATTRIBUTES
         1  +0s   WorkflowExecutionStarted    order-flow  input {"items":["lamp"],"amou…
         2  +0s   ActivityTaskScheduled       reserve (reserve-stock)  input ["lamp"]
         3  +5s   ActivityTaskStarted         attempt 2  after pod order-42-2-1 was del…
         4  +10s  ActivityTaskCompleted       reserve  result R-1
         5  +10s  ActivityTaskScheduled       charge (charge-card)  input {"amount":349}
         6  +24s  ActivityTaskStarted         attempt 3  after CardDeclined: no funds
         7  +26s  ActivityTaskCompleted       charge
         8  +26s  TimerStarted                change-of-mind  30s
         9  +56s  TimerFired                  change-of-mind
        10  +56s  WorkflowExecutionCompleted  result {"reservation":"R-1"}
    """)


def test_details_show_every_attribute() -> None:
    flow = Flow()
    assert plain(view.table(flow.status["history"]["events"][1:], flow.page(), detailed=True)) == golden("""
        ID  TIME  EVENT
         2  +0s   ActivityTaskScheduled
            activityId: reserve
            activityType: reserve-stock
            input: ["lamp"]
            startToCloseTimeout: 5m
            heartbeatTimeout: 10s
            retryPolicy: {}
    """)


def test_an_event_of_a_newer_version_is_shown() -> None:
    event = {
        "eventId": 1,
        "eventTime": "2026-01-01T12:00:00Z",
        "eventType": "WorkflowExecutionTransmuted",
        "of": "v2",
        "n": 3,
    }
    assert plain(view.table([event], Flow().page())).endswith("WorkflowExecutionTransmuted  of v2  n 3")


@pytest.mark.parametrize("ids", [[2, 3], [1, 3], [1, 2, 2]], ids=["the beginning", "one between", "a duplicate event"])
def test_a_history_with_a_gap_is_an_error(ids: list[int]) -> None:
    with pytest.raises(view.GapError, match="is missing"):
        view.check([{"eventId": number} for number in ids])


def test_every_event_type_has_its_own_format() -> None:
    assert {kind.__name__ for kind in get_args(ev.AnyEvent)} == DESCRIBED


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {"eventType": "TimerStarted", "timerId": "race.slow/nap", "startToFireTimeout": "PT3690S"},
            "race.slow/nap  1h1m",
        ),
        ({"eventType": "TimerCanceled", "timerId": "nap", "startedEventId": 3}, "nap"),
        (
            {"eventType": "ActivityTaskCancelRequested", "activityId": "a", "scheduledEventId": 2},
            "a  cancellation requested",
        ),
        (
            {
                "eventType": "StartChildWorkflowExecutionInitiated",
                "childId": "bill",
                "start": {"workflowType": "invoice", "workflowId": "invoice-7", "input": 3},
            },
            "bill (invoice)  invoice-7  input 3",
        ),
        (
            {
                "eventType": "ChildWorkflowExecutionFailed",
                "childId": "bill",
                "workflowId": "invoice-7",
                "failure": {"kind": "Application", "type": "NoMoney", "message": "broke"},
                "retryState": "MaximumAttemptsReached",
            },
            "bill  NoMoney: broke  MaximumAttemptsReached",
        ),
        ({"eventType": "ChildWorkflowExecutionTerminated", "childId": "bill", "reason": "enough"}, "bill  enough"),
        (
            {
                "eventType": "SignalExternalWorkflowExecutionInitiated",
                "signalId": "notify",
                "signalName": "paid",
                "workflowId": "order-1",
                "input": {"by": "ada"},
            },
            'notify  signal paid to order-1  input {"by":"ada"}',
        ),
        (
            {
                "eventType": "NexusOperationScheduled",
                "endpoint": "billing",
                "handlerNamespace": "bills",
                "service": "Billing",
                "operation": "charge",
                "input": 3,
                "requestId": "secret",
            },
            "Billing.charge  at billing in bills  input 3",
        ),
        (
            {
                "eventType": "NexusOperationFailed",
                "scheduledEventId": 5,
                "requestId": "secret",
                "failure": {"kind": "Application", "type": "NoMoney", "message": "broke"},
            },
            "operation 5  NoMoney: broke",
        ),
        ({"eventType": "ExternalWorkflowExecutionSignaled", "signalId": "notify", "workflowId": "o"}, "notify  o"),
        (
            {"eventType": "WorkflowExecutionSignaled", "signalName": "go", "input": 1, "identity": "ada"},
            "go  input 1  from ada",
        ),
        ({"eventType": "WorkflowExecutionPaused", "identity": "ada", "reason": "stock"}, "by ada  stock"),
        ({"eventType": "WorkflowExecutionCancelRequested", "cause": "changed my mind"}, "changed my mind"),
        (
            {"eventType": "WorkflowExecutionContinuedAsNew", "newWorkflowRun": "poll-2", "input": {"n": 1}},
            'continues as poll-2  input {"n":1}',
        ),
        (
            {
                "eventType": "WorkflowExecutionTimedOut",
                "retryState": "InProgress",
                "newWorkflowRun": "poll-2",
                "newRunBackoff": "PT90S",
            },
            "InProgress  continues as poll-2  in 1m30s",
        ),
        (
            {
                "eventType": "MarkerRecorded",
                "markerName": "DeadLetter",
                "details": {"step": "pay", "failure": {"type": "NoMoney", "message": "broke"}},
            },
            "DeadLetter  pay  NoMoney: broke",
        ),
        ({"eventType": "WorkflowExecutionTerminated", "reason": "enough", "identity": "ada"}, "by ada  enough"),
        (
            {"eventType": "WorkflowTaskFailed", "cause": "ResetWorkflow", "reason": "mended", "identity": "ada"},
            "ResetWorkflow  by ada  mended",
        ),
    ],
    ids=lambda event: event["eventType"] if isinstance(event, dict) else "",
)
def test_an_event_is_formatted_with_its_main_attributes(event: dict[str, Any], line: str) -> None:
    assert short({"eventId": 1, "eventTime": "2026-01-01T12:00:00Z", **event}) == line


def test_nested_durations_have_the_format_of_manifests() -> None:
    assert readable("retryPolicy", {"initialInterval": "PT4S", "maximumAttempts": 3}) == (
        '{"initialInterval":"4s","maximumAttempts":3}'
    )
    assert readable("input", {"myTimeout": "PT4S"}) == '{"myTimeout":"PT4S"}'
