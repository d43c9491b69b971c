"""The steps of a run from its memory, as a tree. The memory does not keep the steps of closed blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.language.memory import Memory, Status
from perdure.language.program import (
    Action,
    CallBlock,
    CompiledStep,
    ContinueAsNew,
    Fail,
    Parallel,
    Program,
    Return,
    RunActivity,
    RunChild,
    SetVariables,
    SignalRun,
    Sleep,
    Switch,
    WaitForSignal,
    WaitUntil,
)
from perdure.language.step_paths import Path

PENDING, WAITING, STOPPED, NOT_REACHED = "Pending", "Waiting", "Stopped", "NotReached"
"""Status of a step in addition to those that the memory records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step, or an open part of a step: an item, a branch, a catch, a compensation, a handler."""

    path: str
    name: str
    kind: str
    target: str = ""
    """The target of the step: an activity, a block, a signal, or a Workflow."""
    status: str
    start: datetime | None = None
    end: datetime | None = None
    closed_items: int = 0
    """Number of closed items of a running loop."""
    items: int | None = None
    """Number of items of a running loop; None for other steps."""
    steps: tuple["StepView", ...] = ()
    """The parts of an open step."""

    def walk(self) -> "Iterator[StepView]":
        """Yield the step and all its parts."""
        yield self
        for step in self.steps:
            yield from step.walk()


def step_views(program: Program, memory: Memory, *, closed: bool) -> tuple[StepView, ...]:
    """View the steps of a run.

    Args:
        program: The program of the run.
        memory: The state of the run.
        closed: Whether the run has closed.

    Returns:
        The main steps in the order of the definition, then the running handlers.
    """
    return tuple(_Viewer(program, memory, closed=closed).main())


class _Viewer:
    def __init__(self, program: Program, memory: Memory, *, closed: bool) -> None:
        self._program = program
        self._memory = memory
        self._closed = closed
        self._waiting = {*memory.signal_waiters, *memory.condition_waiters}
        self._frames: dict[str, list[Path]] = {}
        """The open frames, by their task."""
        for text in sorted(memory.frames):
            if text:
                path = Path.parse(text)
                self._frames.setdefault(text.removesuffix(path.part), []).append(path)

    def main(self) -> Iterator[StepView]:
        yield from self._steps("", "")
        for path in self._frames.get("", ()):  # without a task: handlers
            yield self._part(path)

    def _steps(self, frame: str, block: str) -> Iterator[StepView]:
        base = Path.parse(frame) if frame else Path("")
        for step in self._program.flows[block].steps:
            yield self._step(base.child(step.name), frame, step)

    def _step(self, path: Path, frame: str, step: CompiledStep) -> StepView:
        known = self._memory.frames.get(frame)
        record = known.steps.get(step.name) if known is not None else None
        kind, target = kind_and_target(step.action)
        if record is None:
            status = NOT_REACHED if self._closed else PENDING
            return StepView(path=path.text, name=step.name, kind=kind, target=target, status=status)
        loop = self._memory.loops.get(path.text)
        return StepView(
            path=path.text,
            name=step.name,
            kind=kind,
            target=target,
            status=self._status(path.text, record.status, step.action),
            start=record.start_time,
            end=record.end_time,
            closed_items=loop.next - loop.open if loop is not None else 0,
            items=loop.count if loop is not None else None,
            steps=tuple(self._items(path.text, step) if loop is not None else self._parts(path.text)),
        )

    def _status(self, path: str, recorded: Status, action: Action) -> str:
        if recorded is not Status.RUNNING:
            return recorded.value
        if self._closed:
            return STOPPED
        return WAITING if path in self._waiting or isinstance(action, Sleep) else recorded.value

    def _items(self, path: str, step: CompiledStep) -> Iterator[StepView]:
        """Return the open items of a loop."""
        found = (Path.parse(text) for text in self._memory.tasks if text.startswith(f"{path}["))
        items = {each.index: each for each in found if each.text == f"{path}[{each.index}]" and each.index is not None}
        kind, target = kind_and_target(step.action)
        for index in sorted(items):
            text = items[index].text
            yield StepView(
                path=text,
                name=f"[{index}]",
                kind=kind,
                target=target,
                status=self._status(text, Status.RUNNING, step.action),
                steps=tuple(self._parts(text)),
            )

    def _parts(self, path: str) -> Iterator[StepView]:
        """Return the open parts of a step: the steps of the block that it calls, and its branches with their parts."""
        for frame in self._frames.get(path, ()):
            if frame.part:
                yield self._part(frame)
            else:
                yield from self._steps(frame.text, self._memory.frames[frame.text].block)

    def _part(self, path: Path) -> StepView:
        block = self._memory.frames[path.text].block
        return StepView(
            path=path.text,
            name=path.part[1:],
            kind="call",
            target=block,
            status=STOPPED if self._closed else Status.RUNNING.value,
            steps=tuple(self._steps(path.text, block)),
        )


def kind_and_target(action: Action) -> tuple[str, str]:  # noqa: C901, PLR0911, PLR0912 (one case for each kind)
    """Return the kind of a step, as in its definition, and its target."""
    match action:
        case RunActivity():
            return "activity", action.call.name
        case Sleep():
            return "sleep", ""
        case WaitForSignal():
            return "waitForSignal", action.name
        case WaitUntil():
            return "waitUntil", ""
        case RunChild():
            reference = action.call.workflow
            return "childWorkflow", reference.name or reference.type or ""
        case CallBlock():
            return "call", action.block
        case Switch():
            return "switch", ""
        case Parallel():
            return "parallel", ""
        case SetVariables():
            return "set", ""
        case SignalRun():
            return "signal", ""
        case ContinueAsNew():
            return "continueAsNew", ""
        case Fail():
            return "fail", action.type
        case Return():
            return "return", ""


def open_steps(views: Sequence[StepView]) -> Iterator[StepView]:
    """Return the innermost open steps of a run."""
    for view in views:
        inner = list(open_steps(view.steps))
        if inner:
            yield from inner
        elif view.status in {Status.RUNNING.value, WAITING}:
            yield view
