"""Specs that the API server accepts and the models reject: each has a one-sentence error, and nothing else is raised.

The API server knows the form of a date and not the calendar, and takes values that nest 10,000 deep.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.api.json_values import MAX_DEPTH, nests_deeper
from perdure.api.stored import read_annotation
from perdure.api.times import TIME_PATTERN
from perdure.controller.runs.deciders import Idle, scope_of
from perdure.controller.runs.start import first_event
from perdure.controller.runs.status import StatusComposer
from perdure.controller.workflows import definitions
from perdure.controller.workflows.definitions import check_options, read_spec, without_invalid_attributes
from perdure.engine.step import start
from perdure.handlers.main import RECURSION_LIMIT
from perdure.language.interpreter import Interpreter
from perdure.language.program import InvalidWorkflowError, Program
from perdure.runtime.attempts import RunRef
from perdure.runtime.operation_requests import StartSignal
from support.times import IMPOSSIBLE

T0 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def as_in_the_operator() -> Iterator[None]:
    """The operator's own recursion limit."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(RECURSION_LIMIT)
    yield
    sys.setrecursionlimit(before)


def nested(levels: int, shape: str) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value} if shape == "map" else [value]
    return value


def compiled(inline: dict[str, Any]) -> Program:
    """As a run that starts does it."""
    orjson.dumps(inline)
    found = definitions.compile_definition(inline)
    if found.program is None:
        raise InvalidWorkflowError(list(found.broken))
    return found.program


def begin(spec: dict[str, Any]) -> None:
    """Read a spec, start the run, and write the status; every problem is one kind of error."""
    run = {"metadata": {"name": "r", "namespace": "shop", "uid": "u"}, "spec": spec}
    read = read_spec(spec)
    check_options(read)
    try:
        program = compiled(spec["inline"])
    except orjson.JSONEncodeError as error:
        raise InvalidWorkflowError([]) from error
    decider = Interpreter(program, scope_of(run), input=read.input, start_time=T0)
    ref = RunRef(namespace="shop", name="r", uid="u", workflow_id="r")
    first = first_event(ref, read, "r", read.input, T0, policy=None, parent=None, continues=None)
    for by in (decider, Idle()):
        transition = start(first, by)
        orjson.dumps(StatusComposer("u").compose(run, transition.state, transition.events, T0))


@pytest.mark.parametrize("time", IMPOSSIBLE)
def test_a_nonexistent_date_is_reported_with_its_path(time: str) -> None:
    spec = {"inline": {"steps": [{"name": "nap", "sleep": {"until": time}}]}}
    with pytest.raises(InvalidWorkflowError, match=r"spec.steps\[0\].sleep.until: must be an RFC 3339 time"):
        begin(spec)


@given(st.from_regex(TIME_PATTERN, fullmatch=True) | st.from_regex(r"[-0-9]{10}T[:.0-9]{8,18}Z", fullmatch=True))
@example("2027-06-31T00:00:00Z")
def test_any_time_like_text_is_accepted_or_rejected(time: str) -> None:
    with suppress(InvalidWorkflowError):
        begin({"inline": {"steps": [{"name": "nap", "sleep": {"until": time}}]}})


PLACES = {
    "set": lambda value: {"inline": {"steps": [{"name": "s", "set": {"v": value}}]}},
    "input": lambda value: {"inline": {"steps": [{"name": "s", "set": {"v": "${input}"}}]}, "input": value},
    "search attribute": lambda value: {
        "inline": {"steps": [{"name": "s", "set": {"v": 1}}]},
        "searchAttributes": {"v": value},
    },
    "output": lambda value: {"inline": {"steps": [{"name": "s", "set": {"v": 1}}], "output": value}},
    "default": lambda value: {"inline": {"input": {"default": value}, "steps": [{"name": "s", "set": {"v": 1}}]}},
    "schema": lambda value: {
        "inline": {"input": {"schema": {"const": value}}, "steps": [{"name": "s", "set": {"v": 1}}]}
    },
    "continued input": lambda value: {"inline": {"steps": [{"name": "s", "continueAsNew": {"input": value}}]}},
    "container": lambda value: {
        "inline": {
            "activities": [{"name": "a", "startToCloseTimeout": "1m", "container": {"image": "i", "odd": value}}],
            "steps": [{"name": "s", "activity": {"name": "a"}}],
        }
    },
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("shape", ["map", "list"])
@pytest.mark.parametrize(
    "levels", [10, 99, 101, 150, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 253, 254, 255, 990, 9_990]
)
def test_a_deeply_nested_value_is_accepted_or_rejected(place: str, shape: str, levels: int) -> None:
    try:
        begin(PLACES[place](nested(levels, shape)))
    except InvalidWorkflowError:
        assert levels > 90
    else:
        assert levels <= MAX_DEPTH


@pytest.mark.parametrize("shape", ["map", "list"])
def test_the_nesting_depth_is_computed_without_recursion(shape: str) -> None:
    assert not nests_deeper(nested(100, shape), 100)
    assert nests_deeper(nested(101, shape), 100)
    assert nests_deeper(nested(100_000, shape), 100)


def test_a_deeply_nested_annotation_is_ignored() -> None:
    text = "[" * 100_000 + "]" * 100_000
    run = {"metadata": {"annotations": {"perdure.dev/start-signal": text}}}
    assert read_annotation(run, "perdure.dev/start-signal", StartSignal) is None


def test_a_run_rejected_for_a_search_attribute_keeps_the_others() -> None:
    attributes = {"deep": nested(600, "list"), "customer": "c-1"}
    spec = read_spec({"workflow": {"name": "w"}, "searchAttributes": attributes})
    with pytest.raises(InvalidWorkflowError, match=r"spec.searchAttributes.deep: is nested too deeply"):
        check_options(spec)
    assert without_invalid_attributes(spec).search_attributes == {"customer": "c-1"}
