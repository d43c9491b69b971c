"""Runs of YAML workflows, step by step, with the real engine; times are seconds since the start."""

from typing import Any

import pytest

from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import RunStatus
from perdure.engine.step import next_wake, start
from perdure.language.interpreter import Refuser, progress
from perdure.language.memory import Status
from perdure.language.program import InvalidWorkflowError, with_defaults
from support.engine.script import T0, Drive, application, seconds
from unit.language.execution.decisions import Json, do, failure, main, make, memory, restored, run, work

# Activities


def test_an_activity_gets_its_input_with_every_expression_evaluated() -> None:
    input_ = {"n": 2}
    drive = run(
        make(
            do(input={"twice": "${input.n * 2}", "text": "n is ${input.n}", "run": "${run.name}", "plain": [1, None]})
        ),
        input_,
    )
    assert drive.open.activity_id == "do"
    assert drive.open.activity_type == "work"
    assert drive.open.input == {"twice": 4, "text": "n is 2", "run": "order-1", "plain": [1, None]}


def test_the_result_of_an_activity_is_the_output_of_its_step() -> None:
    drive = run(make(do("first"), do("second", input="${steps.first.output.id}")))
    drive.completed(1, {"id": "h-7"})
    assert drive.open.input == "h-7"


@pytest.mark.parametrize(
    ("definition", "call", "want"),
    [
        ({"startToCloseTimeout": "5s"}, {}, (5, None, None, None)),
        ({"startToCloseTimeout": "5s"}, {"startToCloseTimeout": "7s"}, (7, None, None, None)),
        (
            {"startToCloseTimeout": "5s", "scheduleToCloseTimeout": "90s", "heartbeatTimeout": "2s"},
            {"scheduleToStartTimeout": "4s", "heartbeatTimeout": "3s"},
            (5, 90, 4, 3),
        ),
        ({"startToCloseTimeout": "5s", "scheduleToStartTimeout": "9s"}, {}, (5, None, 9, None)),
    ],
    ids=[
        "the activity's",
        "the step's over the activity's",
        "each timeout separately",
        "no timeouts of the step",
    ],
)
def test_timeouts_of_a_step_override_those_of_the_activity(definition: Json, call: Json, want: tuple[Any, ...]) -> None:
    drive = run(make(do(**call), activities=(work(**definition),)))
    a = drive.open
    got = (
        a.start_to_close_timeout,
        a.schedule_to_close_timeout,
        a.schedule_to_start_timeout,
        a.heartbeat_timeout,
    )
    assert got == tuple(None if count is None else seconds(count) for count in want)


FIVE = {"exponential": {"maximumAttempts": 5, "initialInterval": "3s", "nonRetryableErrorTypes": ["Declined"]}}
ONE = {"exponential": {"maximumAttempts": 1, "backoffCoefficient": "1.5", "maximumInterval": "9s"}}


@pytest.mark.parametrize(
    ("definition", "call", "want"),
    [
        ({}, {}, RetryPolicy()),
        (
            {"retryPolicy": FIVE},
            {},
            RetryPolicy(initial_interval=seconds(3), maximum_attempts=5, non_retryable_error_types=("Declined",)),
        ),
        (
            {"retryPolicy": FIVE},
            {"retryPolicy": ONE},
            RetryPolicy(maximum_attempts=1, backoff_coefficient=1.5, maximum_interval=seconds(9)),
        ),
        ({"retryPolicy": FIVE}, {"retryPolicy": {"exponential": {}}}, RetryPolicy()),
    ],
    ids=[
        "Temporal's default",
        "the activity's",
        "the step's over the activity's",
        "the default, selected by the step",
    ],
)
def test_the_retry_policy_of_a_step_overrides_that_of_the_activity_and_the_default(
    definition: Json, call: Json, want: RetryPolicy
) -> None:
    assert run(make(do(**call), activities=(work(**definition),))).open.retry_policy == want


def test_a_failed_activity_fails_the_run_with_the_chain_of_causes() -> None:
    drive = run(make(do(), do("never"), activities=(work(retryPolicy=FIVE),)))
    drive.failed(1, application("card refused", details={"code": 51}))
    outer = failure(drive)
    assert (outer.kind, outer.activity, outer.activity_id, outer.attempt) == (FailureKind.ACTIVITY, "work", "do", 1)
    assert outer.retry_state is RetryState.NON_RETRYABLE_FAILURE
    assert outer.message == "step `do`: activity `work` failed after 1 attempt (NonRetryableFailure): card refused"
    assert outer.cause == application("card refused", details={"code": 51})
    assert main(drive)["do"].status is Status.FAILED
    assert "never" not in main(drive)


