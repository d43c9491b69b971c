"""The data of one decision, and what all its parts do: read and change the memory, enqueue work, evaluate, and set timers.

An `Observer`, such as a trace, follows the execution.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import msgspec

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.failures import Failure
from perdure.language import coercion
from perdure.language.cel import Meter
from perdure.language.cel.limits import BUDGET
from perdure.language.expressions import ExpressionError, Template
from perdure.language.memory import Closing, ForEachLoop, Frame, Memory, Outcome, Status, StepRecord, Task
from perdure.language.program import CompiledStep, Flow, Program, Timeout
from perdure.language.step_failures import EXPRESSION_ERROR, StepError, application, as_variable
from perdure.language.step_paths import Path


class Observer(Protocol):
    """Receives the starts and ends of steps, items, frames, and compensations."""

    def started(self, path: Path, now: datetime, block: str = "") -> None:
        """Something starts; with a block, that block does."""

    def item_started(self, path: Path, now: datetime, item: Any) -> None:
        """An item of a loop starts; `started` follows."""

    def activity_completed(self, path: Path, output: Any) -> None:
        """The activity of a step has completed."""

    def failed(self, path: Path, failure: Failure) -> None:
        """The action of a step has failed; a `catch` may handle it."""

    def closed(self, path: Path, outcome: Outcome, now: datetime) -> None:
        """Something has closed."""

    def discarded(self, path: Path) -> None:
        """A branch is discarded before any step of it has started."""


class NullObserver:
    """Ignores everything."""

    def started(self, path: Path, now: datetime, block: str = "") -> None:
        """Ignore it."""

    def item_started(self, path: Path, now: datetime, item: Any) -> None:
        """Ignore it."""

    def activity_completed(self, path: Path, output: Any) -> None:
        """Ignore it."""

    def failed(self, path: Path, failure: Failure) -> None:
        """Ignore it."""

    def closed(self, path: Path, outcome: Outcome, now: datetime) -> None:
        """Ignore it."""

    def discarded(self, path: Path) -> None:
        """Ignore it."""


WORK: Final = 200_000
"""Units of work (see `cel.limits`) after which a decision is split, so that other runs get their turn."""
WORK_OF_A_START: Final = 300
"""Units of work for starting a step or an item."""

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

    def __init__(
        self, program: Program, scope: Mapping[str, Any], memory: Memory, now: datetime, observer: Observer
    ) -> None:
        self.program = program
        self.scope = scope
        self.memory = memory
        self.now = now
        self.observer = observer
        self.event: ev.AnyEvent | None = None
        """The event that is being decided; None when a split decision continues."""
        self.commands: list[cmd.Command] = []
        self.agenda: list[str] = list(memory.agenda)
        """The due work, in order: the paths of steps to start, and of loops that start more items."""
        self.conditions_stale = True
        """Whether conditions that tasks wait for must be evaluated again."""
        self.work = 0
        """Units of work so far."""
        self.ended: tuple[Path, Outcome] | None = None
        """A frame that nothing in the program has called, and its outcome: the closing sequence continues after it."""
        self.closed = False
        """Whether the last command was emitted."""

    def finish(self, command: cmd.ClosingCommand) -> None:
        """Emit the last command."""
        self.commands.append(command)
        self.closed = True

    # The memory

    def update(self, **changes: Any) -> None:
        """Change fields of the memory."""
        self.memory = replace(self.memory, **changes)

    def locate(self, path: Path) -> Location:
        """Find the step of a path, whose frame is open."""
        flow = self.program.flows[self.memory.frames[path.frame].block]
        return Location(path, flow, flow.by_name[path.step])

    def frame(self, path: Path) -> Frame | None:
        """The frame at a path, if it is open."""
        return self.memory.frames.get(path.text)

    def put_frame(self, path: Path, frame: Frame | None) -> None:
        """Record a frame; None removes it."""
        self.update(frames=_with(self.memory.frames, path.text, frame))

    def task(self, path: Path) -> Task | None:
        """The task at a path, if it is open."""
        return self.memory.tasks.get(path.text)

    def put_task(self, path: Path, task: Task | None) -> None:
        """Record a task; None removes it."""
        self.update(tasks=_with(self.memory.tasks, path.text, task))

    def change_task(self, path: Path, **changes: Any) -> None:
        """Change fields of an open task."""
        self.put_task(path, replace(self.memory.tasks[path.text], **changes))

    def loop(self, path: Path) -> ForEachLoop | None:
        """The loop at a path, if it is open."""
        return self.memory.loops.get(path.text)

    def put_loop(self, path: Path, loop: ForEachLoop | None) -> None:
        """Record a loop; None removes it."""
        self.update(loops=_with(self.memory.loops, path.text, loop))

    # The agenda

    def enqueue(self, paths: Iterable[Path]) -> None:
        """Start these steps, or more items of these loops, after all work that is already due."""
        self.agenda += [path.text for path in paths]

    def enqueue_first(self, path: Path) -> None:
        """Start items of this loop before all work that is already due."""
        self.agenda.insert(0, path.text)

    # Expressions: their work is charged to the decision

    def evaluate(self, at: Location, template: Template | None, /, **extra: Any) -> Any:
        """Evaluate a template of a step or item; None without a template. Raises StepError."""
        if template is None:
            return None
        loop = at.compiled.loop
        if at.path.index is not None and loop is not None:
            running = self.memory.loops[at.path.loop.text]
            extra = {loop.variable: running.item(at.path.index), "index": at.path.index, **extra}
        return self.evaluate_in_frame(template, at.path.frame, at.where, **extra)

    def evaluate_in_frame(self, template: Template, frame: str, where: str, /, **extra: Any) -> Any:
        """Evaluate a template in a frame; `where` is for messages. Raises StepError."""
        meter = Meter()
        try:
            return template.evaluate(self._names(template, frame, extra), meter)
        except ExpressionError as error:
            raise StepError(application(EXPRESSION_ERROR, f"{where}: {error}")) from error
        finally:
            self.work += BUDGET - meter.left

    def _names(self, template: Template, frame_path: str, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the names; costly values are only built if the template reads them."""
        reads, memory = template.references, self.memory
        frame = memory.frames.get(frame_path) or Frame()
        names = {**self.scope, "now": self.now, "vars": memory.vars, "params": frame.params}
        if "run" in reads.roots:
            names["run"] = {
                **self.scope["run"],
                "continueAsNewSuggested": memory.continue_as_new_suggested,
                **outcome_as_json(memory.closing),
            }
        if "steps" in reads.roots:
            records = frame.steps
            wanted = sorted(records) if reads.every_step else reads.steps
            names["steps"] = {name: step_as_json(records[name]) for name in wanted if name in records}
            self.work += 20 * len(names["steps"])
        if "services" in reads.roots:
            main = memory.frames.get("") or Frame()
            names["services"] = {**(main.services or {}), **(frame.services or {})}
        if "signals" in reads.roots:
            buffered: dict[str, list[Any]] = {name: [] for name in reads.signals}
            for signal in memory.signals:
                buffered.setdefault(signal.name, []).append(signal.input)
            names["signals"] = buffered
            self.work += 10 * len(memory.signals)
        return {**names, **extra}

    # Timers, and timeouts from expressions

    def start_timer(self, timer: Path, length: timedelta, *, restarts: bool = False) -> None:
        """Start a timer; `restarts`: whether it starts again if the run is reset."""
        self.commands.append(
            cmd.StartTimer(timer_id=timer.text, start_to_fire_timeout=max(length, timedelta(0)), restarts=restarts)
        )

    def cancel_timer(self, timer: Path) -> None:
        """Cancel a running timer."""
        self.commands.append(cmd.CancelTimer(timer_id=timer.text))

    def timeout(self, at: Location, key: str, limit: Timeout) -> timedelta | None:
        """Return the timeout of a starting task, and record the value of an expression under `key`. Raises StepError."""
        if limit is None or isinstance(limit, timedelta):
            return limit
        length = coercion.computed(at.where, "timeout", self.evaluate(at, limit))
        task = self.memory.tasks[at.path.text]
        self.put_task(at.path, replace(task, limits={**task.limits, key: length}))
        return length

    def recorded_timeout(self, path: Path, key: str, timeout: Timeout) -> timedelta:
        """Return the timeout of a started task, for messages."""
        if isinstance(timeout, timedelta):
            return timeout
        return self.memory.tasks[path.text].limits.get(key, timedelta(0))


