"""A restart at any point changes nothing, for any program and outcomes."""

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.engine import history
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.fold import as_recorded
from perdure.engine.inputs import AttemptCompleted, AttemptFailed, AttemptInput, AttemptLost, AttemptStarted
from perdure.engine.state import RunState
from perdure.language.compiler import compile_program
from support.engine.script import Drive, application
from unit.language.execution.decisions import Json, interpreter, restored, run, work

# Random programs

values = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "ü", 1.5, [1, {"a": None}], {}]))
templates = st.one_of(
    values,
    st.sampled_from(
        [
            "${input.n}",
            "${vars}",
            "${vars.v}",
            "${steps.s0.output}",
            "${steps.s1.output}",
            "${steps.?s2.output}",
            "${steps.s3.startTime}",
            "${steps.map(s, s)}",
            "${now}",
            "${now - run.startTime}",
            "${run}",
            "at ${now}, ${input}",
        ]
    ),
)
bodies = st.one_of(
    st.builds(
        lambda input_, attempts, close: {
            "activity": {
                "name": "work",
                "input": input_,
                "retryPolicy": {"exponential": {"maximumAttempts": attempts}},
                **({"scheduleToCloseTimeout": close} if close else {}),
            }
        },
        templates,
        st.integers(0, 3),
        st.sampled_from([None, "2s", "50s"]),
    ),
    st.sampled_from(
        [
            {"sleep": {"duration": "0s"}},
            {"sleep": {"duration": "7s"}},
            {"sleep": {"duration": "${duration('3s')}"}},
            {"sleep": {"duration": "${input.n}"}},
            {"sleep": {"until": "${now + duration('1500ms')}"}},
            {"sleep": {"until": "2026-01-01T00:00:09Z"}},
        ]
    ),
    st.builds(lambda name, value: {"set": {name: value}}, st.sampled_from("vw"), templates),
    st.builds(lambda name, value: {"set": {name: value}}, st.sampled_from("vw"), values),
    st.builds(lambda value: {"return": {"output": value}}, templates),
    st.builds(lambda value: {"fail": {"message": "m ${vars}", "details": value}}, templates),
)


def looking_back(body: Json, index: int) -> Json:
    """The body of the step at `index`, its references turned to steps before it; the first one refers to none."""

    def earlier(match: re.Match[str]) -> str:
        return f"steps.{match[1]}s{min(int(match[2]), index - 1)}{match[3]}" if index else "vars"

    changed: Json = json.loads(re.sub(r"steps\.(\??)s(\d)(\.\w+)", earlier, json.dumps(body)))
    return changed


definitions = st.builds(
    lambda steps, output: {
        "activities": [work()],
        "steps": [{"name": f"s{index}", **looking_back(body, index)} for index, body in enumerate(steps)],
        **({} if output is None else {"output": output}),
    },
    st.lists(bodies, min_size=4, max_size=7),
    st.one_of(st.none(), templates),
)
outcomes = st.lists(
    st.tuples(
        st.sampled_from(["started", "completed", "completed", "completed", "failed", "lost", "nothing"]),
        values,
        st.sampled_from([0.0, 0.25, 1.0, 10.0, 70.0]),
    ),
    max_size=15,
)


def as_inputs(state: RunState, kind: str, value: Any, drive: Drive) -> list[AttemptInput]:
    if kind == "nothing" or not state.activities:
        return []
    event, attempt = drive.open.scheduled_event_id, drive.open.attempt
    match kind:
        case "started":
            return [AttemptStarted(scheduled_event_id=event, attempt=attempt, time=drive.now)]
        case "completed":
            return [AttemptCompleted(scheduled_event_id=event, attempt=attempt, result=value)]
        case "failed":
            failed = application(details=value)
            return [AttemptFailed(scheduled_event_id=event, attempt=attempt, failure=failed)]
        case _:
            lost = Failure(kind=FailureKind.SERVER, message="gone")
            return [AttemptLost(scheduled_event_id=event, attempt=attempt, failure=lost)]


@given(definitions, outcomes, st.sampled_from([{"n": 1}, {"n": "4s"}, None]))
def test_a_restart_at_any_point_changes_nothing_and_every_history_replays(
    definition: Json, happenings: list[Any], input_: Any
) -> None:
    program = compile_program(WorkflowSpec.parse(definition))
    live, restarted = run(program, input_), run(program, input_)
    offset = 0.0
    for kind, value, wait in happenings:
        offset += wait
        assert restarted.last is not None
        # Another process: it has the stored state, and compiles the definition again.
        again = Drive(interpreter(compile_program(WorkflowSpec.parse(definition)), input_))  # type: ignore[arg-type]
        again.history = restarted.history
        again.last = type(restarted.last)(restored(restarted.state), (), (), durable=False, more=False)
        again.now = live.now
        restarted = again
        inputs = as_inputs(live.state, kind, value, live)
        live.at(offset, *inputs)
        restarted.at(offset, *inputs)
        assert restarted.last is not None
        assert live.last is not None
        assert restarted.last.events == live.last.events
        assert history.encode(restarted.state) == history.encode(live.state)
    assert restored(live.state) == restored(restarted.state)
    reported = history.decode_events(json.loads(json.dumps(history.encode(live.history))))
    replayed = history.replay(reported, interpreter(program, input_))
    assert history.encode(replayed) == history.encode(as_recorded(live.state))
