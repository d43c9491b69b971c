"""Replays the history of a run to find the outcome of every step, because the memory does not keep closed blocks."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from perdure.engine.failures import Failure
from perdure.language.interpreter import Interpreter, RunScope
from perdure.language.memory import Outcome, Status
from perdure.language.program import Program
from perdure.language.results import result_warning
from perdure.language.step_paths import Path


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A step that has started, or a part of one: an item, a branch, the block of a `catch`, a compensation, a handler."""

    start: datetime
    end: datetime | None = None
    """The outcome; None while the step is running."""
    status: Status = Status.RUNNING
    block: str = ""
    """The block that the step runs; empty for none."""
    failure: Failure | None = None
    """The failure of its action, even if a `catch` has handled it."""
    remark: str = ""
    """A warning about a doubtful result."""


class Tracer(Interpreter):
    """An interpreter that records how each step starts and closes."""

    def __init__(self, program: Program, run: RunScope, *, input: Any, start_time: datetime) -> None:  # noqa: A002
        self.trace: dict[str, TracedStep] = {}
        """The steps by path, in the order in which they started."""
        observer = _Recorder(program, self)
        super().__init__(program, run, input=input, start_time=start_time, observer=observer)


class _Recorder:
    """Records a trace; see `execution.observer`."""

    def __init__(self, program: Program, tracer: Tracer) -> None:
        self._program = program
        self._tracer = tracer

    def started(self, path: Path, now: datetime, block: str = "") -> None:
        known = self._tracer.trace.get(path.text) or TracedStep(now)
        self._tracer.trace[path.text] = replace(known, block=block or known.block)

    def activity_completed(self, path: Path, output: Any) -> None:
        known = self._tracer.trace[path.text]
        self._tracer.trace[path.text] = replace(known, remark=result_warning(self._program, path.text, output))

    def failed(self, path: Path, failure: Failure) -> None:
        known = self._tracer.trace[path.text]
        self._tracer.trace[path.text] = replace(known, end=None, status=Status.RUNNING, failure=failure)

    def closed(self, path: Path, outcome: Outcome, now: datetime) -> None:
        known = self._tracer.trace.get(path.text) or TracedStep(now)
        failure = outcome.failure or known.failure
        self._tracer.trace[path.text] = replace(known, end=now, status=outcome.status, failure=failure)

    def discarded(self, path: Path) -> None:
        del self._tracer.trace[path.text]
