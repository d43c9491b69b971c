"""`describe` shows how a nested step ended, in text and JSON, for every kind of step, ending and nesting."""

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent

import pytest

from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind
from perdure.view.runs.describe import as_data
from perdure.view.runs.tree import tree
from support.view.flow import Flow, declined, plain

DO = Callable[[Flow], object]


def nothing(flow: Flow) -> object:
    return flow


def signalled(name: str) -> DO:
    return lambda flow: flow.at(20, inp.SignalRequested(request_id="s", signal_name=name))


def attempted(failure: Failure | None) -> DO:
    def do(flow: Flow) -> object:
        path = next(a.activity_id for a in flow.state.activities.values())
        flow.started(20, path)
        return flow.completed(21, of=path) if failure is None else flow.failed(21, failure, path)

    return do


def child(outcome: inp.ChildOutcome) -> DO:
    def do(flow: Flow) -> object:
        number = next(iter(flow.state.children.values())).initiated_event_id
        flow.at(20, inp.ChildStarted(initiated_event_id=number, run_id="c"))
        failed = declined() if outcome is inp.ChildOutcome.FAILED else None
        return flow.at(21, inp.ChildClosed(initiated_event_id=number, run_id="c", outcome=outcome, failure=failed))

    return do


def request_answered(failure: Failure | None) -> DO:
    def do(flow: Flow) -> object:
        number = next(iter(flow.state.externals.values())).initiated_event_id
        return flow.at(20, inp.ExternalDone(initiated_event_id=number, failure=failure))

    return do


def time_passes(flow: Flow) -> object:
    return flow.at(600)


def cancelled(flow: Flow) -> object:
    return flow.at(20, inp.CancelRequested(request_id="c"))


FINAL = Failure(kind=FailureKind.APPLICATION, type="Declined", message="no funds", non_retryable=True)
CHILD = "childWorkflow: {workflow: {name: w}, workflowId: c}"
RACE = "parallel: {{wait: {}, branches: [{{name: a, block: wait}}, {{name: b, block: ever}}]}}"
WAIT = "waitForSignal: {name: go, timeout: 5m}"
FAIL = "fail: {type: Refused, message: because}"
ENDINGS: dict[str, tuple[str, DO, str]] = {
    "activity completes": ("activity: {name: do}", attempted(None), "Succeeded"),
    "activity fails": ("activity: {name: do}", attempted(FINAL), "Failed"),
    "activity takes too long": ("timeout: 5m\nactivity: {name: do}", time_passes, "Failed"),
    "activity is cancelled": ("activity: {name: do}", cancelled, "Cancelled"),
    "sleep is over": ("sleep: {duration: 5m}", time_passes, "Succeeded"),
    "sleep takes too long": ("timeout: 5m\nsleep: {duration: 1h}", time_passes, "Failed"),
    "sleep is cancelled": ("sleep: {duration: 5m}", cancelled, "Cancelled"),
    "signal comes": ("waitForSignal: {name: go}", signalled("go"), "Succeeded"),
    "signal comes in time": (WAIT, signalled("go"), "Succeeded"),
    "signal does not come": (WAIT, time_passes, "Failed"),
    "signal does not come within the step's timeout": ("timeout: 5m\nwaitForSignal: {name: go}", time_passes, "Failed"),
    "signal is waited for when all is cancelled": ("waitForSignal: {name: go, timeout: 1h}", cancelled, "Cancelled"),
    "condition is true immediately": ('waitUntil: {condition: "${true}"}', nothing, "Succeeded"),
    "condition holds": ('waitUntil: {condition: "${size(signals.x) > 0}", timeout: 1h}', signalled("x"), "Succeeded"),
    "condition does not hold": ('waitUntil: {condition: "${false}", timeout: 5m}', time_passes, "Failed"),
    "condition is cancelled": ('waitUntil: {condition: "${false}", timeout: 5m}', cancelled, "Cancelled"),
    "child completes": (CHILD, child(inp.ChildOutcome.COMPLETED), "Succeeded"),
    "child fails": (CHILD, child(inp.ChildOutcome.FAILED), "Failed"),
    "child times out": (CHILD, child(inp.ChildOutcome.TIMED_OUT), "Failed"),
    "block ends": ("call: {block: wait}", signalled("go"), "Succeeded"),
    "block fails": ("call: {block: wait}", time_passes, "Failed"),
    "block takes too long": ("timeout: 1m\ncall: {block: wait}", time_passes, "Failed"),
    "block is cancelled": ("call: {block: wait}", cancelled, "Cancelled"),
    "case ends": ('switch: {cases: [{when: "${true}", call: {block: wait}}]}', signalled("go"), "Succeeded"),
    "case fails": ('switch: {cases: [{when: "${true}", call: {block: wait}}]}', time_passes, "Failed"),
    "no case": ('switch: {cases: [{when: "${false}", call: {block: wait}}]}', nothing, "Succeeded"),
    "race is won": (RACE.format("Any"), signalled("go"), "Succeeded"),
    "race is lost": (RACE.format("All"), time_passes, "Failed"),
    "race is cancelled": (RACE.format("Any"), cancelled, "Cancelled"),
    "items end": ("forEach: {items: [1, 2]}\nset: {x: 1}", nothing, "Succeeded"),
    "an item fails": ("forEach: {items: [1, 2]}\ncall: {block: wait}", time_passes, "Failed"),
    "items are cancelled": ("forEach: {items: [1, 2]}\ncall: {block: wait}", cancelled, "Cancelled"),
    "variables are set": ("set: {x: 1}", nothing, "Succeeded"),
    "variables cannot be set": ('set: {x: "${1 / input.zero}"}', nothing, "Failed"),
    "another run is signalled": ("signal: {workflowId: o, name: hi}", request_answered(None), "Succeeded"),
    "another run cannot be signalled": ("signal: {workflowId: o, name: hi}", request_answered(declined()), "Failed"),
    "it fails": (FAIL, nothing, "Failed"),
    "it returns": ("return: {output: 1}", nothing, "Succeeded"),
    "it is skipped": ('when: "${false}"\nset: {x: 1}', nothing, "Skipped"),
    "its failure is handled": (WAIT + "\ncatch: [{call: {block: ok}}]", time_passes, "Succeeded"),
    "its failure is handled in vain": (WAIT + "\ncatch: [{errorTypes: [Timeout], call: {block: bad}}]", time_passes, "Failed"),
    "nothing handles its failure": (FAIL + "\ncatch: [{errorTypes: [Other], call: {block: ok}}]", nothing, "Failed"),
}  # fmt: skip


