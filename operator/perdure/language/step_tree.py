"""The tree of the steps of a run, from its definition, the memory of its interpreter, and a trace of its decisions. Pure.

`describe`, the console, simulations, and queries show this tree. Each source knows what the others do not:

- The definition has the order of steps, their kinds, and the blocks that they run.
- The memory has the steps of open blocks, and what is open. It does not keep blocks that have ended.
- The trace (`Tracer`) has how every step started and ended, but a replay of the whole history is needed to make it.

Without a trace, recorded events can stand in for it (`recorded`): those of activities, timers, children, and signals. They are
needed if the history cannot be replayed, because a part of it is missing or a different version decided it. Then the outcome of
a block is inferred from its parts, and steps without events are omitted.

Reading is lenient: definition and memory may come from a newer operator, or lack fields of an older one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from perdure.api.json_values import Json, integer, mapping, mappings
from perdure.api.times import read_kubernetes_time
from perdure.engine.failures import Failure
from perdure.language.interpreter import Interpreter, RunScope
from perdure.language.memory import Outcome, Status
from perdure.language.program import Program, result_warning
from perdure.language.step_failures import matches, timeout
from perdure.language.step_paths import TIMEOUT, Path, limited


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
    label: str = ""
    """For an item of a loop, what names its value, such as `lr=0.1`; empty if its index says as much."""


class Tracer(Interpreter):
    """An interpreter that records how each step starts and closes."""

    def __init__(self, program: Program, run: RunScope, *, input: Any, start_time: datetime) -> None:  # noqa: A002
        self.trace: dict[str, TracedStep] = {}
        """The steps by path, in the order in which they started."""
        observer = _Recorder(program, self)
        super().__init__(program, run, input=input, start_time=start_time, observer=observer)


class _Recorder:
    """Records a trace; see `execution.context.Observer`."""

    def __init__(self, program: Program, tracer: Tracer) -> None:
        self._program = program
        self._tracer = tracer

    def started(self, path: Path, now: datetime, block: str = "") -> None:
        known = self._tracer.trace.get(path.text) or TracedStep(now)
        self._tracer.trace[path.text] = replace(known, block=block or known.block)

    def item_started(self, path: Path, now: datetime, item: Any) -> None:
        self._tracer.trace[path.text] = TracedStep(now, label=item_label(item, path.index or 0))

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


PENDING, WAITING, STOPPED, NOT_REACHED, COMPENSATED = "Pending", "Waiting", "Stopped", "NotReached", "Compensated"
"""States of a step in addition to those that the memory records."""
OPEN: Final = frozenset({"Running", "Scheduled", "BackingOff", "Waiting", "Paused", "CircuitOpen", "CancelRequested"})
"""The states of a step that has started and has not ended; those besides Running and Waiting are of activities."""

_MODIFIERS: Final = frozenset(
    {"name", "needs", "when", "forEach", "catch", "compensate", "timeout", "deadLetter", "limits", "onStart", "onEnd"}
)
_HANDLERS: Final = ("onCancel", "onFailure", "finally")
_MAX_ITEMS: Final = 10_000
"""Maximum number of items of a loop that are counted though they have ended without a trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNode:
    """A step of the definition, or a part of one: an item, a branch, a failure handler, or a compensation."""

    path: str
    """Its path in the run, such as `rooms[3]/ask`."""
    name: str
    """Its name within its parent: `rooms`, `[3]`, `fast`, `catch`, `compensate`."""
    part: str = ""
    """Which part of a step it is: `item`, `branch`, or `handler`; empty for a step."""
    label: str = ""
    """For an item of a loop, what names its value, such as `lr=0.1`; empty if its index says as much, or if it is not known."""
    kind: str
    """Its kind as in the definition; empty if the definition does not have the step."""
    target: str
    """Its target: the activity, the block, or the duration of a sleep."""
    state: str
    start: datetime | None = None
    end: datetime | None = None
    count: int | None = None
    """Number of items of a step with `forEach`, if known."""
    closed_items: int | None = None
    """Number of ended items of a running loop; None for other steps."""
    timed_out: bool = False
    """Whether recorded events say that its `timeout` has ended it."""
    failure: Failure | None = None
    """The failure of its action in the trace, even if a `catch` has handled it."""
    remark: str = ""
    """A warning about a doubtful result."""
    steps: "tuple[StepNode, ...]" = ()
    """Its parts and nested steps."""

    def walk(self) -> "Iterator[StepNode]":
        """Yield the step and every nested step."""
        yield self
        for step in self.steps:
            yield from step.walk()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPaths:
    """The open work of a run, by the paths of its steps."""

    activities: Mapping[str, str] = field(default_factory=dict)
    """The states of activities."""
    timers: Collection[str] = ()
    children: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """An activity, a timer, a child, or a signal according to recorded events, for runs without a trace."""

    start: datetime | None
    end: datetime | None
    ended: str | None
    """Its outcome: Succeeded, Failed, or Cancelled; None while it is open."""


