"""The outcome of every step of a run: a replay of its history with the pinned definition."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
import pydantic

from perdure.api.json_values import mapping, mappings
from perdure.api.kinds.workflow import WorkflowSpec
from perdure.api.kinds.workflowrun import definition_of
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.commands import UndecidableError
from perdure.language.compiler import compile_program
from perdure.language.interpreter import RunScope
from perdure.language.program import InvalidWorkflowError, Program
from perdure.language.step_tree import TracedStep, Tracer
from perdure.runtime.chains import reset_of
from perdure.schedule.run_manifests import schedule_scope

MAX_EVENTS = 20_000
"""Maximum number of events of a replayed history: longer ones would delay a page too much."""


def trace(run: Mapping[str, Any]) -> dict[str, TracedStep] | None:
    """Replay the history of a run.

    Args:
        run: The WorkflowRun, with its whole history in its status.

    Returns:
        The started steps, by path; None if they cannot be known: a part of the history is missing, a different version of
        Perdure decided it, or workers decide it.
    """
    status = mapping(run.get("status"))
    recorded, state = mappings(mapping(status.get("history")).get("events")), mapping(status.get("state"))
    definition = definition_of(run)
    if not definition or len(recorded) > MAX_EVENTS:
        return None
    try:
        events = history.decode_events(recorded)
        program = _compiled(msgspec.json.encode(definition))
    except (msgspec.ValidationError, pydantic.ValidationError, InvalidWorkflowError):
        return None
    if not events or not isinstance(events[0], ev.WorkflowExecutionStarted):
        return None
    first = events[0]
    scope = _scope(dict(run), first)
    tracer = Tracer(program, scope, input=first.input, start_time=first.event_time)
    undecided, unfinished = state.get("undecided") or (), bool(state.get("unfinished"))
    try:
        history.replay(events, tracer, undecided=len(undecided), unfinished=unfinished)
    except (history.NondeterminismError, UndecidableError, ValueError, KeyError):
        return None
    return tracer.trace


def _scope(run: dict[str, Any], first: ev.WorkflowExecutionStarted) -> RunScope:
    """Return the values of `run` and `schedule` in expressions at the start of the run."""
    metadata, reset = mapping(run.get("metadata")), reset_of(run)
    return RunScope(
        name=reset.original.name if reset else str(metadata.get("name") or ""),
        namespace=str(metadata.get("namespace") or ""),
        workflow_id=first.workflow_id,
        run_id=first.original_execution_run_id,
        attempt=first.attempt,
        schedule=schedule_scope(run),
    )


@lru_cache(maxsize=8)
def _compiled(definition: bytes) -> Program:
    return compile_program(WorkflowSpec.parse(msgspec.json.decode(definition)))
