"""The interpreter of YAML workflows: a decider.

It processes events one by one and keeps its state in a `Memory` that is stored with the run, so it needs no history to continue
after a restart. It is deterministic: expressions only read the input, the records of earlier steps, and the time of the current
event. `perdure.language.execution` does the work of one decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.decider import Decision, UndecidableError
from perdure.engine.failures import Failure, FailureKind
from perdure.language.execution.execution import Execution
from perdure.language.execution.observer import NullObserver, Observer
from perdure.language.memory import Memory, Status, load_memory
from perdure.language.program import Program

__all__ = ["Interpreter", "Refuser", "RunScope", "load_memory", "progress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScope:
    """The values of `run` and `schedule` in expressions."""

    name: str
    namespace: str
    workflow_id: str
    run_id: str
    attempt: int
    schedule: Mapping[str, Any] = field(default_factory=dict)
    """The value of `schedule` in expressions; empty unless a Schedule started the run, or the run that it repeats."""

    def as_json(self, start_time: datetime) -> dict[str, Any]:
        """The value of `run` in expressions."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "workflowId": self.workflow_id,
            "runId": self.run_id,
            "attempt": self.attempt,
            "startTime": start_time,
        }


class Interpreter:
    """Decides for one run of a program."""

    def __init__(
        self,
        program: Program,
        run: RunScope,
        *,
        input: Any,  # noqa: A002
        start_time: datetime,
        observer: Observer | None = None,
    ) -> None:
        self.program = program
        self._observer = observer or NullObserver()
        self.scope = {"input": input, "run": run.as_json(start_time), "schedule": dict(run.schedule)}

    def decide(self, memory: Any, event: ev.AnyEvent | None, *, continue_as_new_suggested: bool = False) -> Decision:
        """Decide what follows `event`; see `perdure.engine.decider.Decider`."""
        known = load_memory(memory)
        now = known.now if event is None else event.event_time
        if now is None:
            raise UndecidableError("there is no decision to continue")
        execution = Execution(self.program, self.scope, known, now, self._observer)
        context = execution.context
        if event is not None:
            if continue_as_new_suggested and not known.continue_as_new_suggested:
                context.update(continue_as_new_suggested=True)
            execution.apply(event)
        done = execution.run()
        context.update(agenda=() if done else tuple(context.agenda), now=None if done else now)
        return Decision(tuple(context.commands), context.memory, work=context.work, more=not done)


def progress(program: Program, memory: Memory) -> tuple[int, int]:
    """Return the number of main steps that have succeeded or were skipped, and the number of all main steps."""
    main = memory.frames.get("")
    done = sum(record.status in {Status.SUCCEEDED, Status.SKIPPED} for record in main.steps.values()) if main else 0
    return done, len(program.main.steps)


class Refuser:
    """Decides for a run whose definition or input is invalid: it fails immediately."""

    def __init__(self, message: str, type_: str = "InvalidWorkflow") -> None:
        self._failure = Failure(kind=FailureKind.APPLICATION, type=type_, message=message, non_retryable=True)

    def decide(
        self,
        memory: Any,
        event: ev.AnyEvent | None,  # noqa: ARG002 (the protocol)
        *,
        continue_as_new_suggested: bool = False,  # noqa: ARG002
    ) -> Decision:
        """Fail the run."""
        return Decision((cmd.FailWorkflowExecution(failure=self._failure),), memory)
