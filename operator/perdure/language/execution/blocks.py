"""Blocks: `call`, `switch` and `parallel` open frames and close with them."""

from perdure.engine.failures import Failure, FailureKind, shorten
from perdure.language.compiled_actions import CallBlock, Parallel, Switch
from perdure.language.execution.context import Location, replace
from perdure.language.execution.parts import Parts
from perdure.language.memory import CANCELLED, Outcome, Status, failed, succeeded
from perdure.language.step_failures import StepError
from perdure.language.step_paths import Path


class Blocks:
    """Opens and cancels the frames of steps."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._context = parts.context

    def call(self, at: Location, action: CallBlock) -> None:
        """Open the frame of a block. Raises StepError."""
        params = self._parts.evaluation.of_step(at, action.input)
        self._parts.frames.open(at.path, action.block, params, caller=at.path.frame)

    def switch(self, at: Location, action: Switch) -> Outcome | None:
        """Call the block of the first case whose condition is true, or the default. Raises StepError."""
        holds = (case.call for case in action.cases if self._parts.evaluation.of_step(at, case.when))
        chosen = next(holds, action.default)
        if chosen is None:
            return succeeded()
        self.call(at, chosen)
        return None

    def parallel(self, at: Location, action: Parallel) -> None:
        """Open a frame for each branch, or for none. Raises StepError."""
        opened: list[Path] = []
        for name, call in action.branches.items():
            frame = at.path.branch(name)
            try:
                params = self._parts.evaluation.of_step(at, call.input)
                self._parts.frames.open(frame, call.block, params, branch=name, caller=at.path.frame)
            except StepError:
                for each in opened:
                    self._context.put_frame(each, None)
                    self._context.observer.discarded(each)
                raise
            opened.append(frame)

    def cancel(self, at: Location, action: CallBlock | Switch | Parallel) -> None:
        """Cancel the running frames; the step closes with the last of them."""
        if isinstance(action, Parallel):
            for name in action.branches:
                self._parts.frames.stop(at.path.branch(name), CANCELLED)
        else:
            self._parts.frames.stop(at.path, CANCELLED)

    def branch_closed(self, path: Path, branch: str, outcome: Outcome) -> None:
        """Record the outcome of a branch. Cancel the others once the step has an outcome, and close it with the last one."""
        at = self._context.locate(path)
        action = at.compiled.action
        assert isinstance(action, Parallel)
        task = self._context.memory.tasks[path.text]
        task = replace(task, branches={**task.branches, branch: outcome})
        self._context.put_task(path, task)
        names = list(action.branches)
        closed = [task.branches[name] for name in names if name in task.branches]
        succeeded_count = sum(each.status is Status.SUCCEEDED for each in closed)
        failed_count = sum(each.status is Status.FAILED for each in closed)
        decided = succeeded_count >= action.required or len(names) - failed_count < action.required
        if decided and len(closed) < len(names):
            for name in names:
                self._parts.frames.stop(path.branch(name), CANCELLED)
            return
        if len(closed) == len(names):
            self._parts.tasks.part_closed(path, self._joined(at, names, action.required))

    def _joined(self, at: Location, names: list[str], required: int) -> Outcome:
        """Return the outcome of a parallel step after all its branches have closed."""
        branches = self._context.memory.tasks[at.path.text].branches
        outputs = {name: branches[name].output for name in names if branches[name].status is Status.SUCCEEDED}
        if len(outputs) >= required:
            return succeeded(outputs)
        failures = [failure for name in names if (failure := branches[name].failure) is not None]
        if not failures:
            return CANCELLED
        if len(failures) == 1 or required == len(names):
            return failed(failures[0])
        reasons = "; ".join(failure.message for failure in failures)
        message = f"{at.where}: {len(failures)} of {len(names)} branches failed, {required} had to succeed: {reasons}"
        return failed(
            Failure(
                kind=FailureKind.APPLICATION,
                type="BranchesFailed",
                message=shorten(message),
                cause=failures[-1],
                suppressed=tuple(failures[:-1]),
            )
        )

    def caught(self, frame: Path) -> Failure | None:
        """Return the failure that the block of a frame handles, or a block that directly or indirectly called it."""
        while (running := self._context.frame(frame)) is not None:
            if running.caught is not None or not frame.text:
                return running.caught
            frame = frame.parent
        return None