def test_a_timed_out_activity_fails_the_run() -> None:
    drive = run(make(do(), activities=(work(retryPolicy=ONE),)))
    drive.started(0)
    drive.at(60)
    outer = failure(drive)
    assert outer.kind is FailureKind.ACTIVITY
    assert outer.cause is not None
    assert outer.cause.kind is FailureKind.TIMEOUT


# Sleeping


@pytest.mark.parametrize(
    ("sleep", "want"),
    [
        ({"duration": "90s"}, 90),
        ({"duration": "30d"}, 30 * 86_400),
        ({"duration": "0s"}, 0),
        ({"duration": "${input.wait}"}, 5),
        ({"duration": "${duration('5s') + duration('10s')}"}, 15),
        ({"duration": "${duration('48h')}"}, 172_800),
        ({"duration": "${duration('1500ms')}"}, 1.5),
        ({"duration": "${now - timestamp('2027-01-01T00:00:00Z')}"}, 0),
        ({"until": "2026-01-01T00:02:00Z"}, 120),
        ({"until": "2026-01-01T01:00:00.5+01:00"}, 0.5),
        ({"until": "2025-12-31T00:00:00Z"}, 0),
        ({"until": "${input.due}"}, 3600),
        ({"until": "${now + duration('36h')}"}, 129_600),
        ({"until": "${run.startTime}"}, 0),
    ],
    ids=[
        "a duration",
        "days",
        "no time at all",
        "a duration from the input",
        "a computed duration",
        "a computed duration of days, which CEL writes in seconds",
        "a computed duration with a fraction",
        "a computed duration that has passed",
        "a time",
        "a time of another zone",
        "a time that has passed",
        "a time from the input",
        "a computed time",
        "the time at which the run started",
    ],
)
def test_a_sleep_takes_the_given_time(sleep: Json, want: float) -> None:
    drive = run(make({"name": "nap", "sleep": sleep}), {"wait": "5s", "due": "2026-01-01T01:00:00Z"})
    started = drive.history[1]
    assert isinstance(started, ev.TimerStarted)
    assert started.timer_id == "nap"
    assert started.start_to_fire_timeout == seconds(want)
    if want:
        assert next_wake(drive.state, drive.now) == T0 + seconds(want)
        drive.at(want)
    assert drive.state.status is RunStatus.COMPLETED
    assert drive.result is None


@pytest.mark.parametrize(
    ("sleep", "want"),
    [
        ({"duration": "${input.number}"}, "`sleep`: 3600 must be a duration"),
        ({"duration": "${input.list}"}, "`sleep`: [1] must be a duration"),
        ({"duration": "${input.soon}"}, '`sleep`: "soon" must be a duration'),
        ({"duration": "${null}"}, "`sleep`: null must be a duration"),
        ({"until": "${input.soon}"}, '`sleep`: "soon" must be an RFC 3339 time'),
        ({"until": "${input.number}"}, "`sleep`: 3600 must be an RFC 3339 time"),
        ({"until": "${input.early}"}, '`sleep`: "0001-01-01T00:00:00+01:00" must be an RFC 3339 time'),
        ({"duration": "${input.nothing}"}, "sleep.duration: ${input.nothing}: input has no field `nothing`"),
    ],
    ids=[
        "a number",
        "a list",
        "a word",
        "nothing",
        "a word for a time",
        "a number for a time",
        "a time before the first year",
        "a missing input",
    ],
)
def test_an_invalid_sleep_fails_the_run_with_its_value(sleep: Json, want: str) -> None:
    drive = run(
        make({"name": "nap", "sleep": sleep}),
        {"number": 3600, "list": [1], "soon": "soon", "early": "0001-01-01T00:00:00+01:00"},
    )
    assert failure(drive).type == "ExpressionError"
    assert failure(drive).message.startswith("step `nap`: ")
    assert want in failure(drive).message


def test_a_sleep_is_never_longer_than_the_longest_duration() -> None:
    drive = run(make({"name": "nap", "sleep": {"duration": "${duration('2000000h')}"}}))
    (timer,) = drive.state.timers.values()
    assert timer.fire_time == T0 + seconds(2_000_000 * 3600)
    drive = run(make({"name": "nap", "sleep": {"duration": "${duration('80000000h')}"}}))
    (timer,) = drive.state.timers.values()
    assert timer.fire_time == T0 + seconds(99_999 * 86_400)


