"""How every step of a run has ended, found by replaying its history: the interpreter itself forgets blocks that have ended."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.engine.failures import Failure
from perdure.language.body import At
from perdure.language.interpreter import Interpreter, RunScope
from perdure.language.memory import Ending, Frame, Memory, Status, Task, Traced, failed
from perdure.language.program import Program
from perdure.language.results import doubt
from perdure.language.walk import Walk


class Tracer(Interpreter):
    """An interpreter that records how each step begins and ends."""

    def __init__(self, program: Program, run: RunScope, *, input: Any, start_time: datetime) -> None:  # noqa: A002
        super().__init__(program, run, input=input, start_time=start_time)
        self.trace: dict[str, Traced] = {}
        """By path, in the order of their beginnings."""

    def walk(self, memory: Memory, now: datetime) -> Walk:
        """A walk that records."""
        return _Walk(self, memory, now)


class _Walk(Walk):
    def __init__(self, tracer: Tracer, memory: Memory, now: datetime) -> None:
        super().__init__(tracer.program, tracer.scope, memory, now)
        self._trace = tracer.trace

    def _begun(self, path: str, block: str = "") -> None:
        known = self._trace.get(path) or Traced(self.now)
        self._trace[path] = replace(known, block=block or known.block)

    def _ended(self, path: str, ending: Ending) -> None:
        known = self._trace.get(path) or Traced(self.now)
        failure = ending.failure or known.failure
        self._trace[path] = replace(known, end=self.now, status=ending.status, failure=failure)

    def open_frame(self, path: str, block: str, params: Any = None, **options: Any) -> None:
        super().open_frame(path, block, params, **options)
        if path:
            self._begun(path, block)

    def frame_ended(self, path: str, frame: Frame, ending: Ending) -> None:
        if path:
            self._ended(path, ending)
        super().frame_ended(path, frame, ending)

    def evaluate_when(self, at: At) -> bool:
        self._begun(at.path)
        return super().evaluate_when(at)

    def begin_task(self, path: str) -> None:
        self._begun(path)
        super().begin_task(path)

    def end_body(self, path: str, ending: Ending) -> None:
        if ending.status is Status.SUCCEEDED and path in self.memory.tasks and self.at(path).compiled.step.activity:
            self._trace[path] = replace(self._trace[path], remark=doubt(self.program, path, ending.output))
        super().end_body(path, ending)

    def end_step(self, path: str, ending: Ending) -> None:
        self._forget_unopened(self.at(path))
        self._ended(path, ending)
        super().end_step(path, ending)

    def item_ended(self, at: At, ending: Ending) -> None:
        self._forget_unopened(at)
        self._ended(at.path, ending)
        super().item_ended(at, ending)

    def _forget_unopened(self, at: At) -> None:
        """Forget branches in which nothing has begun: the input of a later one could not be evaluated."""
        parallel = at.compiled.step.parallel
        for branch in parallel.branches if parallel else ():
            path = f"{at.path}.{branch.name}"
            if path in self._trace and self._trace[path].status is Status.RUNNING:
                del self._trace[path]

    def handle(self, at: At, task: Task, failure: Failure) -> Failure | None:
        known = self._trace[at.path]
        self._trace[at.path] = replace(known, end=None, status=Status.RUNNING, failure=failure)
        return super().handle(at, task, failure)

    def begin_undo(self) -> bool:
        path = f"{self.memory.undo[-1].path}:compensate"
        self._begun(path)
        begun = super().begin_undo()
        self._check_begun(path, begun=begun)
        return begun

    def undo_ended(self, ending: Ending) -> None:
        path = self.undo_path()
        assert path is not None
        self._ended(path, ending)
        super().undo_ended(ending)

    def begin_handler(self, name: str, closing: Any) -> bool:
        if name in self.program.handlers:
            self._begun(f":{name}")
        begun = super().begin_handler(name, closing)
        if name in self.program.handlers:
            self._check_begun(f":{name}", begun=begun)
        return begun

    def _check_begun(self, path: str, *, begun: bool) -> None:
        """A compensation or handler whose input cannot be evaluated has failed."""
        closing = self.memory.closing
        if not begun and closing is not None and closing.suppressed:
            self._ended(path, failed(closing.suppressed[-1]))