def _with(entries: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    if value is not None:
        return {**entries, path: value}
    return {key: entry for key, entry in entries.items() if key != path}


# The values of the memory that expressions can read


_PHASES: Final = {Status.SUCCEEDED: "Completed", Status.FAILED: "Failed", Status.CANCELLED: "Cancelled"}
"""`run.status` by the outcome of the main steps: the phases of a run."""


def step_as_json(record: StepRecord) -> dict[str, Any]:
    """The value of `steps.<name>`."""
    return {
        "status": record.status.value,
        "startTime": record.start_time,
        "endTime": record.end_time,
        "output": record.output,
        "artifacts": {} if record.artifacts is None else record.artifacts,
    }


def ended_as_json(outcome: Outcome) -> dict[str, Any]:
    """The value of `step` in the input of `onEnd`: the outcome of the step."""
    failure = outcome.failure
    return {
        "status": outcome.status.value,
        "output": outcome.output,
        **({} if outcome.artifacts is None else {"artifacts": outcome.artifacts}),
        "failure": None if failure is None else as_variable(failure, []),
    }


def outcome_as_json(closing: Closing | None) -> dict[str, Any]:
    """The values of `run.status` and `run.failure`: the outcome of the main steps, for compensations and handlers."""
    if closing is None:
        return {"status": "Running", "failure": None}
    failure = closing.outcome.failure if closing.outcome.status is Status.FAILED else None
    if failure is not None:
        failure = msgspec.structs.replace(failure, suppressed=(*failure.suppressed, *closing.suppressed))
    return {
        "status": _PHASES[closing.outcome.status],
        "failure": None if failure is None else as_variable(failure, []),
    }
