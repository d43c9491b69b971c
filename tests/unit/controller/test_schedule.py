"""What becomes of requests to a schedule that nobody waits for any more."""

from datetime import UTC, datetime
from typing import Any, cast

from perdure.controller.schedule import Schedule
from perdure.schedule import inputs as inp

OBJECT: dict[str, Any] = {
    "metadata": {"namespace": "shop", "name": "nightly", "uid": "u", "resourceVersion": "1"},
    "spec": {"workflowRunTemplate": {"spec": {"workflow": {"name": "none"}}}},
}
WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_request_that_is_withdrawn_is_answered_and_leaves_the_others() -> None:
    unused = cast("Any", None)
    schedule = Schedule(unused, unused, unused, unused, OBJECT, definitions=unused)
    told: dict[str, inp.Answer] = {}
    schedule.ask(inp.Triggered(request_id="a"), lambda answer: told.update(a=answer))
    schedule.ask(inp.BackfillRequested(request_id="b", start=WHEN, end=WHEN), lambda answer: told.update(b=answer))
    schedule.withdraw("a")
    schedule.withdraw("unknown")
    assert [name for name, answer in told.items() if not answer.ok] == ["a"]