def step_tree(
    definition: Json,
    memory: Json,
    trace: Mapping[str, TracedStep] | None = None,
    recorded: Mapping[str, Recorded] | None = None,
    work: OpenPaths | None = None,
    *,
    closed: bool,
    end: datetime | None = None,
    only_open: bool = False,
    over: bool = False,
) -> tuple[StepNode, ...]:
    """Build the tree of a run.

    Args:
        definition: The definition of the run.
        memory: The memory of its interpreter; empty if only the trace is known.
        trace: How its steps started and ended, by path; None if that is not known.
        recorded: What recorded events say, by path; the timer of a `timeout` has the path of the step with `:timeout`.
        work: The open work.
        closed: Whether the run has closed.
        end: When it closed.
        only_open: Whether parts that have ended are omitted: items, branches, and blocks.
        over: Whether nothing more will start, although the run has not closed, as at the end of a simulation.

    Returns:
        The main steps in the order of the definition, then steps that only the events have, then started handlers.
    """
    tree = _Tree(
        definition,
        memory,
        trace,
        recorded or {},
        work or OpenPaths(),
        closed=closed,
        end=end,
        only_open=only_open,
        over=over,
    )
    return tuple(tree.main())


class _Tree:
    def __init__(
        self,
        definition: Json,
        memory: Json,
        trace: Mapping[str, TracedStep] | None,
        recorded: Mapping[str, Recorded],
        work: OpenPaths,
        *,
        closed: bool,
        end: datetime | None,
        only_open: bool,
        over: bool,
    ) -> None:
        self.closed, self.end, self.only_open, self.over = closed, end, only_open, over
        self.definition = definition
        self.traced = trace is not None
        self.trace = trace or {}
        self.recorded = recorded
        self.work = work
        self.frames = mapping(memory.get("frames"))
        self.tasks = mapping(memory.get("tasks"))
        self.loops = mapping(memory.get("loops"))
        self.closing = closing = mapping(memory.get("closing"))
        self.undoing = mapping(closing.get("undoing")).get("path")
        self.undo = {self.undoing, *(each.get("path") for each in mappings(memory.get("undo")))}
        self.suppressed = [str(one.get("message")) for one in mappings(closing.get("suppressed"))]
        self.waiting = {path for key in ("listeners", "watchers") for path in memory.get(key) or ()}
        self.blocks = {
            str(each.get("name")): mappings(each.get("steps")) for each in mappings(definition.get("blocks"))
        }
        self.parts = self._parts()

    def _parts(self) -> dict[str, dict[str, None]]:
        """Return the parts of each frame that are known to have started, by its path."""
        parts: dict[str, dict[str, None]] = {}
        known: tuple[Iterable[str], ...] = (
            *(self.recorded, self.work.activities, self.work.timers, self.work.children),
            *(self.frames, self.tasks, self.loops, self.trace),
        )
        for path in dict.fromkeys(limited(each) for paths in known for each in paths):
            rest = path
            while rest:
                frame, _, last = rest.rpartition("/")
                if last in parts.setdefault(frame, {}):
                    break
                parts[frame][last] = None
                rest = frame
        return parts

    # Frames, steps, and their parts

    def main(self) -> Iterator[StepNode]:
        yield from self.services("")
        yield from self.frame("", mappings(self.definition.get("steps")), every=True)
        for name in _HANDLERS:
            if f":{name}" in self.parts.get("", {}):
                yield self.handler(name)

    def frame(self, path: str, steps: Sequence[Json], *, every: bool = False) -> Iterator[StepNode]:
        """Return the steps of a block; of an ended block, the known steps."""
        begun: dict[str, list[str]] = {}
        for part in self.parts.get(path, {}):
            begun.setdefault(Path.parse(part).step or part, []).append(part)
        named = {str(step.get("name")): step for step in steps}
        for name, definition in named.items():
            if every or path in self.frames or name in begun:
                yield self.step(path, name, definition, begun.get(name, ()))
        for name, parts in begun.items():
            if name not in named and not name.startswith(":"):
                yield self.step(path, name, {}, parts)

    def step(self, frame: str, name: str, definition: Json, begun: Sequence[str]) -> StepNode:
        path = f"{frame}/{name}" if frame else name
        record = mapping(mapping(mapping(self.frames.get(frame)).get("steps")).get(name))
        items = sorted({index for part in begun if (index := Path.parse(part).index) is not None})
        if not items and path not in self.loops and "forEach" not in definition:
            return self.task(path, name, definition, record)
        loop = mapping(self.loops.get(path))
        closed = max((integer(loop.get("next")) or 0) - (integer(loop.get("open")) or 0), 0) if loop else None
        if self.only_open:
            items = [index for index in items if f"{path}[{index}]" in self.tasks]
        elif loop:  # items that have ended without a trace are still counted
            items = sorted({*items, *range(min(integer(loop.get("next")) or 0, _MAX_ITEMS))})
        below = tuple(
            self.task(f"{path}[{i}]", f"[{i}]", definition, {}, part="item", unknown="Succeeded") for i in items
        )
        output = record.get("output")
        count = integer(loop.get("count")) if loop else len(output) if isinstance(output, list) else None
        count = count or (len(items) if items else None)
        kind, target = kind_and_target(definition)
        return self.node(
            path, name, kind, target, record, below, definition=definition, loop=bool(below), count=count, closed_items=closed
        )  # fmt: skip

    def task(
        self, path: str, name: str, definition: Json, record: Json, *, part: str = "", unknown: str = ""
    ) -> StepNode:
        kind, target = kind_and_target(definition)
        below = [
            *self.hook(path, "onStart", definition),
            *self.limits(path),
            *self.services(path),
            *self.body(path, kind, definition, record),
        ]
        if self.has_part(path, ":catch"):
            below.append(self.part(f"{path}:catch", "catch", self.block_at(f"{path}:catch", _only_handler(definition))))
        below += self.hook(path, "onEnd", definition)
        undo = self.compensation(path, mapping(definition.get("compensate")))
        if undo is not None:
            below.append(undo)
            unknown = unknown or "Succeeded"  # nothing else is compensated
        return self.node(
            path, name, kind, target, record, tuple(below), part=part, definition=definition, unknown=unknown
        )

    def part(self, path: str, name: str, block: str, record: Json | None = None, *, part: str = "handler") -> StepNode:
        """Return a part of a step that runs a block."""
        return self.node(path, name, "call", block, record or {}, tuple(self.block(path, block)), part=part)

    def hook(self, path: str, name: str, definition: Json) -> Iterator[StepNode]:
        """Return the block that runs before or after a step, once it has started."""
        if self.has_part(path, f":{name}"):
            block = str(mapping(definition.get(name)).get("block") or "")
            yield self.part(f"{path}:{name}", name, self.block_at(f"{path}:{name}", block))

    def limits(self, path: str) -> Iterator[StepNode]:
        """Return the wait of a step for its WorkflowLimits, once it has begun."""
        if self.has_part(path, ":limits"):
            yield self.node(f"{path}:limits", "limits", "limits", "", {}, (), part="handler")

    def services(self, path: str) -> Iterator[StepNode]:
        """Return the running services of a list of steps."""
        prefix = Path(path).run_service("").text
        for activity in self.work.activities:
            if activity.startswith(prefix):
                name = activity.removeprefix(prefix)
                yield self.node(activity, f"service {name}", "service", "", {}, (), part="handler")

    def body(self, path: str, kind: str, definition: Json, record: Json) -> Iterator[StepNode]:
        """Return the parts of a step that runs blocks."""
        if kind == "parallel":
            ended = mapping(mapping(self.tasks.get(path)).get("branches"))
            for branch in mappings(mapping(definition.get("parallel")).get("branches")):
                name, block = str(branch.get("name")), str(branch.get("block") or "")
                known = {"status": mapping(ended[name]).get("status")} if name in ended else {}
                gone = not self.only_open and (name in ended or name in mapping(record.get("output")))
                if gone or self.has_part(path, f".{name}"):
                    yield self.part(f"{path}.{name}", name, block, known, part="branch")
        elif path in self.parts:
            yield from self.block(path, str(mapping(definition.get("call")).get("block") or ""))

    def block(self, path: str, block: str) -> Iterator[StepNode]:
        """Return the steps of the block at a path; none if the block is no longer known."""
        yield from self.frame(path, self.blocks.get(self.block_at(path, block), ()))

    def block_at(self, path: str, block: str = "") -> str:
        """Return the block that runs, or has run, at a path; `block` if only the definition determines it."""
        traced = self.trace.get(path)
        return str(mapping(self.frames.get(path)).get("block") or (traced.block if traced else "") or block)

    def compensation(self, path: str, definition: Json) -> StepNode | None:
        at = f"{path}:compensate"
        if not self.has_part(path, ":compensate") and self.undoing != path:
            return None
        kind = next(iter(definition), "")
        target = str(mapping(definition.get(kind)).get("block" if kind == "call" else "name") or "")
        return self.node(at, "compensate", kind, target, {}, tuple(self.block(at, target)), part="handler")

    def handler(self, name: str) -> StepNode:
        """Return a started handler; its timer shows when it started and ended."""
        path = f":{name}"
        block = str(mapping(self.definition.get(name)).get("block") or "")
        failed = any(f"`{path}/" in entry or entry.startswith(f"`{name}`") for entry in self.suppressed)
        status = "Running" if path in self.frames else "Failed" if failed else "Succeeded"
        record = {} if path in self.trace else {"status": status}
        return self.node(path, name, "handler", block, record, tuple(self.block(path, block)), part="handler")

    def has_part(self, path: str, suffix: str) -> bool:
        """Whether a part of a step has started."""
        frame, _, last = path.rpartition("/")
        return f"{last}{suffix}" in self.parts.get(frame, {})

    # One node

    def node(
        self,
        path: str,
        name: str,
        kind: str,
        target: str,
        record: Json,
        below: tuple[StepNode, ...],
        *,
        part: str = "",
        definition: Json | None = None,
        loop: bool = False,
        unknown: str = "",
        **loops: int | None,
    ) -> StepNode:
        found, traced = self.recorded.get(path), self.trace.get(path)
        state = self.state(path, kind, record, below, found, loop=loop) or unknown or PENDING
        if state == PENDING and self.is_over(path):
            state = NOT_REACHED
        timed_out = self.has_timed_out(path, record)
        if timed_out:
            state = "Succeeded" if _catches_timeouts(definition or {}) else "Failed"
        if state == "Succeeded" and "compensate" in (definition or {}) and self.is_compensated(path):
            state = COMPENSATED
        start = (
            read_kubernetes_time(record.get("startTime"))
            or (traced.start if traced else None)
            or (found.start if found else None)
        )
        end = (
            read_kubernetes_time(record.get("endTime"))
            or (traced.end if traced else None)
            or (found.end if found else None)
        )
        if end is None and state not in OPEN and record.get("status") != "Running":
            end = max((each.end for each in below if each.end), default=None)
        return StepNode(
            path=path,
            name=name,
            part=part,
            label=self.label(path, part, traced),
            kind=kind,
            target=target,
            state=state,
            start=start or min((each.start for each in below if each.start), default=None),
            end=None if state in OPEN else self.end if state == STOPPED else end,
            timed_out=timed_out,
            failure=traced.failure if traced else None,
            remark=traced.remark if traced else "",
            steps=below,
            **loops,
        )  # fmt: skip

    def label(self, path: str, part: str, traced: TracedStep | None) -> str:
        """Return what names the value of an item, from the trace or from the loop while it is open."""
        if part != "item":
            return ""
        at = Path.parse(path)
        loop = mapping(self.loops.get(at.loop.text))
        if traced is not None or not loop or at.index is None:
            return traced.label if traced is not None else ""
        items = loop.get("items")
        if isinstance(items, list):
            return item_label(items[at.index], at.index) if at.index < len(items) else ""
        return item_label((integer(loop.get("first")) or 0) + at.index, at.index)

    def state(
        self, path: str, kind: str, record: Json, below: Sequence[StepNode], found: Recorded | None, *, loop: bool
    ) -> str:
        """Return the state of a step or part; empty if unknown."""
        if path in self.work.activities:
            return self.work.activities[path]
        status = str(record.get("status") or "")
        if self.closed:
            if status == "Running" or self.is_open(path):
                return STOPPED
        elif path in self.waiting or path in self.work.timers:
            return WAITING
        elif self.is_open(path):
            return "Running"
        if not status and path in self.trace:
            traced = self.trace[path].status
            return STOPPED if self.closed and traced is Status.RUNNING else traced.value
        return status or (_joined(below, loop=loop) if below else self.recorded_state(kind, found))

    def is_open(self, path: str) -> bool:
        """Whether the memory has the step or part, or it is a child that has not closed."""
        return any(path in known for known in (self.tasks, self.frames, self.loops, self.work.children))

    def is_over(self, path: str) -> bool:
        """Whether nothing more can start at this path."""
        frame = mapping(self.frames.get(path.rpartition("/")[0]))
        return self.closed or self.over or bool(self.closing and "/" not in path) or bool(frame.get("ending"))

    def is_compensated(self, path: str) -> bool:
        """Whether a successful step was compensated later."""
        if mapping(self.closing.get("ending")).get("status") in {None, "Succeeded"} or path in self.undo:
            return False
        at = f"{path}:compensate"
        if self.traced:
            return at in self.trace and self.trace[at].status is Status.SUCCEEDED
        found = self.recorded.get(at)
        failed = found is not None and found.ended == "Failed"
        return not failed and not any(f"`{at}" in message for message in self.suppressed)

    def recorded_state(self, kind: str, found: Recorded | None) -> str:
        """Return the outcome of a step according to its own events."""
        if found is None:
            return ""
        if found.ended is None:
            return STOPPED if self.closed else "Running"
        if kind in {"waitForSignal", "waitUntil"}:  # the timer limits its wait
            return "Failed" if found.ended == "Succeeded" else "Succeeded"
        return found.ended

    def has_timed_out(self, path: str, record: Json) -> bool:
        """Whether a step that only the events have has timed out; its parts were then canceled."""
        limit = None if self.traced else self.recorded.get(f"{path}{TIMEOUT}")
        is_open = path in self.work.activities or self.is_open(path)
        return limit is not None and limit.ended == "Succeeded" and not record.get("status") and not is_open