def test_a_message_quotes_only_a_short_part_of_a_large_value() -> None:
    drive = run(make({"name": "nap", "sleep": {"duration": "${input}"}}), "x" * 100_000)
    assert len(failure(drive).message) < 500


# Steps that take no time


def test_later_variables_override_earlier_ones_and_are_the_output_of_their_step() -> None:
    drive = run(
        make(
            {"name": "a", "set": {"x": 1, "y": "${input}"}},
            {"name": "b", "set": {"x": "${vars.x + 1}", "z": "${steps.a.output.y}"}},
            do(input="${vars}"),
        ),
        "in",
    )
    assert drive.open.input == {"x": 2, "y": "in", "z": "in"}
    assert memory(drive).vars == {"x": 2, "y": "in", "z": "in"}


def test_expressions_of_one_set_see_the_variables_as_they_were_before() -> None:
    drive = run(make({"name": "a", "set": {"x": 1}}, {"name": "b", "set": {"x": 2, "y": "${vars.x}"}}))
    assert drive.result == {"x": 2, "y": 1}


def test_a_return_ends_the_run_and_skips_remaining_steps() -> None:
    drive = run(make({"name": "out", "return": {"output": {"n": "${input}"}}}, do("never"), output="${input + 100}"), 4)
    assert drive.state.status is RunStatus.COMPLETED
    assert drive.result == {"n": 4}
    assert list(main(drive)) == ["out"]


def test_a_return_without_an_output_returns_nothing() -> None:
    drive = run(make({"name": "out", "return": {}}, do("never")))
    assert drive.state.status is RunStatus.COMPLETED
    assert drive.result is None


def test_a_fail_fails_the_run_with_its_type_message_and_details() -> None:
    drive = run(
        make(
            {
                "name": "stop",
                "fail": {
                    "type": "SoldOut",
                    "message": "no room for ${input.guests}",
                    "details": {"guests": "${input.guests}"},
                    "nonRetryable": True,
                },
            }
        ),
        {"guests": 3},
    )
    assert failure(drive) == Failure(
        kind=FailureKind.APPLICATION,
        type="SoldOut",
        message="no room for 3",
        details={"guests": 3},
        non_retryable=True,
    )
    assert main(drive)["stop"].status is Status.FAILED


def test_a_fail_without_fields_has_the_type_failed() -> None:
    drive = run(make({"name": "stop", "fail": {}}))
    assert failure(drive) == Failure(kind=FailureKind.APPLICATION, type="Failed", message="")


@pytest.mark.parametrize(
    ("input_", "want"),
    [("no", "no"), (7, "7"), (None, ""), ({"b": 1, "a": "ü"}, '{"a":"ü","b":1}'), ([True], "[true]")],
    ids=["text", "a number", "nothing", "an object, its keys in order", "a list"],
)
def test_the_message_of_a_fail_is_converted_to_text(input_: Any, want: str) -> None:
    drive = run(make({"name": "stop", "fail": {"message": "${input}"}}), input_)
    assert failure(drive).message == want
    assert history.decode_state(history.encode(drive.state)) == restored(drive.state)


# Outputs


@pytest.mark.parametrize(
    ("steps", "spec", "want"),
    [
        ([{"name": "a", "set": {"x": 1}}, {"name": "b", "set": {"y": 2}}], {}, {"y": 2}),
        ([{"name": "a", "set": {"x": 1}}], {"output": {"of": "${steps.a.output}"}}, {"of": {"x": 1}}),
        ([{"name": "a", "set": {"x": 1}}], {"output": "constant"}, "constant"),
        ([{"name": "a", "set": {"x": 1}}], {"output": "${steps.a.status}"}, "Succeeded"),
        ([{"name": "a", "set": {"x": 1}}], {"output": "${steps.a.endTime == run.startTime}"}, True),
    ],
    ids=["the last step's", "an explicit output", "a constant", "the status of a step", "the time of a step"],
)
def test_the_output_of_a_run_defaults_to_that_of_its_last_step(steps: list[Json], spec: Json, want: Any) -> None:
    assert run(make(*steps, **spec)).result == want


def test_the_output_of_a_run_whose_last_step_is_an_activity_is_its_result() -> None:
    drive = run(make(do("a"), do("b")))
    drive.completed(1, "first")
    drive.completed(2, "second")
    assert drive.result == "second"


def test_only_outputs_that_later_expressions_read_are_kept() -> None:
    drive = run(make(do("a"), do("b"), do("c", input="${steps.b.output}"), do("d")))
    for offset, result in enumerate(["of a", "of b", "of c"], start=1):
        drive.completed(offset, result)
    kept = {name: step.output for name, step in main(drive).items()}
    assert kept == {"a": None, "b": "of b", "c": None, "d": None}
    drive.completed(4, "of d")
    assert drive.result == "of d"


