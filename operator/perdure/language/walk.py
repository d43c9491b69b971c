"""The work of one decision: frames, tasks and loops begin, end and are stopped.

A frame runs a list of steps; a step that runs is a task, or a loop with a task for each item; a task may open frames in its
turn. Beginnings go through the agenda, so that a decision can stop between any two of them and go on later. Ends go up at
once: task → loop → step → frame → the task that opened it.

Stopping is asked for with an `Ending` that is remembered: what is open below is told to stop, and when the last of it has
ended, the ending takes its way up. What ends at once and what has to be waited for is the affair of `bodies`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.api.durations import show_duration
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.failures import MAX_SIZE, Failure, FailureKind, bounded, shorten
from perdure.engine.recording import MAX_PENDING
from perdure.engine.starts import CarriedSignal
from perdure.engine.state import DEAD_LETTER
from perdure.language import bodies, timeouts
from perdure.language.body import At
from perdure.language.cel import Meter
from perdure.language.cel.limits import BUDGET
from perdure.language.conversions import shown
from perdure.language.expressions import ExpressionError, Template
from perdure.language.failures import EXPRESSION_ERROR, StepError, application, as_json, as_variable, matches, timeout
from perdure.language.memory import (
    CANCELLED,
    Closing,
    Ending,
    ForEachLoop,
    Frame,
    Memory,
    Stage,
    Status,
    StepRecord,
    Task,
    Undo,
    failed,
    parse_path,
    step_path,
    succeeded,
)
from perdure.language.program import CompiledStep, Flow, Program
from perdure.language.scope import outcome_as_json, step_as_json

MAX_DEPTH = 32
"""How deep blocks may call blocks."""
MAX_OPEN = 250
"""Tasks that may be open in a run before loops begin no more items; each loop still has one."""
MAX_WAITING = (MAX_PENDING - 1) // 2
"""Tasks of a run that may wait for something: an activity, a child, a timer, a signal. One more fails its step. Each has two
timers at most, and a handler one: so the engine can always obey, unless activities that were abandoned use up its room."""
WAITING = frozenset({"activity", "child_workflow", "signal", "sleep", "wait_for_signal", "wait_until"})
"""The kinds of steps that wait; the others only run blocks, or end as they begin."""
MAX_OPEN_BYTES = 128 * 1024
"""Bytes of the inputs of open tasks before loops begin no more items."""
MAX_PATH = 1_000
"""Characters of a path: it is the activity's id."""
MAX_LOOP_OUTPUT = 192 * 1024
"""Bytes of the outputs of a loop's items."""
WORK = 200_000
"""Units of work (see `cel.limits`) after which a decision stops to let others have their turn."""
_WORK_OF_A_BEGINNING = 300
_SMALLEST_SUPPRESSED = 2_048
"""Bytes of JSON that each failure of a compensation or handler may have, however many there are."""

_replace = msgspec.structs.replace


