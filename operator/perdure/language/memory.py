"""The memory of the interpreter between two events; it is stored with the run.

Attributes may be renamed, but not their names in the stored JSON: the next version reads open runs. Keys of maps and entries of
lists that identify open tasks, steps, loops, or frames are paths (`perdure.language.step_paths`). Decisions look up maps by path
and never iterate over them, because the API server returns their keys in a different order.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import field

from perdure.api.stored import StoredStruct
from perdure.engine.failures import Failure


class Status(StrEnum):
    """Status of a step. A step that has not started has none."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    SKIPPED = "Skipped"


class Outcome(StoredStruct, frozen=True, kw_only=True):
    """The outcome of a task, step, loop, or frame: Succeeded, Failed, Cancelled, or Skipped."""

    status: Status
    output: Any = None
    artifacts: Any = None
    """References to the output artifacts of an activity, by name; of a loop, a list of them. None if there are none."""
    failure: Failure | None = None


CANCELLED = Outcome(status=Status.CANCELLED)
SKIPPED = Outcome(status=Status.SKIPPED)


def succeeded(output: Any = None, artifacts: Any = None) -> Outcome:
    """A successful outcome."""
    return Outcome(status=Status.SUCCEEDED, output=output, artifacts=artifacts)


def failed(failure: Failure) -> Outcome:
    """A failed outcome."""
    return Outcome(status=Status.FAILED, failure=failure)


class Failures(StoredStruct, frozen=True, kw_only=True):
    """The failures of a list of steps or a loop that did not stop at the first one."""

    kept: tuple[Failure, ...]
    """The failures in the order in which they happened: the first one whole, others shortened, as far as they fit."""
    count: int
    """Number of all failures."""


class StepRecord(StoredStruct, frozen=True, kw_only=True):
    """The record of a step: the value of `steps.<name>` in expressions."""

    status: Status
    start_time: datetime
    end_time: datetime | None = None
    output: Any = None
    """The output, kept only if an expression may still read it."""
    artifacts: Any = None
    """The output artifacts, kept only if an expression may still read them."""


class Frame(StoredStruct, frozen=True, kw_only=True):
    """A list of steps that is running: the main one, or that of a block."""

    block: str = ""
    """Name of the block; empty for the main steps."""
    branch: str = ""
    """The branch of a parallel step that it belongs to."""
    depth: int = 0
    params: Any = None
    caught: Failure | None = None
    """The failure that the block handles, if a `catch` calls it."""
    steps_timeout: timedelta | None = None
    """Its `stepsTimeout` while the timer is running."""
    failures: Failures | None = None
    """The failures of its steps if it continues, or lets running steps finish, after a failure."""
    services: dict[str, Any] | None = None
    """The addresses of its services that are ready, by name; None if it has no services, or they have been stopped."""
    lost_services: int = 0
    """How many pods of services were lost before they were ready, and were replaced."""
    steps: dict[str, StepRecord] = {}
    outcome: Outcome | None = field(default=None, name="ending")
    """Set when the frame is being stopped: it closes with this outcome once its running steps have closed."""


class Stage(StrEnum):
    """The running part of a task."""

    ON_START = "OnStart"
    LIMITS = "Limits"
    BODY = "Body"
    CATCH = "Catch"
    ON_END = "OnEnd"


class Task(StoredStruct, frozen=True, kw_only=True):
    """A step that is running, or one item of it."""

    stage: Stage = Stage.BODY
    timed: bool = False
    """Whether the timer of its `timeout` is running."""
    held: bool = False
    """Whether it holds its WorkflowLimits."""
    outcome: Outcome | None = field(default=None, name="ending")
    """Set when the task is being stopped: it closes with this outcome once its action has closed."""
    size: int = 0
    """Bytes of input that are kept while the task runs."""
    branches: dict[str, Outcome] = {}
    """The branches of a parallel step that have closed."""
    result: Outcome | None = None
    """The outcome of the step while its `onEnd` runs."""
    note: str = ""
    """A message for users while the task waits."""
    limits: dict[str, timedelta] = {}
    """The values of timeouts that are expressions: `timeout` of the step, `waitTimeout` of its wait."""


