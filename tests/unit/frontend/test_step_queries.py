"""Query results of a run of a Workflow: its steps, its call stack, and its details for the Web UI."""

import json
from typing import Any

import pytest

from perdure.engine import inputs as inp
from perdure.frontend.workflows.queries import METADATA, STACK, STEPS, QueriedRun, answer
from support.view.flow import Flow, declined

APPROVAL = """
activities:
- {name: ask, startToCloseTimeout: 1m, container: {image: shop}}
steps:
- {name: ask, forEach: {items: "${input.people}", as: person, maxConcurrency: 2}, activity: {name: ask, input: "${person}"}}
- name: race
  parallel:
    wait: Any
    branches:
    - {name: given, block: decision}
    - {name: over, block: pass}
- {name: file, when: "${false}", set: {done: true}}
blocks:
- {name: decision, steps: [{name: wait, waitForSignal: {name: decided, timeout: 1h}}]}
- {name: pass, steps: [{name: nap, sleep: {duration: 2h}}]}
"""


def asked(flow: Flow, query: str, phase: str = "Running") -> Any:
    found = answer(QueriedRun(flow.name, "shop", phase, flow.program, flow.state), query, "order-flow")
    assert found is not None
    return json.loads(found.payloads[0].data)


def details(flow: Flow, phase: str = "Running") -> list[str]:
    return str(asked(flow, METADATA, phase)["currentDetails"]).splitlines()


def approval(people: int = 1) -> Flow:
    flow = Flow(APPROVAL, input={"people": list(range(people))})
    for number in range(people):
        flow.completed(number + 1, "ok", of=f"ask[{number}]")
    return flow


def test_details_link_to_the_console_if_it_has_an_address() -> None:
    flow = approval()
    run = QueriedRun(flow.name, "shop", "Running", flow.program, flow.state, "https://flows.example/console")
    found = answer(run, METADATA, "order-flow")
    assert found is not None
    link = f"[Graph and logs](https://flows.example/console/namespaces/shop/runs/{flow.name})"
    assert json.loads(found.payloads[0].data)["currentDetails"].splitlines()[-1] == link
    assert not [line for line in details(flow) if "Graph and logs" in line]


def test_steps_have_a_status_and_open_ones_show_nested_steps() -> None:
    flow = approval()
    ask, race, file = asked(flow, STEPS)
    assert ask == {
        "path": "ask",
        "name": "ask",
        "kind": "activity",
        "target": "ask",
        "status": "Succeeded",
        "startTime": "2026-01-01T12:00:00Z",
        "endTime": "2026-01-01T12:00:01Z",
    }
    assert (race["kind"], race["status"]) == ("parallel", "Running")
    assert [(part["name"], part["target"], part["steps"][0]["status"]) for part in race["steps"]] == [
        ("given", "decision", "Waiting"),
        ("over", "pass", "Waiting"),
    ]
    assert race["steps"][0]["steps"][0]["path"] == "race.given/wait"
    assert file["status"] == "Pending"


def test_a_loop_counts_its_items_and_shows_open_ones() -> None:
    flow = Flow(APPROVAL, input={"people": [1, 2, 3, 4]}).completed(1, "ok", of="ask[0]")
    (ask, *_) = asked(flow, STEPS)
    assert (ask["items"], ask["closedItems"]) == (4, 1)
    assert [(item["path"], item["status"]) for item in ask["steps"]] == [("ask[1]", "Running"), ("ask[2]", "Running")]
    assert "    ▶ ask (activity ask) Running, 1 of 4 items done" in details(flow)


def test_the_call_stack_shows_what_the_run_waits_for() -> None:
    assert asked(approval(), STACK).splitlines() == [
        "at race.given/wait (waitForSignal decided)",
        "    signal decided until 2026-01-01T13:00:01Z",
        "at race.over/nap (sleep)",
        "    until 2026-01-01T14:00:01Z",
    ]


def test_the_call_stack_shows_attempt_failure_and_pod_of_an_activity() -> None:
    flow = Flow().started(1).failed(2, declined("no `stock`\n<b>here</b>"))
    assert asked(flow, STACK).splitlines() == [
        "at reserve (activity reserve-stock)",
        "    attempt 2, starts at 2026-01-01T12:00:03Z",
        "    last failure: CardDeclined: no `stock` <b>here</b>",
        "    pod: order-42-2-1",
    ]
    assert details(flow)[:6] == [
        "**Running**, 0 of 4 steps done",
        "",
        "    ▶ reserve (activity reserve-stock) Running",
        "        attempt 2, starts at 2026-01-01T12:00:03Z",
        "        last failure: CardDeclined: no `stock` <b>here</b>",
        "        pod: order-42-2-1",
    ]
    assert details(flow)[-2:] == ["    perdure logs order-42 -n shop", "    kubectl logs order-42-2-1 -n shop"]
    assert "    attempt 2, running since 2026-01-01T12:00:04Z" in asked(flow.started(4), STACK).splitlines()


def test_the_details_show_awaited_signals() -> None:
    assert "Waits for signal `decided`" in details(approval())
    assert asked(approval(), METADATA)["definition"] == {
        "type": "order-flow",
        "queryDefinitions": [
            {
                "name": STEPS,
                "description": "The steps of the run as JSON: status, times, and the content of open steps",
            },
            {"name": STACK, "description": "The current steps of the run"},
        ],
        "signalDefinitions": [{"name": "decided"}],
    }


def test_many_open_items_are_truncated() -> None:
    wide = APPROVAL.replace("maxConcurrency: 2", "maxConcurrency: 50")
    flow = Flow(wide, input={"people": list(range(50))})
    assert "      … 30 more" in details(flow)
    assert len(details(flow)) < 120


def test_a_closed_run_has_stopped_and_unreached_steps() -> None:
    flow = approval().at(5, inp.TerminateRequested(request_id="1", reason="enough"))
    assert asked(flow, STACK, "Terminated") == "The run has closed: Terminated."
    shown = details(flow, "Terminated")
    assert shown[0] == "**Terminated**, 1 of 3 steps done"
    assert "    ■ race (parallel) Stopped" in shown
    assert "    · file (set) NotReached" in shown
    assert not any("Waits" in line for line in shown)


@pytest.mark.parametrize("query", ["", "other", "STEPS"])
def test_other_queries_are_unknown(query: str) -> None:
    flow = approval()
    assert answer(QueriedRun(flow.name, "shop", "Running", flow.program, flow.state), query, "order-flow") is None
