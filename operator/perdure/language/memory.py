"""Where a run stands in its program: what the interpreter keeps between two events, stored with the run.

Everything that is open has a path, which people see too: ``hotel``, an item ``rooms[3]``, a step of a called block
``rooms[3]/ask``, a branch of a parallel step ``race.fast/try``, the block of a `catch` ``rooms[3]:catch/mend``, a compensation
``hotel:compensate``, a handler ``:finally/report``.

Objects are looked up by path and never walked through: the API server gives their keys back in another order.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from perdure.engine.failures import Failure


class Status(StrEnum):
    """How a step stands. A step that has not begun has none."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    SKIPPED = "Skipped"


class Ending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How something ends, or will when what is open in it has stopped: Succeeded, Failed or Cancelled."""

    status: Status
    output: Any = None
    failure: Failure | None = None


CANCELLED = Ending(status=Status.CANCELLED)


def succeeded(output: Any = None) -> Ending:
    """A good end."""
    return Ending(status=Status.SUCCEEDED, output=output)


def failed(failure: Failure) -> Ending:
    """A bad end."""
    return Ending(status=Status.FAILED, failure=failure)


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What is remembered of a step: what expressions see of it."""

    status: Status
    start_time: datetime
    end_time: datetime | None = None
    output: Any = None
    """Kept only where an expression may still ask for it."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A list of steps that is being run: the main one, or a block at its path."""

    block: str = ""
    """Empty for the main steps."""
    branch: str = ""
    """Which branch of a parallel step it is."""
    depth: int = 0
    params: Any = None
    caught: Failure | None = None
    """The failure that the block handles, where a `catch` calls it."""
    steps: dict[str, StepRecord] = {}
    ending: Ending | None = None
    """Set when it is being stopped: it ends so when its open steps have ended."""


class Stage(StrEnum):
    """Which part of a task is open."""

    BODY = "Body"
    CATCH = "Catch"


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A step that runs, or one item of it."""

    stage: Stage = Stage.BODY
    timed: bool = False
    """The timer of its `timeout` runs."""
    ending: Ending | None = None
    """Set when it is being stopped: it ends so when its body has."""
    size: int = 0
    """Bytes of input that are kept while it runs."""
    branches: dict[str, Ending] = {}
    """The branches of a parallel step that have ended."""
    limits: dict[str, timedelta] = {}
    """The timeouts that expressions gave, by the key of their template."""


class ForEachLoop(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A `forEach` that runs."""

    items: list[Any] | None = None
    """None where they are numbers in a row, which begin with `first`."""
    first: int = 0
    count: int
    next: int = 0
    """The first item that has not begun."""
    open: int = 0
    outputs: dict[str, Any] = {}
    """By index, decimal; only where an expression may ask for them, and without those that are null."""
    size: int = 0
    """Bytes of the outputs."""
    ending: Ending | None = None

    def item(self, index: int) -> Any:
        """One of the items."""
        return self.first + index if self.items is None else self.items[index]


class Undo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How a completed step is undone. Its input was computed when the step completed."""

    path: str
    """Of the step's task."""
    block: str
    """The block in which the step stands."""
    depth: int = 0
    input: Any = None
    timeouts: dict[str, timedelta] = {}
    """Those of the activity that expressions gave, by Python name; computed together with the input."""


class BufferedSignal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A signal that was received and not consumed."""

    name: str
    input: Any = None
    identity: str = ""
    time: datetime


class Closing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The main steps have ended: compensations and handlers run."""

    ending: Ending
    """How the main steps ended."""
    undoing: Undo | None = None
    """The compensation that runs."""
    handled: bool = False
    """`onCancel` or `onFailure` has begun, or there is none."""
    finalized: bool = False
    """`finally` has begun, or there is none."""
    suppressed: tuple[Failure, ...] = ()
    """Failures of compensations and handlers."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Where a run stands in its program."""

    frames: dict[str, Frame] = {}
    tasks: dict[str, Task] = {}
    loops: dict[str, ForEachLoop] = {}
    vars: dict[str, Any] = {}
    signals: tuple[BufferedSignal, ...] = ()
    listeners: tuple[str, ...] = ()
    """Tasks that wait for a signal, the longest first."""
    watchers: tuple[str, ...] = ()
    """Tasks that wait until a condition holds, the longest first."""
    hungry: tuple[str, ...] = ()
    """Loops with items that wait because too much is open."""
    undo: tuple[Undo, ...] = ()
    """Compensations, the newest last."""
    closing: Closing | None = None
    stopped: bool = False
    """The run was asked to stop: of its handlers only `finally` runs."""
    suggested: bool = False
    """Continue-as-new is suggested."""

    # Where a decision was cut short:
    agenda: tuple[str, ...] = ()
    """Paths of the steps that are to begin, and of the loops that may begin more items."""
    now: datetime | None = None
    """The time of the event that is being decided."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A step that has begun, or a part of one: an item, a branch, the block of a `catch`, a compensation, a handler."""

    start: datetime
    end: datetime | None = None
    """None while it is open."""
    status: Status = Status.RUNNING
    block: str = ""
    """The block that it runs; empty for none."""
    failure: Failure | None = None
    """Why its body has failed; also where a `catch` has handled that."""
    remark: str = ""
    """What is doubtful about its result."""


def load_memory(memory: Any) -> Memory:
    """The memory, however it comes: None at first, plain JSON after a restart."""
    if isinstance(memory, Memory):
        return memory
    return Memory() if memory is None else msgspec.convert(memory, Memory)


def step_path(frame: str, name: str) -> str:
    """The path of a step in a frame."""
    return f"{frame}/{name}" if frame else name


def parse_path(path: str) -> tuple[str, str, int | None]:
    """Frame, step and item of a task's path."""
    frame, _, last = path.rpartition("/")
    name, bracket, index = last.partition("[")
    return frame, name, int(index[:-1]) if bracket else None
