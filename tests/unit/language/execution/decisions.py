"""Runs of programs, decided from the first event."""

import json
from typing import Any

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.failures import Failure
from perdure.engine.state import RunState, RunStatus
from perdure.engine.step import start
from perdure.language.compiler import compile_program
from perdure.language.interpreter import Interpreter, RunScope
from perdure.language.memory import Memory, StepRecord, load_memory
from perdure.language.program import Program, with_defaults
from support.engine.script import T0, Drive

Json = dict[str, Any]
SCOPE = RunScope(name="order-1", namespace="shop", workflow_id="order", run_id="uid-1", attempt=1)


def work(name: str = "work", **options: Any) -> Json:
    options.setdefault("startToCloseTimeout", "60s")
    return {"name": name, "container": {"image": "i"}, **options}


def make(*steps: Json, activities: tuple[Json, ...] = (work(),), **spec: Any) -> Program:
    return compile_program(WorkflowSpec.parse({"activities": list(activities), "steps": list(steps), **spec}))


def interpreter(program: Program, input_: Any = None) -> Interpreter:
    return Interpreter(program, SCOPE, input=with_defaults(program, input_), start_time=T0)


def run(program: Program, input_: Any = None) -> Drive:
    """A run of the program, after its first pass."""
    drive = Drive(interpreter(program, input_))  # type: ignore[arg-type]
    first = ev.WorkflowExecutionStarted(
        event_id=1,
        event_time=T0,
        workflow_type="t",
        workflow_id="order",
        input=with_defaults(program, input_),
        original_execution_run_id="uid-1",
        first_execution_run_id="uid-1",
    )
    drive.take(start(first, drive.script))
    return drive


def do(name: str = "do", activity: str = "work", **call: Any) -> Json:
    return {"name": name, "activity": {"name": activity, **call}}


def memory(drive: Drive) -> Memory:
    return load_memory(drive.state.memory)


def main(drive: Drive) -> dict[str, StepRecord]:
    """The main steps that have begun."""
    return memory(drive).frames[""].steps


def failure(drive: Drive) -> Failure:
    assert drive.state.status is RunStatus.FAILED
    assert drive.failure is not None
    return drive.failure


def restored(state: RunState) -> RunState:
    """The state as a restart finds it: plain JSON, written and read."""
    return history.decode_state(json.loads(json.dumps(history.encode(state))))
