"""The signals that a run awaits, their timeouts, and signals that its workflow never awaits. Times are seconds."""

import pytest
import yaml

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.engine import inputs as inp
from perdure.language.compiler import compile_program
from perdure.language.memory import load_memory
from perdure.language.signals import Awaited, awaited, known_signals, unknown_signal
from support.view.flow import Flow, at

DEFINITION = """
steps:
- {name: approve, waitForSignal: {name: approved, timeout: 1h}}
- {name: forever, needs: [], waitForSignal: {name: stopped}}
- {name: limited, needs: [], timeout: 30m, call: {block: ask}}
- {name: rooms, needs: [], forEach: {items: [1, 2]}, call: {block: ask}}
- {name: votes, needs: [], waitUntil: {condition: "${size(signals.vote) > 1}", timeout: 2h}}
- {name: anything, needs: [], waitUntil: {condition: "${has(vars.x)}"}}
blocks:
- {name: ask, steps: [{name: ask, waitForSignal: {name: answered, timeout: 45m}}]}
"""


def waits(flow: Flow) -> list[Awaited]:
    return awaited(flow.program, load_memory(flow.state.memory), flow.state.timers)


def test_each_wait_has_its_signal_its_step_and_its_next_timeout() -> None:
    flow = Flow(DEFINITION, input={})
    assert sorted(waits(flow)) == [
        Awaited("approve", "approved", at(3600)),
        Awaited("forever", "stopped"),
        Awaited("limited/ask", "answered", at(1800)),
        Awaited("rooms[0]/ask", "answered", at(2700)),
        Awaited("rooms[1]/ask", "answered", at(2700)),
        Awaited("votes", "vote", at(7200)),
    ]
    flow.at(5, inp.SignalRequested(request_id="1", signal_name="approved"))
    assert "approve" not in {each.step for each in waits(flow)}


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ("", {"approved"}),
        ("- {name: b, waitUntil: {condition: '${size(signals.vote) > 1}'}}", {"approved", "vote"}),
        ("- {name: b, set: {all: '${signals[\"other\"]}'}}", {"approved", "other"}),
        ("- {name: b, set: {all: '${signals}'}}", None),
        ("- {name: b, set: {one: '${signals[input.name] + signals.vote}'}}", None),
    ],
)
def test_known_signals_are_those_awaited_or_read(more: str, want: set[str] | None) -> None:
    definition = f"steps:\n- {{name: a, waitForSignal: {{name: approved}}}}\n{more}"
    assert known_signals(compile_program(WorkflowSpec.parse(yaml.safe_load(definition)))) == want


def test_a_misspelled_signal_is_reported_with_the_awaited_ones() -> None:
    program = Flow(DEFINITION, input={}).program
    assert unknown_signal(program, "approved") == ""
    assert unknown_signal(program, "aproved") == (
        "the workflow never waits for signal `aproved`, so nothing will receive it; it waits for `answered`, `approved`, "
        "`stopped`, `vote`"
    )
    nothing = compile_program(WorkflowSpec.parse({"steps": [{"name": "a", "set": {"x": 1}}]}))
    assert unknown_signal(nothing, "go") == "the workflow never waits for signal `go`, so nothing will receive it"