_MAX_LABEL: Final = 40


def item_label(value: Any, index: int) -> str:
    """Name an item of a loop by its value.

    Args:
        value: The item.
        index: Its index.

    Returns:
        A text, a number, or a boolean as it is; of an object, its fields with such values, as `lr=0.1, batch=32`; of an entry
        of a map, its key. Empty if there is nothing of this, or if it is the index.
    """
    if isinstance(value, Mapping):
        if value.keys() == {"key", "value"}:
            label = _scalar(value["key"])
        else:
            fields = ((key, _scalar(each)) for key, each in value.items())
            label = ", ".join(f"{key}={shown}" for key, shown in fields if shown)
    else:
        label = _scalar(value) if value != index or isinstance(value, bool) else ""
    return label if len(label) <= _MAX_LABEL else f"{label[: _MAX_LABEL - 1]}…"


def _scalar(value: Any) -> str:
    """Return a text, a number, or a boolean as one line; empty for another value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(str(value).split()) if isinstance(value, str | int | float) else ""


def open_steps(steps: Iterable[StepNode]) -> Iterator[StepNode]:
    """Return the innermost open steps of a run."""
    for step in steps:
        inner = list(open_steps(step.steps))
        if inner:
            yield from inner
        elif step.state in OPEN:
            yield step


def kind_and_target(step: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind of a step and its target.

    Args:
        step: The step in the definition.

    Returns:
        For instance `activity` and its name.
    """
    kind = next((key for key in step if key not in _MODIFIERS), "")
    body = mapping(step.get(kind))
    match kind:
        case "activity" | "waitForSignal" | "signal":
            target = body.get("name")
        case "sleep":
            target = body.get("duration") or f"until {body.get('until')}"
        case "call":
            target = body.get("block")
        case "parallel":
            target = body.get("wait")
        case "childWorkflow":
            reference = mapping(body.get("workflow"))
            target = reference.get("name") or reference.get("type")
        case "fail":
            target = body.get("type")
        case "set":
            target = ", ".join(map(str, body))
        case _:
            target = ""
    return kind, str(target or "")


def _only_handler(definition: Json) -> str:
    """Return the block that handles failures of a step; empty if there is not exactly one."""
    blocks = {str(mapping(clause.get("call")).get("block")) for clause in mappings(definition.get("catch"))}
    return blocks.pop() if len(blocks) == 1 else ""


def _catches_timeouts(definition: Json) -> bool:
    """Whether a step continues after its timeout."""
    ended = timeout("")
    return any(
        matches(ended, [*map(str, clause.get("errorTypes") or ())]) for clause in mappings(definition.get("catch"))
    )


def _joined(below: Sequence[StepNode], *, loop: bool) -> str:
    """Return the state of a step from its parts, if nothing else is known."""
    states = [step.state for step in below if step.name not in {"compensate", "limits", "onStart", "onEnd"}]
    if not states:
        return ""
    if STOPPED in states:
        return STOPPED
    if any(state in OPEN for state in states):
        return "Running"
    caught = [step.state for step in below if step.name == "catch"]
    if caught and not loop:
        return caught[0]
    if "Failed" in states:
        return "Failed"
    return "Cancelled" if all(state == "Cancelled" for state in states) else "Succeeded"
