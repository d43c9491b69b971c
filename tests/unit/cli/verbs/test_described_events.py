"""The Events that `perdure describe` shows."""

from typing import Any

from perdure.view.page import ASCII
from perdure.view.runs.describe import event_lines
from support.apiserver import ApiServer, items
from support.cli import perdure
from support.view.flow import UID, at, charged_after_two_refusals, plain

RUN = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns/order-42"
EVENTS = "/api/v1/namespaces/shop/events"


def event(second: float, reason: str, message: str, kind: str = "Normal", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "reason": reason, "message": message, "lastTimestamp": at(second).isoformat(), **fields}


def shown(*events: dict[str, Any]) -> list[str]:
    return plain(list(event_lines(events, charged_after_two_refusals().page(60, glyphs=ASCII)))).splitlines()


def test_events_are_shown_oldest_first_with_messages_on_one_line() -> None:
    series = {"series": {"count": 3, "lastObservedTime": at(50).isoformat()}, "lastTimestamp": None}
    found = shown(event(10, "PodRefused", "no\nroom", "Warning", **series), event(30, "Started", "it runs"))
    assert found == ["", "Events", "  30s  Normal   Started     it runs", "  10s  Warning  PodRefused  no room (x3)"]


def test_the_newest_of_many_are_shown_and_long_messages_are_cut() -> None:
    found = shown(*(event(second, "Started", f"{second} {'x' * 100}") for second in range(8)))
    assert found[1] == "Events (the last 5 of 8)"
    assert [line.split()[3] for line in found[2:]] == ["3", "4", "5", "6", "7"]
    assert max(map(len, found)) <= 80


def test_without_events_there_is_no_title() -> None:
    assert shown() == []


def test_describe_shows_events_of_the_run_if_permitted(server: ApiServer) -> None:
    def describe() -> str:
        done = perdure("describe", "order-42")
        assert done.exit_code == 0, done.stderr
        return done.stdout

    server.answers |= {RUN: charged_after_two_refusals().object, EVENTS: items(event(10, "Started", "it runs"))}
    assert describe().splitlines()[-1].endswith("Normal  Started  it runs")
    assert [f"involvedObject.uid={UID}"] in [
        query.get("fieldSelector") for path, query in server.asked if path == EVENTS
    ]
    server.answers[EVENTS] = (403, {"kind": "Status", "reason": "Forbidden", "message": "no"})
    assert "Events" not in describe()