def test_all_outputs_are_kept_if_an_expression_reads_all_steps() -> None:
    drive = run(make(do("a"), do("b"), output="${steps[input].output}"), "a")
    drive.completed(1, "of a")
    drive.completed(2, "of b")
    assert drive.result == "of a"


# Failures


@pytest.mark.parametrize(
    ("steps", "spec", "want"),
    [
        ([do("book", input={"room": {"no": "${input.x}"}})], {}, "step `book`: spec.steps[0].activity.input.room.no: "),
        ([{"name": "nap", "sleep": {"until": "${input.x}"}}], {}, "step `nap`: spec.steps[0].sleep.until: "),
        ([{"name": "keep", "set": {"v": "${input.x}"}}], {}, "step `keep`: spec.steps[0].set.v: "),
        ([{"name": "out", "return": {"output": "${input.x}"}}], {}, "step `out`: spec.steps[0].return.output: "),
        ([{"name": "stop", "fail": {"message": "a ${input.x}"}}], {}, "step `stop`: spec.steps[0].fail.message: "),
        ([{"name": "stop", "fail": {"details": ["${input.x}"]}}], {}, "step `stop`: spec.steps[0].fail.details[0]: "),
        ([{"name": "keep", "set": {"v": 1}}], {"output": {"o": "${input.x}"}}, "`output`: spec.output.o: "),
    ],
    ids=["activity", "sleep", "set", "return", "the message of fail", "the details of fail", "the output of the run"],
)
def test_a_failing_expression_fails_the_run_with_step_and_path(steps: list[Json], spec: Json, want: str) -> None:
    got = failure(run(make(*steps, **spec), {"y": 1}))
    assert got.type == "ExpressionError"
    assert got.non_retryable
    assert got.message.startswith(want + "${input.x}: ")
    assert "input has no field `x`; it has: y" in got.message


def test_a_step_that_has_not_run_yet_cannot_be_referred_to() -> None:
    with pytest.raises(
        InvalidWorkflowError, match=r"steps\[0\]\.activity\.input: step `b`.* may not have ended by then"
    ):
        make(do("a", input="${steps.b.output}"), do("b"))


def test_an_invalid_definition_fails_its_run_immediately_and_permanently() -> None:
    drive = Drive(Refuser("spec.steps: there is nothing to do"))  # type: ignore[arg-type]
    first = run(make(do())).history[0]
    assert isinstance(first, ev.WorkflowExecutionStarted)
    drive.take(start(first, drive.script))
    assert failure(drive).type == "InvalidWorkflow"
    assert failure(drive).message == "spec.steps: there is nothing to do"
    assert failure(drive).non_retryable


# Input and progress


@pytest.mark.parametrize(
    ("default", "input_", "want"),
    [
        (None, None, None),
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1, "b": 2}, None, {"a": 1, "b": 2}),
        ({"a": 1, "b": {"c": 2}}, {"b": {"d": 3}}, {"a": 1, "b": {"d": 3}}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({"a": 1}, [1], [1]),
        ("text", {"a": 1}, {"a": 1}),
        ({"a": 1}, 0, 0),
        ({"a": 1}, False, False),
    ],
    ids=[
        "nothing at all",
        "no default",
        "nothing given",
        "field by field, whole fields",
        "a null that is given",
        "not an object",
        "a default that is no object",
        "zero",
        "false",
    ],
)
def test_the_input_takes_precedence_over_the_default(default: Any, input_: Any, want: Any) -> None:
    program = make(do(input="${input}"), input={"default": default})
    assert with_defaults(program, input_) == want
    assert run(program, input_).open.input == want


def test_without_an_input_section_the_input_is_unchanged() -> None:
    assert with_defaults(make(do()), {"a": 1}) == {"a": 1}


def test_progress_counts_successful_steps() -> None:
    program = make(do("a"), {"name": "b", "set": {"x": 1}}, do("c"), do("d"))
    drive = run(program)
    assert progress(program, memory(drive)) == (0, 4)
    drive.completed(1)
    assert progress(program, memory(drive)) == (2, 4)
    drive.failed(2, application(non_retryable=True))
    assert progress(program, memory(drive)) == (2, 4)


def test_a_step_an_activity_and_a_variable_can_have_the_same_name() -> None:
    drive = run(make({"name": "work", "set": {"work": 1}}, do("again", input="${vars.work + steps.work.output.work}")))
    assert drive.open.input == 2
