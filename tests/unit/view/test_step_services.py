"""The services of steps in `perdure describe`."""

import pytest

from perdure.engine.inputs import AttemptWaiting
from perdure.language.step_paths import title
from perdure.view.runs.events import short
from support.view.flow import Flow, golden
from unit.view.shown import steps

SERVED = """
activities: [{name: book, startToCloseTimeout: 1m, container: {image: i}}]
services: [{name: mail, image: mail}]
steps: [{name: test, call: {block: test}}]
blocks:
- name: test
  services: [{name: db, image: postgres}]
  steps: [{name: first, activity: {name: book}}]
"""


def test_a_list_of_steps_shows_its_services_and_what_they_wait_for() -> None:
    flow = Flow(SERVED).started(2, ":service.mail").completed(3, {"host": "mail"}, ":ready.mail")
    flow = flow.started(4, "test:service.db")
    number = next(a.scheduled_event_id for a in flow.state.activities.values() if a.awaits_service)
    waiting = AttemptWaiting(
        scheduled_event_id=number, attempt=1, reason="pod p runs, and is not ready", commit_now=True
    )
    assert steps(flow.at(9, waiting)) == golden("""
        STEP              STATUS     KIND       TRIES  START  TIME
        ├─ service mail   ● Running  service           +0s    9s
        │    ready
        └─ test           ● Running  call test         +3s    6s
           └─ service db  ◔ Waiting  service           +3s    6s
                pod p runs, and is not ready
    """)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (":service.mail", "service mail"),
        (":ready.mail", "readiness of service mail"),
        ("test:service.db", "service db of test"),
        ("all[2]/test:ready.my-db", "readiness of service my-db of all[2]/test"),
        ("test/one", "test/one"),
        ("test:catch/one", "test:catch/one"),
    ],
)
def test_a_service_is_named_in_words(path: str, named: str) -> None:
    event = {"eventId": 1, "eventType": "ActivityTaskScheduled", "activityId": path, "activityType": "x"}
    shown = named if "service" in path or "ready" in path else f"{named} (x)"
    assert (title(path), short(event)) == (named, shown)