@dataclass(frozen=True)
class Nesting:
    path: str
    outer: str
    """The step that it is in."""
    steps: str
    more: str = ""
    cancellable: bool = True
    """Whether it is cancelled with the run."""


NESTINGS = {
    "a block": Nesting("outer/it", "outer", "- {name: outer, call: {block: inner}}"),
    "a block of a block": Nesting(
        "top/outer/it",
        "top/outer",
        "- {name: top, call: {block: middle}}",
        "- {name: middle, steps: [{name: outer, call: {block: inner}}]}",
    ),
    "a catch": Nesting(
        "outer:catch/it",
        "outer:catch",
        "- name: outer\n  waitForSignal: {name: never, timeout: 1s}\n"
        "  catch: [{errorTypes: [Refused], call: {block: ok}}, {call: {block: inner}}]",
    ),
    "a branch": Nesting(
        "top.outer/it", "top.outer", "- {name: top, parallel: {wait: All, branches: [{name: outer, block: inner}]}}"
    ),
    "an item": Nesting("top[0]/it", "top[0]", "- {name: top, forEach: {items: [1]}, call: {block: inner}}"),
    "a case": Nesting(
        "outer/it", "outer", '- {name: outer, switch: {cases: [{when: "${true}", call: {block: inner}}]}}'
    ),
    "a compensation": Nesting(
        "first:compensate/it",
        "first:compensate",
        "- {name: first, set: {y: 1}, compensate: {call: {block: inner}}}\n- {name: boom, fail: {type: Boom, message: b}}",
        cancellable=False,
    ),
    "a handler": Nesting(":finally/it", ":finally", "- {name: a, set: {y: 1}}", cancellable=False),
}

DEFINITION = """
activities: [{{name: do, startToCloseTimeout: 1h, container: {{image: shop}}}}]
steps:
{steps}
- {{name: after, sleep: {{duration: 1d}}}}
blocks:
- name: inner
  steps:
  - name: it
{step}
- {{name: wait, steps: [{{name: wait, waitForSignal: {{name: go, timeout: 5m}}}}]}}
- {{name: ever, steps: [{{name: ever, waitUntil: {{condition: "${{false}}"}}}}]}}
- {{name: ok, steps: [{{name: ok, set: {{ok: true}}}}]}}
- {{name: bad, steps: [{{name: ok, set: {{ok: true}}}}, {{name: bad, fail: {{type: Bad, message: worse}}}}]}}
{more}
"""


CASES = [
    (where, ending)
    for where, nesting in NESTINGS.items()
    for ending, (_, _, state) in ENDINGS.items()
    if nesting.cancellable or state != "Cancelled"
]


@pytest.mark.parametrize(("where", "ending"), CASES, ids=[f"{ending} in {where}" for where, ending in CASES])
def test_a_nested_step_is_shown_with_its_outcome(where: str, ending: str) -> None:
    nesting, (step, do, state) = NESTINGS[where], ENDINGS[ending]
    more = nesting.more + (":finally" in nesting.path) * "\nfinally: {block: inner, timeout: 1h}"
    flow = Flow(DEFINITION.format(steps=nesting.steps, step=indent(step, "    "), more=more), input={"zero": 0})
    flow.at(10)
    if nesting.outer == ":finally":
        flow.at(90_000)
    _do(flow, do, after=90_000 if nesting.outer == ":finally" else 0)
    outer = "Succeeded" if state == "Skipped" else state
    _is_shown(flow, nesting, state, outer)
    if not flow.state.closed:
        flow.at(200_000, inp.TerminateRequested(request_id="t"))
        _is_shown(flow, nesting, state, outer)


def _do(flow: Flow, do: DO, *, after: int) -> None:
    """Do it; times count from when the step began."""
    at = flow.at
    flow.at = lambda offset, *inputs: at(offset + after, *inputs)  # type: ignore[method-assign]
    do(flow)


def _is_shown(flow: Flow, nesting: Nesting, state: str, outer: str) -> None:
    run, page = flow.run(), flow.page(width=200)
    states = {step.path: step.state for step in run.every_step()}
    assert (states[nesting.path], states[nesting.outer]) == (state, outer), states
    data, found = as_data(run, page), {}
    pending = list(data["steps"])
    while pending:
        each = pending.pop()
        found[each["path"]] = each["state"]
        pending += each.get("steps", ())
    assert found == states
    line = next(line for line in plain(tree(run, page)).splitlines() if "─ it " in line)
    assert f" {state} " in line
