"""The data of one decision: the program, the memory, the commands, and the agenda."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.language.execution.observer import Observer
from perdure.language.memory import ForEachLoop, Frame, Memory, Task
from perdure.language.program import CompiledStep, Flow, Program
from perdure.language.step_paths import Path

WORK: Final = 200_000
"""Units of work (see `cel.limits`) after which a decision is split, so that other runs get their turn."""
WORK_OF_A_START: Final = 300
"""Units of work for starting a step or an item."""
CONDITION: Final = "?"
"""Prefix of an agenda entry: evaluate the condition that this task waits for."""

replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True)
class Location:
    """A step or task, and its place in the program."""

    path: Path
    flow: Flow
    compiled: CompiledStep

    @property
    def where(self) -> str:
        """The location, for messages."""
        return f"step `{self.path}`"


class DecisionContext:
    """The state of one decision."""

    commands: list[cmd.Command]
    event: ev.AnyEvent | None
    """The event that is being decided; None when a split decision continues."""

    def __init__(
        self, program: Program, scope: Mapping[str, Any], memory: Memory, now: datetime, observer: Observer
    ) -> None:
        self.program = program
        self.scope = scope
        self.memory = memory
        self.now = now
        self.observer = observer
        self.commands = []
        self.agenda: list[str] = list(memory.agenda)
        self.work = 0
        self.closed = False
        """Whether the last command was emitted."""
        self.event = None
        self.conditions_stale = True
        """Whether conditions that tasks wait for must be evaluated again."""

    def update(self, **changes: Any) -> None:
        """Change fields of the memory."""
        self.memory = replace(self.memory, **changes)

    def locate(self, path: Path) -> Location:
        """Find the step of a path, whose frame is open."""
        flow = self.program.flows[self.memory.frames[path.frame].block]
        return Location(path, flow, flow.by_name[path.step])

    # Entries of the memory; None removes one

    def frame(self, path: Path) -> Frame | None:
        """The frame at a path, if it is open."""
        return self.memory.frames.get(path.text)

    def put_frame(self, path: Path, frame: Frame | None) -> None:
        """Record a frame."""
        self.update(frames=_with(self.memory.frames, path.text, frame))

    def task(self, path: Path) -> Task | None:
        """The task at a path, if it is open."""
        return self.memory.tasks.get(path.text)

    def put_task(self, path: Path, task: Task | None) -> None:
        """Record a task."""
        self.update(tasks=_with(self.memory.tasks, path.text, task))

    def loop(self, path: Path) -> ForEachLoop | None:
        """The loop at a path, if it is open."""
        return self.memory.loops.get(path.text)

    def put_loop(self, path: Path, loop: ForEachLoop | None) -> None:
        """Record a loop."""
        self.update(loops=_with(self.memory.loops, path.text, loop))

    # The agenda

    def enqueue(self, paths: Iterable[Path]) -> None:
        """Start these steps, or more items of these loops, after all work that is already due."""
        self.agenda += [path.text for path in paths]

    def enqueue_first(self, path: Path) -> None:
        """Start items of this loop before all work that is already due."""
        self.agenda.insert(0, path.text)


def _with(entries: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    if value is not None:
        return {**entries, path: value}
    return {key: entry for key, entry in entries.items() if key != path}
