"""What `history` shows."""

import pytest

from perdure.cli.view import events as view
from unit.cli.flow import Flow, charged_after_two_refusals, golden, plain


def test_each_event_is_a_line_with_what_tells_most() -> None:
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


def test_details_are_every_attribute() -> None:
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


def test_an_event_of_a_newer_version_is_shown_all_the_same() -> None:
    event = {"eventId": 1, "eventTime": "2026-01-01T12:00:00Z", "eventType": "NexusOperationStarted", "of": "v2", "n": 3}
    assert plain(view.table([event], Flow().page())).endswith("NexusOperationStarted  of v2  n 3")


@pytest.mark.parametrize("ids", [[2, 3], [1, 3], [1, 2, 2]], ids=["the beginning", "one between", "one is there twice"])
def test_a_history_with_a_gap_is_not_shown_as_whole(ids: list[int]) -> None:
    with pytest.raises(view.GapError, match="is missing"):
        view.check([{"eventId": number} for number in ids])