class Walk:
    """The work of one decision."""

    def __init__(self, program: Program, scope: Mapping[str, Any], memory: Memory, now: datetime) -> None:
        self.program = program
        self.scope = scope
        self.memory = memory
        self.now = now
        self.commands: list[cmd.Command] = []
        self.agenda: list[str] = list(memory.agenda)
        self.work = 0
        self.closed = False
        self.event: ev.AnyEvent | None = None
        """What is being decided; None while a decision goes on that was cut short."""
        self.dirty = True
        """Conditions that are waited for have to be asked again."""
        self._stopping: set[str] = set()

    # Memory

    def set(self, **changes: Any) -> None:
        """Change what is remembered."""
        self.memory = _replace(self.memory, **changes)

    def put_frame(self, path: str, frame: Frame | None) -> None:
        """Remember a frame, or forget it."""
        self.set(frames=_with(self.memory.frames, path, frame))

    def put_task(self, path: str, task: Task | None) -> None:
        """Remember a task, or forget it."""
        self.set(tasks=_with(self.memory.tasks, path, task))

    def put_loop(self, path: str, loop: ForEachLoop | None) -> None:
        """Remember a loop, or forget it."""
        self.set(loops=_with(self.memory.loops, path, loop))

    def at(self, path: str) -> At:
        """Where a task or step of that path stands; its frame is open."""
        frame, name, index = parse_path(path)
        flow = self.program.flows[self.memory.frames[frame].block]
        return At(path, frame, flow, flow.by_name[name], index)

    def frame_at(self, path: str) -> Frame:
        """The open frame of that path."""
        return self.memory.frames[path]

    # Expressions

    def evaluate(self, at: At, key: str, **extra: Any) -> Any:
        """The value of one of the step's templates, None where the step has none; raises StepError."""
        template = at.compiled.templates.get(key)
        if template is None:
            return None
        if at.index is not None:
            loop = self.memory.loops[step_path(at.frame, at.compiled.step.name)]
            each = at.compiled.step.for_each
            assert each is not None
            extra = {each.as_: loop.item(at.index), "index": at.index, **extra}
        return self.value_of(template, at.frame, at.where, **extra)

    def value_of(self, template: Template, frame: str, where: str, **extra: Any) -> Any:
        """The value of a template in a frame; raises StepError."""
        meter = Meter()
        try:
            return template.evaluate(self.names(template, frame, extra), meter)
        except ExpressionError as error:
            raise StepError(application(EXPRESSION_ERROR, f"{where}: {error}")) from error
        finally:
            self.work += BUDGET - meter.left

    def names(self, template: Template, frame_path: str, extra: Mapping[str, Any]) -> dict[str, Any]:
        """What a template sees; only what it reads is made."""
        reads = template.references
        frame = self.memory.frames.get(frame_path) or Frame()
        names = {**self.scope, "now": self.now, "vars": self.memory.vars, "params": frame.params}
        if "run" in reads.roots:
            names["run"] = {
                **self.scope["run"],
                "continueAsNewSuggested": self.memory.suggested,
                **outcome_as_json(self.memory.closing),
            }
        if "steps" in reads.roots:
            records = frame.steps
            wanted = sorted(records) if reads.every_step else reads.steps
            names["steps"] = {name: step_as_json(records[name]) for name in wanted if name in records}
            self.work += 20 * len(names["steps"])
        if "signals" in reads.roots:
            buffered: dict[str, list[Any]] = {name: [] for name in reads.signals}
            for signal in self.memory.signals:
                buffered.setdefault(signal.name, []).append(signal.input)
            names["signals"] = buffered
            self.work += 10 * len(self.memory.signals)
        return {**names, **extra}

    # The agenda

    def go_on(self) -> bool:
        """Begin what is on the agenda; whether all of it was begun, or the work of one decision is done before."""
        while not self.closed:
            if not self.agenda:
                if not self.dirty:
                    return True
                self.dirty = False
                self.agenda += [f"?{path}" for path in self.memory.watchers]
                continue
            if self.work > WORK:
                return False
            path = self.agenda.pop(0)
            if path.startswith("?"):
                self.ask(path[1:])
            elif path in self.memory.loops:
                self.fill(path)
            else:
                self.begin(path)
        return True

    def ask(self, path: str) -> None:
        """Ask a condition that is waited for, and go on if it holds."""
        if path not in self.memory.watchers:
            return
        at = self.at(path)
        try:
            ending = succeeded() if self.evaluate(at, "condition") else None
        except StepError as error:
            ending = failed(error.failure)
        if ending is not None:
            bodies.unwait(self, at)
            self.end_body(path, ending)

    # Frames

    def open_frame(
        self,
        path: str,
        block: str,
        params: Any = None,
        *,
        branch: str = "",
        outer: str | None = None,
        caught: Failure | None = None,
    ) -> None:
        """Begin to run a block. `outer` is the frame that calls it; None: it stands outside of all others. Raises StepError."""
        flow = self.program.flows[block]
        depth = 0 if outer is None else self.memory.frames[outer].depth + 1
        if depth > MAX_DEPTH or len(path) > MAX_PATH:
            raise StepError(_too_deep(block))
        params = flow.params.complete(params)
        wrong = flow.params.check(params)
        if wrong:
            told = "; ".join(f"params{where}: {message}" for where, message in wrong)
            raise StepError(application("InvalidInput", f"block `{block}`: {told}"))
        self.put_frame(path, Frame(block=block, branch=branch, depth=depth, params=params, caught=caught))
        self.agenda += [step_path(path, step.step.name) for step in flow.steps if not step.needs]

    def stop_frame(self, path: str, ending: Ending) -> None:
        """Let a frame end so, as soon as what is open in it has stopped."""
        frame = self.memory.frames.get(path)
        if frame is None or frame.ending is not None:
            return
        self.put_frame(path, _replace(frame, ending=ending))
        self._stopping.add(path)
        flow = self.program.flows[frame.block]
        for step in flow.steps:
            record = self.memory.frames[path].steps.get(step.step.name)
            if record is not None and record.status is Status.RUNNING:
                self.stop_step(step_path(path, step.step.name))
        self._stopping.discard(path)
        self.close_if_done(path)

    def close_if_done(self, path: str) -> None:
        """End a frame in which nothing is open any more and nothing is to begin."""
        frame = self.memory.frames[path]
        flow = self.program.flows[frame.block]
        if path in self._stopping or self.closed:
            return
        if any(record.status is Status.RUNNING for record in frame.steps.values()):
            return
        ending = frame.ending
        complete = len(frame.steps) == len(flow.steps) and all(
            record.status in {Status.SUCCEEDED, Status.SKIPPED} for record in frame.steps.values()
        )
        if complete and (ending is None or ending.status is Status.CANCELLED):
            ending = self.output_of(path, frame, flow)
        if ending is None:
            return
        if path:  # what the main steps have left is for handlers to see
            self.put_frame(path, None)
        self.frame_ended(path, frame, ending)

    def output_of(self, path: str, frame: Frame, flow: Flow) -> Ending:
        """How a frame ends whose steps have all ended well."""
        if flow.output is None:
            return succeeded(frame.steps[flow.steps[-1].step.name].output)
        try:
            where = f"`output` of block `{frame.block}`" if frame.block else "`output`"
            return succeeded(self.value_of(flow.output, path, where))
        except StepError as error:
            return failed(error.failure)

    def frame_ended(self, path: str, frame: Frame, ending: Ending) -> None:
        """Hand the end of a frame to what has opened it."""
        closing = self.memory.closing
        if not path:
            self.main_ended(ending)
        elif path.startswith(":") and "/" not in path:  # not a block that a handler's block calls
            self.handler_ended(path, ending)
        elif closing and closing.undoing and path == _undo_path(closing.undoing):
            self.undo_ended(ending)
        elif frame.branch:
            bodies.branch_ended(self, path.removesuffix(f".{frame.branch}"), frame.branch, ending)
        else:
            self.end_body(path.removesuffix(":catch"), ending)

    # Steps

    def begin(self, path: str) -> None:
        """Begin a step, if it is still to begin."""
        frame_path, name, _ = parse_path(path)
        frame = self.memory.frames.get(frame_path)
        if frame is None or frame.ending is not None or name in frame.steps:
            return
        self.work += _WORK_OF_A_BEGINNING
        at = self.at(path)
        record = StepRecord(status=Status.RUNNING, start_time=self.now)
        self.put_frame(frame_path, _replace(frame, steps={**frame.steps, name: record}))
        try:
            if not self.evaluate_when(at):
                self.end_step(path, Ending(status=Status.SKIPPED))
            elif at.compiled.step.for_each:
                self.begin_loop(at)
            else:
                self.begin_task(path)
        except StepError as error:
            self.end_step(path, failed(error.failure))

    def evaluate_when(self, at: At) -> bool:
        """Whether the step runs."""
        return "when" not in at.compiled.templates or self.evaluate(at, "when") is True

    def stop_step(self, path: str) -> None:
        """Cancel a step that runs."""
        if path in self.memory.loops:
            self.stop_loop(path, CANCELLED)
        elif path in self.memory.tasks:
            self.stop_task(path, CANCELLED)

    def end_step(self, path: str, ending: Ending) -> None:
        """A step has ended: what needs it may begin, or its frame ends too."""
        frame_path, name, _ = parse_path(path)
        frame = self.memory.frames[frame_path]
        flow = self.program.flows[frame.block]
        record = _replace(
            frame.steps[name],
            status=ending.status,
            end_time=self.now,
            output=ending.output if name in flow.kept else None,
        )
        frame = _replace(frame, steps={**frame.steps, name: record})
        self.put_frame(frame_path, frame)
        if ending.status is Status.FAILED and frame.ending is None:
            self.stop_frame(frame_path, ending)
            return
        if frame.ending is None:
            for other in flow.dependants[name]:
                needs = flow.by_name[other].needs
                if all(_has_ended(frame.steps.get(need)) for need in needs):
                    self.agenda.append(step_path(frame_path, other))
        self.close_if_done(frame_path)

    # Loops

    def begin_loop(self, at: At) -> None:
        """Ask for the items, and begin the first of them; raises StepError."""
        each = at.compiled.step.for_each
        assert each is not None
        items = self.evaluate(at, "items")
        if isinstance(items, dict):
            items = [{"key": key, "value": items[key]} for key in sorted(items)]
        if not isinstance(items, list):
            message = f"{at.where}: `forEach.items` must give a list or a map, not {shown(items)}"
            raise StepError(application(EXPRESSION_ERROR, message))
        self.work += len(items)
        first = items[0] if items and type(items[0]) is int else 0
        in_a_row = items == list(range(first, first + len(items))) and all(type(item) is int for item in items)
        self.put_loop(at.path, ForEachLoop(items=None if in_a_row else items, first=first, count=len(items)))
        self.agenda.insert(0, at.path)

    def fill(self, path: str) -> None:
        """Begin items, as many as may be open."""
        at = self.at(path)
        each = at.compiled.step.for_each
        assert each is not None
        while not self.closed:
            loop = self.memory.loops.get(path)
            if loop is None or loop.ending is not None:
                return
            if loop.next == loop.count:
                if not loop.open:
                    self.end_loop(path, loop)
                return
            if each.max_concurrency and loop.open >= each.max_concurrency:
                return
            if loop.open and self.full():
                if path not in self.memory.hungry:
                    self.set(hungry=(*self.memory.hungry, path))
                return
            if self.work > WORK:
                self.agenda.insert(0, path)
                return
            self.work += _WORK_OF_A_BEGINNING
            self.put_loop(path, _replace(loop, next=loop.next + 1, open=loop.open + 1))
            self.begin_task(f"{path}[{loop.next}]")

    def full(self) -> bool:
        """Whether so much is open that loops have to wait."""
        tasks = self.memory.tasks
        return len(tasks) >= MAX_OPEN or sum(task.size for task in tasks.values()) > MAX_OPEN_BYTES

    @staticmethod
    def waits(compiled: CompiledStep) -> bool:
        """Whether a step waits for something itself, be it for its own timeout."""
        return compiled.step.kind in WAITING or compiled.step.timeout is not None

    def crowded(self) -> bool:
        """Whether as many tasks wait as may."""
        tasks = self.memory.tasks
        if len(tasks) < MAX_WAITING:
            return False
        self.work += 10 * len(tasks)
        return (
            sum(task.stage is Stage.BODY and self.waits(self.at(p).compiled) for p, task in tasks.items())
            >= MAX_WAITING
        )

    def feed(self) -> None:
        """Something has ended: loops that had to wait may go on."""
        if self.memory.hungry and not self.full():
            self.agenda += [path for path in self.memory.hungry if path in self.memory.loops]
            self.set(hungry=())

    def stop_loop(self, path: str, ending: Ending) -> None:
        """Let a loop end so, as soon as its open items have stopped."""
        loop = self.memory.loops[path]
        if loop.ending is not None:
            return
        self.put_loop(path, _replace(loop, ending=ending))
        self._stopping.add(path)
        for index in range(loop.next):
            if f"{path}[{index}]" in self.memory.tasks:
                self.stop_task(f"{path}[{index}]", CANCELLED)
        self._stopping.discard(path)
        self.end_loop_if_stopped(path)

    def item_ended(self, at: At, ending: Ending) -> None:
        """An item of a loop has ended."""
        path = step_path(at.frame, at.compiled.step.name)
        loop = self.memory.loops[path]
        loop = _replace(loop, open=loop.open - 1)
        if ending.status is Status.SUCCEEDED and ending.output is not None and at.compiled.step.name in at.flow.kept:
            size = loop.size + len(msgspec.json.encode(ending.output))
            loop = _replace(loop, outputs={**loop.outputs, str(at.index): ending.output}, size=size)
            if size > MAX_LOOP_OUTPUT:
                message = (
                    f"the outputs of the items of step `{path}` have more than {MAX_LOOP_OUTPUT // 1024} KiB; let the "
                    "items return less, or keep large data elsewhere"
                )
                ending = failed(application("OutputTooLarge", message))
        self.put_loop(path, loop)
        if loop.ending is not None:
            self.end_loop_if_stopped(path)
        elif ending.status is Status.SUCCEEDED:
            self.agenda.append(path)
        else:
            self.stop_loop(path, ending)

    def end_loop_if_stopped(self, path: str) -> None:
        """End a loop that was stopped, when its last item has."""
        loop = self.memory.loops[path]
        if path not in self._stopping and not loop.open and loop.ending is not None:
            self.put_loop(path, None)
            self.end_step(path, loop.ending)

    def end_loop(self, path: str, loop: ForEachLoop) -> None:
        """All items have ended well."""
        name = parse_path(path)[1]
        output = None
        if name in self.at(path).flow.kept:
            output = [loop.outputs.get(str(index)) for index in range(loop.count)]
        self.put_loop(path, None)
        self.end_step(path, succeeded(output))

    # Tasks

    def begin_task(self, path: str) -> None:
        """Begin a step's body, or that of one item."""
        at = self.at(path)
        if self.waits(at.compiled) and self.crowded():
            self.put_task(path, Task())
            self.end_body(path, failed(_too_many(at)))
            return
        self.put_task(path, Task())
        try:
            limit = self.limit(at, "timeout", at.compiled.step.timeout)
            if limit is not None:
                self.put_task(path, _replace(self.memory.tasks[path], timed=True))
                self.start_timer(f"{path}:timeout", limit)
            ending = bodies.BODIES[at.compiled.step.kind].begin(self, at)
        except StepError as error:
            ending = failed(error.failure)
        if ending is not None:
            self.end_body(path, ending)

    def stop_task(self, path: str, ending: Ending) -> None:
        """Let a task end so, as soon as what is open in it has stopped."""
        task = self.memory.tasks[path]
        if task.ending is not None:
            return
        self.put_task(path, _replace(task, ending=ending))
        self.stop_timer(path)
        at = self.at(path)
        if task.stage is Stage.CATCH:
            self.stop_frame(f"{path}:catch", CANCELLED)
        else:
            ended = bodies.BODIES[at.compiled.step.kind].stop(self, at)
            if ended is not None:
                self.end_body(path, ended)

    def end_body(self, path: str, ending: Ending) -> None:
        """The body of a task has ended, or its `catch` block: handle a failure, or end the task."""
        task = self.memory.tasks.get(path)
        if task is None or self.closed:
            return
        self.stop_timer(path)
        at = self.at(path)
        wanted = task.ending
        if wanted is not None and not (wanted.status is Status.CANCELLED and ending.status is Status.SUCCEEDED):
            ending = wanted  # stopped: only a body that has succeeded all the same is believed, unless its time was up
        stopped = wanted is not None and wanted.status is Status.CANCELLED
        if ending.failure and task.stage is Stage.BODY and not stopped:
            unhandled = self.handle(at, task, ending.failure)
            if unhandled is None:
                return
            ending = failed(unhandled)
        if ending.status is Status.SUCCEEDED and task.stage is Stage.BODY and at.compiled.step.compensate:
            try:
                self.remember_undo(at, ending.output)
            except StepError as error:
                ending = failed(error.failure)
        self.put_task(path, None)
        if at.index is None:
            self.end_step(path, ending)
        else:
            self.item_ended(at, ending)
        self.feed()

    def handle(self, at: At, task: Task, failure: Failure) -> Failure | None:
        """Give a failure to the clause that catches it; the failure that is left, None when the clause's block has begun."""
        if at.compiled.step.dead_letter and failure.kind is FailureKind.ACTIVITY:
            self.commands.append(cmd.RecordMarker(marker_name=DEAD_LETTER, details=self.dead_letter(at, failure)))
        for i, clause in enumerate(at.compiled.step.catch):
            if not matches(failure, clause.error_types):
                continue
            self.put_task(at.path, _replace(task, stage=Stage.CATCH, timed=False, ending=None, branches={}, size=0))
            try:
                params = self.evaluate(at, f"catch/{i}", **{clause.as_: as_variable(failure, clause.error_types)})
                self.open_frame(f"{at.path}:catch", clause.call.block, params, outer=at.frame, caught=failure)
            except StepError as error:
                return _replace(error.failure, cause=failure)
            return None
        return failure

    def dead_letter(self, at: At, failure: Failure) -> dict[str, Any]:
        """What is said of an activity that has failed for good; its input stands in the event that scheduled it."""
        return {
            "step": at.path,
            "activity": failure.activity,
            "scheduledEventId": getattr(self.event, "scheduled_event_id", 0),
            "failure": as_json(failure),
        }

    # Timers

    def limit(self, at: At, key: str, given: timedelta | str | None) -> timedelta | None:
        """A timeout of a task that begins; what an expression gives is remembered. Raises StepError."""
        if not isinstance(given, str):
            return given
        length = timeouts.computed(at.where, "timeout", self.evaluate(at, key))
        task = self.memory.tasks[at.path]
        self.put_task(at.path, _replace(task, limits={**task.limits, key: length}))
        return length

    def limit_of(self, path: str, key: str, given: timedelta | str | None) -> timedelta:
        """A timeout of a task that has begun, for messages."""
        return given if isinstance(given, timedelta) else self.memory.tasks[path].limits.get(key, timedelta(0))

    def start_timer(self, timer_id: str, length: timedelta) -> None:
        """Be woken after a while."""
        self.commands.append(cmd.StartTimer(timer_id=timer_id, start_to_fire_timeout=max(length, timedelta(0))))

    def stop_timer(self, path: str) -> None:
        """The body of a task is over: its timeout no longer counts."""
        task = self.memory.tasks[path]
        if task.timed:
            self.commands.append(cmd.CancelTimer(timer_id=f"{path}:timeout"))
            self.put_task(path, _replace(task, timed=False))

    def timer_fired(self, timer_id: str) -> None:
        """A sleep is over, a wait, or a time limit."""
        if timer_id.startswith(":") and timer_id.count(":") == 2 and "/" not in timer_id:  # noqa: PLR2004 (:finally:timeout)
            name = timer_id[1:].removesuffix(":timeout")
            budget = self.program.handlers[name].handler.timeout
            self.stop_frame(f":{name}", failed(timeout(f"`{name}` has taken longer than {show_duration(budget)}")))
            return
        path = timer_id.removesuffix(":timeout")
        task = self.memory.tasks.get(path)
        if task is None or task.stage is not Stage.BODY or task.ending is not None:
            return
        at = self.at(path)
        if path != timer_id:
            if task.timed:
                self.put_task(path, _replace(task, timed=False))
                limit = show_duration(self.limit_of(path, "timeout", at.compiled.step.timeout))
                self.stop_task(path, failed(timeout(f"{at.where} has taken longer than its timeout of {limit}")))
            return
        self.end_body(path, bodies.time_is_up(self, at))

    # Compensation, handlers, the end

    def remember_undo(self, at: At, output: Any) -> None:
        """Note how a completed step is undone; raises StepError."""
        frame = self.memory.frames[at.frame]
        name = at.compiled.step.name
        record = step_as_json(_replace(frame.steps[name], status=Status.SUCCEEDED, end_time=self.now, output=output))

        def evaluate(key: str) -> Any:
            template = at.compiled.templates.get(key)
            wanted = template.references.steps if template else ()
            steps = {**{n: step_as_json(frame.steps[n]) for n in wanted if n in frame.steps}, name: record}
            return self.evaluate(at, key, steps=steps)

        value = evaluate("compensate")
        call = at.compiled.step.compensate.activity if at.compiled.step.compensate else None
        limits = timeouts.of_call(at.where, call, evaluate, "compensate/") if call else {}
        if self.memory.closing is None:
            undo = Undo(path=at.path, block=frame.block, depth=frame.depth, input=value, timeouts=limits)
            self.set(undo=(*self.memory.undo, undo))

    def cancel(self, *, stop: bool = False) -> None:
        """The run was asked to cancel itself; `stop`: without compensations and `onCancel`."""
        if self.memory.closing is None:
            if stop:
                self.set(stopped=True)
            self.stop_frame("", CANCELLED)

    def main_ended(self, ending: Ending) -> None:
        """The main steps have ended: compensate, run the handlers, close."""
        self.set(closing=Closing(ending=ending, handled=self.memory.stopped), agenda=())
        self.agenda.clear()
        self.next_chapter()

    def next_chapter(self) -> None:
        """What comes after the main steps: one compensation after the other, a handler, `finally`, the end."""
        while not self.closed:
            closing = self.memory.closing
            assert closing is not None
            bad = closing.ending.status is not Status.SUCCEEDED
            if bad and not closing.handled and self.memory.undo:
                if self.begin_undo():
                    return
            elif bad and not closing.handled:
                self.set(closing=_replace(closing, handled=True))
                name = "onCancel" if closing.ending.status is Status.CANCELLED else "onFailure"
                if self.begin_handler(name, closing):
                    return
            elif not closing.finalized:
                self.set(closing=_replace(closing, finalized=True))
                if self.begin_handler("finally", closing):
                    return
            else:
                self.close(closing)

    def begin_undo(self) -> bool:
        """Begin the newest compensation; whether it runs."""
        *rest, undo = self.memory.undo
        closing = self.memory.closing
        assert closing is not None
        self.set(undo=tuple(rest), closing=_replace(closing, undoing=undo))
        try:
            bodies.begin_undo(self, undo, _undo_path(undo))
        except StepError as error:
            self.suppress(error.failure)
            return False
        return True

    def undo_ended(self, ending: Ending) -> None:
        """A compensation has ended; if it failed, the others go on."""
        if ending.failure:
            self.suppress(ending.failure)
        closing = self.memory.closing
        assert closing is not None
        self.set(closing=_replace(closing, undoing=None))
        self.next_chapter()

    def undo_path(self) -> str | None:
        """The path of the compensation that runs."""
        closing = self.memory.closing
        return _undo_path(closing.undoing) if closing and closing.undoing else None

    def begin_handler(self, name: str, closing: Closing) -> bool:
        """Begin a handler's block; whether it runs."""
        compiled = self.program.handlers.get(name)
        if compiled is None:
            return False
        extra = {}
        if name == "onFailure" and closing.ending.failure:
            extra["error"] = as_variable(closing.ending.failure, [])
        try:
            params = self.value_of(compiled.input, "", f"`{name}`", **extra)
            self.open_frame(f":{name}", compiled.handler.block, params)
        except StepError as error:
            self.suppress(error.failure)
            return False
        self.start_timer(f":{name}:timeout", compiled.handler.timeout)
        return True

    def handler_ended(self, path: str, ending: Ending) -> None:
        """A handler's block has ended."""
        self.commands.append(cmd.CancelTimer(timer_id=f"{path}:timeout"))
        if ending.failure:
            self.suppress(ending.failure)
        self.next_chapter()

    def suppress(self, failure: Failure) -> None:
        """Keep a failure of a compensation or handler, to be reported with the failure that the run closes with.

        There may be hundreds, so each takes half of the space that is left at most.
        """
        closing = self.memory.closing
        assert closing is not None
        left = MAX_SIZE - len(msgspec.json.encode(closing.suppressed))
        kept = bounded(failure, max(left // 2, _SMALLEST_SUPPRESSED))
        self.set(closing=_replace(closing, undoing=None, suppressed=(*closing.suppressed, kept)))

    def close(self, closing: Closing) -> None:
        """End the run."""
        ending, suppressed = closing.ending, closing.suppressed
        if ending.status is Status.SUCCEEDED and suppressed:
            first, *rest = suppressed
            self.end_run(cmd.FailWorkflowExecution(failure=_replace(first, suppressed=tuple(rest))))
        elif ending.status is Status.SUCCEEDED:
            self.end_run(cmd.CompleteWorkflowExecution(result=ending.output))
        elif ending.status is Status.CANCELLED:
            failure = None
            if suppressed:
                message = shorten(f"cancelled, and {_told(suppressed)}")
                failure = Failure(kind=FailureKind.CANCELLED, message=message, suppressed=suppressed)
            self.end_run(cmd.CancelWorkflowExecution(failure=failure))
        else:
            failure = ending.failure
            assert failure is not None
            if suppressed:
                message = shorten(f"{failure.message}; {_told(suppressed)}")
                failure = _replace(failure, message=message, suppressed=(*failure.suppressed, *suppressed))
            self.end_run(cmd.FailWorkflowExecution(failure=failure))

    def end_run(self, command: cmd.ClosingCommand) -> None:
        """The last command."""
        self.commands.append(command)
        self.closed = True

    def continue_as_new(self, value: Any) -> None:
        """Go on in a new run, which gets the signals that were not consumed."""
        carried = tuple(
            CarriedSignal(signal_name=signal.name, input=signal.input, identity=signal.identity)
            for signal in self.memory.signals
        )
        self.end_run(cmd.ContinueAsNewWorkflowExecution(input=value, signals=carried))


def _too_deep(block: str) -> Failure:
    message = f"`{block}` stands more than {MAX_DEPTH} blocks deep, or its path has more than {MAX_PATH} characters"
    return application("BlockDepthExceeded", message)


def _too_many(at: At) -> Failure:
    message = (
        f"{at.where}: {MAX_WAITING} steps and items of the run wait already, which is as many as may; let a `forEach` begin "
        "fewer at a time (`maxConcurrency`), or divide the work into child workflows"
    )
    return application("PendingLimitExceeded", message)


def _with(entries: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    if value is not None:
        return {**entries, path: value}
    return {key: entry for key, entry in entries.items() if key != path}


def _has_ended(record: StepRecord | None) -> bool:
    return record is not None and record.status is not Status.RUNNING


def _undo_path(undo: Undo) -> str:
    return f"{undo.path}:compensate"


def _told(suppressed: tuple[Failure, ...]) -> str:
    return "; ".join(f"then failed as well: {failure.message}" for failure in suppressed)
