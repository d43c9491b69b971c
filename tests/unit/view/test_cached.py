"""`describe` and `history` show that an activity has used a cached result."""

import json

from perdure.engine.inputs import AttemptCompleted
from perdure.view.runs.describe import as_data
from perdure.view.runs.events import short
from perdure.view.runs.tree import tree
from support.view.flow import Flow, plain

NAME = "reserve-stock-habcdefghij"


def flow(*, failed_before: bool = False) -> Flow:
    found = Flow().started(1).lost(2) if failed_before else Flow()
    attempt = 2 if failed_before else 1
    return found.at(5, AttemptCompleted(scheduled_event_id=2, attempt=attempt, result="R-1", cached=NAME))


def test_the_tree_names_the_result_and_no_pod() -> None:
    found = flow()
    shown = plain(tree(found.run(), found.page(width=100)))
    assert f"cached result {NAME}" in shown
    assert "order-42-2-1" not in shown


def test_earlier_attempts_keep_their_pods() -> None:
    found = flow(failed_before=True)
    (step, *_) = as_data(found.run(), found.page())["steps"]
    assert (step["cached"], step["pods"]) == (NAME, ["order-42-2-1"])


def test_other_steps_have_no_cached_result() -> None:
    found = Flow().started(1).completed(2, "R-1")
    assert "cached" not in as_data(found.run(), found.page())["steps"][0]


def test_the_history_names_the_result() -> None:
    events = [json.loads(text) if isinstance(text, str) else text for text in flow().status["history"]["events"]]
    (completed,) = [event for event in events if event["eventType"] == "ActivityTaskCompleted"]
    assert short(completed).endswith(f"cached result {NAME}")