class ForEachLoop(StoredStruct, frozen=True, kw_only=True):
    """A `forEach` that is running."""

    items: list[Any] | None = None
    """The items; None if they are consecutive integers that begin with `first`."""
    first: int = 0
    count: int
    next: int = 0
    """The first item that has not started."""
    open: int = 0
    outputs: dict[str, Any] = {}
    """The outputs by decimal index, without null values; only if an expression may read them."""
    artifacts: dict[str, Any] = {}
    """The output artifacts by decimal index."""
    size: int = 0
    """Bytes of the outputs and artifacts."""
    failures: Failures | None = None
    """The failures of its items if it continues, or lets running items finish, after a failure. Then it keeps no outputs."""
    outcome: Outcome | None = field(default=None, name="ending")
    """Set when the loop is being stopped: it closes with this outcome once its open items have closed."""

    def item(self, index: int) -> Any:
        """One of the items."""
        return self.first + index if self.items is None else self.items[index]


class Compensation(StoredStruct, frozen=True, kw_only=True):
    """The compensation of a step that has completed. Its input was evaluated when the step completed."""

    path: str
    """The path of the task of the step."""
    block: str
    """The block that contains the step."""
    depth: int = 0
    input: Any = None
    timeouts: dict[str, timedelta] = {}
    """The values of timeouts of the activity that are expressions, by Python name; evaluated with the input."""


class BufferedSignal(StoredStruct, frozen=True, kw_only=True):
    """A received signal that was not consumed yet."""

    name: str
    input: Any = None
    identity: str = ""
    principal: str = ""
    time: datetime


class Closing(StoredStruct, frozen=True, kw_only=True):
    """The state after the main steps, while compensations and handlers run."""

    outcome: Outcome = field(name="ending")
    """Outcome of the main steps."""
    compensating: Compensation | None = field(default=None, name="undoing")
    """The running compensation."""
    handled: bool = False
    """Whether `onCancel` or `onFailure` has started or does not apply."""
    finalized: bool = False
    """Whether `finally` has started or is not defined."""
    suppressed: tuple[Failure, ...] = ()
    """Failures of compensations and handlers."""


class Memory(StoredStruct, frozen=True, kw_only=True):
    """The state of a run in its program."""

    frames: dict[str, Frame] = {}
    tasks: dict[str, Task] = {}
    loops: dict[str, ForEachLoop] = {}
    vars: dict[str, Any] = {}
    signals: tuple[BufferedSignal, ...] = ()
    signal_waiters: tuple[str, ...] = field(default=(), name="listeners")
    """Tasks that wait for a signal, in the order in which their waits started."""
    condition_waiters: tuple[str, ...] = field(default=(), name="watchers")
    """Tasks that wait for a condition, in the order in which their waits started."""
    blocked_loops: tuple[str, ...] = field(default=(), name="hungry")
    """Loops whose next items wait because too many tasks are open."""
    compensations: tuple[Compensation, ...] = field(default=(), name="undo")
    """The compensations; the newest is last."""
    closing: Closing | None = None
    stopped: bool = False
    """Whether the run must stop: no compensations run, and `finally` is the only handler that runs."""
    continue_as_new_suggested: bool = field(default=False, name="suggested")

    # Set if the last decision was split:
    agenda: tuple[str, ...] = ()
    """The due work, in order; see `execution.context`."""
    now: datetime | None = None
    """The time of the event that is being decided."""


def load_memory(memory: Any) -> Memory:
    """Load the memory of a run from None before the first decision, or from plain JSON after a restart."""
    if isinstance(memory, Memory):
        return memory
    return Memory() if memory is None else msgspec.convert(memory, Memory)
