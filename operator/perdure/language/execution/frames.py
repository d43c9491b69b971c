"""Opens and stops frames (running lists of steps), and closes them when no step is running or due."""

from typing import Any, Final

from perdure.engine.failures import Failure
from perdure.language.execution.context import replace
from perdure.language.execution.parts import Parts
from perdure.language.memory import Frame, Outcome, Status, failed, succeeded
from perdure.language.program import Flow
from perdure.language.step_failures import StepError, application
from perdure.language.step_paths import Path

MAX_DEPTH: Final = 32
"""Maximum nesting of calls of blocks."""
MAX_PATH: Final = 1_000
"""Maximum characters of a path, which is also the ID of the activity."""


class Frames:
    """Opens, stops and closes frames."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._context = parts.context
        self._stopping: set[str] = set()
        """Frames whose steps are being canceled one by one; they close after the last."""

    def open(
        self,
        path: Path,
        block: str,
        params: Any = None,
        *,
        branch: str = "",
        caller: str | None = None,
        caught: Failure | None = None,
    ) -> None:
        """Open the frame of a block, and enqueue its first steps.

        Args:
            path: Path of the frame.
            block: Name of the block; empty for the main steps.
            params: The input of the block.
            branch: The branch of a parallel step.
            caller: Path of the frame that calls it; None for main steps, handlers and compensations.
            caught: The failure that the block handles.

        Raises:
            StepError: The input does not match the schema, or the blocks are nested too deeply.
        """
        flow = self._context.program.flows[block]
        depth = 0 if caller is None else self._context.memory.frames[caller].depth + 1
        if depth > MAX_DEPTH or len(path.text) > MAX_PATH:
            raise StepError(_too_deep(block))
        params = flow.params.complete(params)
        wrong = flow.params.check(params)
        if wrong:
            reasons = "; ".join(f"params{where}: {message}" for where, message in wrong)
            raise StepError(application("InvalidInput", f"block `{block}`: {reasons}"))
        self._context.put_frame(path, Frame(block=block, branch=branch, depth=depth, params=params, caught=caught))
        self._context.enqueue(path.child(step.name) for step in flow.steps if not step.needs)
        if path.text:
            self._context.observer.started(path, self._context.now, block)

    def stop(self, path: Path, outcome: Outcome) -> None:
        """Cancel the running steps of a frame; it closes with the outcome once they have closed."""
        frame = self._context.frame(path)
        if frame is None or frame.outcome is not None:
            return
        self._context.put_frame(path, replace(frame, outcome=outcome))
        self._stopping.add(path.text)
        flow = self._context.program.flows[frame.block]
        for step in flow.steps:
            record = self._context.memory.frames[path.text].steps.get(step.name)
            if record is not None and record.status is Status.RUNNING:
                self._parts.steps.cancel(path.child(step.name))
        self._stopping.discard(path.text)
        self.close_if_done(path)

    def close_if_done(self, path: Path) -> None:
        """Close a frame in which no step is running and none is due."""
        frame = self._context.memory.frames[path.text]
        flow = self._context.program.flows[frame.block]
        if path.text in self._stopping or self._context.closed:
            return
        if any(record.status is Status.RUNNING for record in frame.steps.values()):
            return
        outcome = frame.outcome
        complete = len(frame.steps) == len(flow.steps) and all(
            record.status in {Status.SUCCEEDED, Status.SKIPPED} for record in frame.steps.values()
        )
        if complete and (outcome is None or outcome.status is Status.CANCELLED):
            outcome = self._output(path, frame, flow)
        if outcome is None:
            return
        if path.text:  # handlers still read the records of the main steps
            self._context.put_frame(path, None)
        self._close(path, frame, outcome)

    def _output(self, path: Path, frame: Frame, flow: Flow) -> Outcome:
        """Return the outcome of a frame whose steps have all succeeded or were skipped."""
        if flow.output is None:
            return succeeded(frame.steps[flow.steps[-1].name].output)
        try:
            where = f"`output` of block `{frame.block}`" if frame.block else "`output`"
            return succeeded(self._parts.evaluation.in_frame(flow.output, path.text, where))
        except StepError as error:
            return failed(error.failure)

    def _close(self, path: Path, frame: Frame, outcome: Outcome) -> None:
        """Pass the outcome of a frame to its caller."""
        parts = self._parts
        if not path.text:
            parts.closing.main_closed(outcome)
            return
        self._context.observer.closed(path, outcome, self._context.now)
        if path.is_handler:
            parts.closing.handler_closed(path, outcome)
        elif path.text == parts.compensations.running:
            parts.compensations.close(outcome)
        elif frame.branch:
            parts.blocks.branch_closed(path.owner, frame.branch, outcome)
        else:
            parts.tasks.part_closed(path.owner, outcome)


def _too_deep(block: str) -> Failure:
    message = f"`{block}` stands more than {MAX_DEPTH} blocks deep, or its path has more than {MAX_PATH} characters"
    return application("BlockDepthExceeded", message)
