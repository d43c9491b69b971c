"""The bytes of a commit of a run whose status contains its definition, and of one that refers to it, by its size."""

import json
from datetime import UTC, datetime

import orjson
import pytest

from bench.revisions import KILOBYTES, definition_of
from perdure.controller.runs.deciders import RunDecider
from perdure.controller.runs.status import StatusComposer
from perdure.controller.workflows.definitions import Definition, compile_definition
from perdure.engine.events import WorkflowExecutionStarted
from perdure.engine.step import start
from perdure.language.interpreter import Interpreter, RunScope
from perdure.runtime import status_encoding
from perdure.runtime.commits import OF_RUNS, committed
from perdure.runtime.revisions import Content

pytestmark = pytest.mark.bench
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def commit_of(definition: Definition) -> int:
    """The bytes of the status of a run that has started, as a commit sends it."""
    scope = RunScope(name="order-1", namespace="shop", workflow_id="order-1", run_id="uid", attempt=1)
    values = {"order": "A-1001"}
    decider = Interpreter(definition.program, scope, input=values, start_time=T0)
    first = WorkflowExecutionStarted(
        event_id=1,
        event_time=T0,
        workflow_type="order",
        workflow_id="order-1",
        input=values,
        original_execution_run_id="uid",
        first_execution_run_id="uid",
    )
    transition = start(first, decider)
    composer = StatusComposer("uid")
    composer.define(RunDecider(decider=decider, definition=definition))
    status = composer.compose({"metadata": {"name": "order-1", "uid": "uid"}}, transition.state, transition.events, T0)
    return len(orjson.dumps(status_encoding.encode(committed(status, OF_RUNS, "uid", 0))))


@pytest.mark.parametrize("kilobytes", KILOBYTES)
def test_a_commit_does_not_contain_the_definition(kilobytes: int) -> None:
    definition = definition_of(kilobytes * 1000)
    program = compile_definition(definition).program
    assert program is not None
    content = Content(workflow="order", definition=definition)
    before = commit_of(Definition(program, "order", content))
    after = commit_of(Definition(program, "order", content, revision=content.reference()))
    print(f"definition of {len(json.dumps(definition)):,} bytes: {before:,} bytes each commit before, {after:,} after")
    assert after < before - kilobytes * 900
