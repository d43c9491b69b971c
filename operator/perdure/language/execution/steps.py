"""Starts the steps of a frame when their needs have closed, and enqueues dependent steps when they close."""

from perdure.language.execution.context import WORK_OF_A_START, replace
from perdure.language.execution.parts import Parts
from perdure.language.memory import CANCELLED, SKIPPED, Frame, Outcome, Status, StepRecord, failed
from perdure.language.program import Flow
from perdure.language.step_failures import StepError
from perdure.language.step_paths import Path


class Steps:
    """Starts, cancels and closes steps."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._context = parts.context

    def start(self, path: Path) -> None:
        """Start a due step, unless its frame is closed or stopping."""
        context = self._context
        frame_path = path.parent
        frame = context.frame(frame_path)
        if frame is None or frame.outcome is not None or path.step in frame.steps:
            return
        if _is_full(frame, context.program.flows[frame.block]):
            return  # it is due again when another step closes
        context.work += WORK_OF_A_START
        at = context.locate(path)
        record = StepRecord(status=Status.RUNNING, start_time=context.now)
        context.put_frame(frame_path, replace(frame, steps={**frame.steps, path.step: record}))
        context.observer.started(path, context.now)
        try:
            if at.compiled.when is not None and self._parts.evaluation.of_step(at, at.compiled.when) is not True:
                self.close(path, SKIPPED)
            elif at.compiled.loop is not None:
                self._parts.loops.start(at)
            else:
                self._parts.tasks.start(path)
        except StepError as error:
            self.close(path, failed(error.failure))

    def cancel(self, path: Path) -> None:
        """Cancel a step that is running."""
        if self._context.loop(path) is not None:
            self._parts.loops.stop(path, CANCELLED)
        elif self._context.task(path) is not None:
            self._parts.tasks.stop(path, CANCELLED)

    def close(self, path: Path, outcome: Outcome) -> None:
        """Record the outcome of a step, and enqueue the steps that need it or close its frame."""
        context = self._context
        context.observer.closed(path, outcome, context.now)
        frame_path = path.parent
        frame = context.memory.frames[frame_path.text]
        flow = context.program.flows[frame.block]
        record = replace(
            frame.steps[path.step],
            status=outcome.status,
            end_time=context.now,
            output=outcome.output if path.step in flow.kept else None,
            artifacts=outcome.artifacts if path.step in flow.kept else None,
        )
        frame = replace(frame, steps={**frame.steps, path.step: record})
        context.put_frame(frame_path, frame)
        if outcome.status is Status.FAILED and frame.outcome is None:
            self._parts.frames.stop(frame_path, outcome)
            return
        if frame.outcome is None:
            candidates = flow.dependants[path.step] if flow.max_concurrency is None else flow.by_name
            for other in candidates:
                needs = flow.by_name[other].needs
                if other not in frame.steps and all(_is_closed(frame.steps.get(need)) for need in needs):
                    context.enqueue([frame_path.child(other)])
        self._parts.frames.close_if_done(frame_path)


def _is_full(frame: Frame, flow: Flow) -> bool:
    """Whether no other step of a frame may run now."""
    most = flow.max_concurrency
    return most is not None and sum(each.status is Status.RUNNING for each in frame.steps.values()) >= most


def _is_closed(record: StepRecord | None) -> bool:
    return record is not None and record.status is not Status.RUNNING
