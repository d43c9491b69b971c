"""The running program: a tree of frames, steps, loops, and tasks.

A frame is a running list of steps. A step runs as one task, or, with `forEach`, as a loop of tasks. A task is a step or item with
its `onStart`, its limits, its action, its timeout, its `catch`, and its `onEnd`. Some of these open frames of blocks.

Starting goes down: frame → step → loop → task → action → frame of a block. It goes through the agenda of `DecisionContext`, so
that a decision can be split between any two starts. Closing goes up immediately: action → task → loop → step → frame → the task
that opened the frame. A frame that no task has opened (the main steps, a handler, a compensation) is left in
`DecisionContext.ended` for the closing sequence.

The services of a frame start with it, and its steps once they are ready (`services`); they stop when it closes.

Stopping a task, loop, or frame records its outcome and cancels its running parts. It closes after the last of these parts. Each
kind of action determines whether it closes immediately or later.
"""

from collections.abc import Iterable
from datetime import timedelta
from functools import reduce
from typing import Any, Final

import msgspec

from perdure.api.kinds.workflow import MAX_SERVICES
from perdure.api.policies import FailurePolicy
from perdure.engine import commands as cmd
from perdure.engine.failures import Failure, FailureKind, shorten
from perdure.engine.ledger import MAX_PENDING
from perdure.engine.state import DEAD_LETTER
from perdure.language import coercion
from perdure.language.coercion import format_value
from perdure.language.execution import actions, services
from perdure.language.execution.context import (
    WORK,
    WORK_OF_A_START,
    DecisionContext,
    Location,
    ended_as_json,
    replace,
    step_as_json,
)
from perdure.language.execution.services import ServiceEvent
from perdure.language.expressions import Template
from perdure.language.memory import (
    CANCELLED,
    SKIPPED,
    Compensation,
    Failures,
    ForEachLoop,
    Frame,
    Outcome,
    Stage,
    Status,
    StepRecord,
    Task,
    failed,
    succeeded,
)
from perdure.language.program import (
    CallBlock,
    CompiledStep,
    Flow,
    Parallel,
    Return,
    RunActivity,
    RunChild,
    SignalRun,
    Sleep,
    Switch,
    WaitForSignal,
    WaitUntil,
)
from perdure.language.step_failures import (
    EXPRESSION_ERROR,
    StepError,
    added,
    application,
    as_json,
    as_variable,
    combined,
    deadline,
    matches,
    steps_of,
)
from perdure.language.step_paths import Path

MAX_DEPTH: Final = 32
"""Maximum nesting of calls of blocks."""
MAX_PATH: Final = 1_000
"""Maximum characters of a path, which is also the ID of the activity."""
MAX_OPEN: Final = 250
"""Number of open tasks in a run above which loops start no more items; each loop still has one."""
MAX_OPEN_BYTES: Final = 128 * 1024
"""Bytes of inputs of open tasks above which loops start no more items."""
MAX_LOOP_OUTPUT: Final = 192 * 1024
"""Maximum bytes of the outputs of the items of a loop."""
MAX_WAITING: Final = (MAX_PENDING - 1) // 2
"""Tasks of a run that may wait for something: an activity, a child, a timer, a signal. One more fails its step. Each has at
most two timers, and a handler has one, so the engine can always follow, unless abandoned activities use up its room."""


class RunningFlows:
    """The frames of a run, with their steps, loops, and tasks, during one decision."""

    def __init__(self, context: DecisionContext) -> None:
        self._context = context
        self._stopping: set[str] = set()
        """Frames and loops whose parts are being canceled one by one; they close after the last."""

    # Frames

    def open(
        self,
        path: Path,
        block: str,
        params: Any = None,
        *,
        branch: str = "",
        caller: str | None = None,
        caught: Failure | None = None,
        steps_timeout: timedelta | None = None,
    ) -> None:
        """Open the frame of a block, and enqueue its first steps.

        Args:
            path: Path of the frame.
            block: Name of the block; empty for the main steps.
            params: The input of the block.
            branch: The branch of a parallel step.
            caller: Path of the frame that calls it; None for main steps, handlers and compensations.
            caught: The failure that the block handles.
            steps_timeout: The `stepsTimeout` of the run, which replaces that of its definition.

        Raises:
            StepError: The input does not match the schema, the blocks are nested too deeply, or the `stepsTimeout` of a block is
                not a duration.
        """
        context = self._context
        flow = context.program.flows[block]
        depth = 0 if caller is None else context.memory.frames[caller].depth + 1
        if depth > MAX_DEPTH or len(path.text) > MAX_PATH:
            raise StepError(_too_deep(block))
        params = flow.params.complete(params)
        wrong = flow.params.check(params)
        if wrong:
            reasons = "; ".join(f"params{where}: {message}" for where, message in wrong)
            raise StepError(application("InvalidInput", f"block `{block}`: {reasons}"))
        context.put_frame(path, Frame(block=block, branch=branch, depth=depth, params=params, caught=caught))
        try:
            self._start_steps_timeout(path, flow, steps_timeout)
        except StepError as error:
            if path.text:
                context.put_frame(path, None)
                raise
            self.stop(path, failed(error.failure))
            return
        if flow.services:
            services.start(context, path)
        else:
            self._start_steps(path, flow)
        if path.text:
            context.observer.started(path, context.now, block)

    def _start_steps(self, path: Path, flow: Flow) -> None:
        """Enqueue the first steps of a frame."""
        self._context.enqueue(path.child(step.name) for step in flow.steps if not step.needs)

    def service_changed(self, event: ServiceEvent) -> None:
        """Process the readiness or the end of a service: its frame starts its steps once all are ready, or stops."""
        context, path = self._context, Path.parse(event.activity_id).served_frame
        frame = context.frame(path)
        if frame is None or frame.services is None or frame.outcome is not None:
            return  # it has been stopped
        failure = services.update(context, path, event)
        if failure is not None:
            self.stop(path, failed(failure))
        elif services.are_ready(context, path):
            self._start_steps(path, context.program.flows[frame.block])

    def _start_steps_timeout(self, path: Path, flow: Flow, override: timedelta | None) -> None:
        """Start the timer of the `stepsTimeout` of a frame, if it has one. Raises StepError, also for too many services."""
        context = self._context
        limit, where = override or flow.steps_timeout, steps_of(path)
        if path.text and (limit is not None or flow.services) and self._too_many_wait():
            raise StepError(_too_many(where))
        if limit is None:
            return
        if isinstance(limit, Template):
            limit = coercion.computed(where, "stepsTimeout", context.evaluate_in_frame(limit, path.text, where))
        context.put_frame(path, replace(context.memory.frames[path.text], steps_timeout=limit))
        context.start_timer(path.steps_timeout, limit, restarts=True)

    def steps_timed_out(self, path: Path) -> None:
        """Cancel the running steps of a frame whose `stepsTimeout` has passed."""
        context = self._context
        frame = context.frame(path)
        if frame is None or frame.steps_timeout is None:
            return
        context.put_frame(path, replace(frame, steps_timeout=None))
        self.stop(path, failed(deadline(steps_of(path), frame.steps_timeout, of_run=not path.text)))

    def _cancel_steps_timeout(self, path: Path) -> None:
        """Cancel the timer of the `stepsTimeout` of a frame that closes."""
        frame = self._context.memory.frames[path.text]
        if frame.steps_timeout is not None:
            self._context.cancel_timer(path.steps_timeout)
            self._context.put_frame(path, replace(frame, steps_timeout=None))

    def stop(self, path: Path, outcome: Outcome) -> None:
        """Cancel the running steps of a frame; it closes with the outcome once they have closed."""
        context = self._context
        frame = context.frame(path)
        if frame is None or frame.outcome is not None:
            return
        context.put_frame(path, replace(frame, outcome=outcome))
        self._stopping.add(path.text)
        for step in context.program.flows[frame.block].steps:
            record = context.memory.frames[path.text].steps.get(step.name)
            if record is not None and record.status is Status.RUNNING:
                self._cancel_step(path.child(step.name))
        self._stopping.discard(path.text)
        self._close_if_done(path)

    def _close_if_done(self, path: Path) -> None:
        """Close a frame in which no step is running and none is due, and pass its outcome to its caller."""
        context = self._context
        frame = context.memory.frames[path.text]
        flow = context.program.flows[frame.block]
        if path.text in self._stopping or context.closed:
            return
        if any(record.status is Status.RUNNING for record in frame.steps.values()):
            return
        outcome = frame.outcome
        complete = len(frame.steps) == len(flow.steps) and all(
            record.status in {Status.SUCCEEDED, Status.SKIPPED} for record in frame.steps.values()
        )
        if complete and (outcome is None or outcome.status is Status.CANCELLED):
            outcome = self._output(path, frame, flow)
        if frame.failures is not None and (outcome is not None or not _continues(frame, flow)):
            outcome = _with_failures(outcome, frame.failures)
        if outcome is None:
            return
        self._cancel_steps_timeout(path)
        services.stop(context, path)
        if not path.text:
            context.ended = path, outcome  # the frame stays: handlers still read the records of the main steps
            return
        context.put_frame(path, None)
        context.observer.closed(path, outcome, context.now)
        if path.is_handler or path.is_compensation:
            context.ended = path, outcome
        elif frame.branch:
            self._branch_closed(path.owner, frame.branch, outcome)
        else:
            self.part_closed(path.owner, outcome)

    def _output(self, path: Path, frame: Frame, flow: Flow) -> Outcome:
        """Return the outcome of a frame whose steps have all succeeded or were skipped."""
        if flow.output is None:
            return succeeded(frame.steps[flow.steps[-1].name].output)
        try:
            where = f"`output` of block `{frame.block}`" if frame.block else "`output`"
            return succeeded(self._context.evaluate_in_frame(flow.output, path.text, where))
        except StepError as error:
            return failed(error.failure)

    # Steps

    def start_step(self, path: Path) -> None:
        """Start a due step, unless its frame is closed or stopping."""
        context = self._context
        frame_path = path.parent
        frame = context.frame(frame_path)
        if frame is None or frame.outcome is not None or path.step in frame.steps:
            return
        flow = context.program.flows[frame.block]
        if flow.failure_policy is FailurePolicy.FINISH_RUNNING and self._will_fail(frame_path, frame):
            return
        if _is_full(frame, flow):
            return  # it is due again when another step closes
        context.work += WORK_OF_A_START
        at = context.locate(path)
        record = StepRecord(status=Status.RUNNING, start_time=context.now)
        context.put_frame(frame_path, replace(frame, steps={**frame.steps, path.step: record}))
        context.observer.started(path, context.now)
        try:
            if at.compiled.when is not None and context.evaluate(at, at.compiled.when) is not True:
                self._close_step(path, SKIPPED)
            elif at.compiled.loop is not None:
                self._start_loop(at)
            else:
                self._start_task(path)
        except StepError as error:
            self._close_step(path, failed(error.failure))

    def _will_fail(self, path: Path, frame: Frame) -> bool:
        """Whether a step of a frame has failed, or an item of a running loop, so that the loop will fail."""
        running = (name for name, record in frame.steps.items() if record.status is Status.RUNNING)
        loops = (self._context.loop(path.child(name)) for name in running)
        return frame.failures is not None or any(loop is not None and loop.failures is not None for loop in loops)

    def _cancel_step(self, path: Path) -> None:
        """Cancel a step that is running."""
        if self._context.loop(path) is not None:
            self._stop_loop(path, CANCELLED)
        elif self._context.task(path) is not None:
            self.stop_task(path, CANCELLED)

    def _close_step(self, path: Path, outcome: Outcome) -> None:
        """Record the outcome of a step, and enqueue the steps that need it or close its frame."""
        context = self._context
        context.observer.closed(path, outcome, context.now)
        frame_path = path.parent
        frame = context.memory.frames[frame_path.text]
        flow = context.program.flows[frame.block]
        kept = path.step in flow.kept
        record = replace(
            frame.steps[path.step],
            status=outcome.status,
            end_time=context.now,
            output=outcome.output if kept else None,
            artifacts=outcome.artifacts if kept else None,
        )
        frame = replace(frame, steps={**frame.steps, path.step: record})
        fails = outcome.status is Status.FAILED and frame.outcome is None  # otherwise it has been stopped before
        stops = fails and flow.failure_policy is FailurePolicy.CANCEL_RUNNING
        if outcome.failure is not None and not stops and (fails or outcome.status is Status.CANCELLED):
            frame = replace(frame, failures=added(frame.failures, outcome.failure))
        context.put_frame(frame_path, frame)
        if stops:
            self.stop(frame_path, outcome)
            return
        if frame.outcome is None:
            candidates = flow.dependants[path.step] if flow.max_concurrency is None else flow.by_name
            context.enqueue(frame_path.child(other) for other in candidates if _is_due(frame, flow.by_name[other]))
        self._close_if_done(frame_path)

    # Loops: `forEach` runs a step as one task for each item, with a limit on open items

    def _start_loop(self, at: Location) -> None:
        """Evaluate the items, and enqueue the first ones. Raises StepError."""
        context, loop = self._context, at.compiled.loop
        items = context.evaluate(at, loop.items if loop is not None else None)
        if isinstance(items, dict):
            items = [{"key": key, "value": items[key]} for key in sorted(items)]
        if not isinstance(items, list):
            message = f"{at.where}: `forEach.items` must give a list or a map, not {format_value(items)}"
            raise StepError(application(EXPRESSION_ERROR, message))
        context.work += len(items)
        first = items[0] if items and type(items[0]) is int else 0
        kept = None if _consecutive(items, first) else items
        context.put_loop(at.path, ForEachLoop(items=kept, first=first, count=len(items)))
        context.enqueue_first(at.path)

    def start_items(self, path: Path) -> None:
        """Start items up to the limit; close the loop if no items are left or open."""
        context = self._context
        definition = context.locate(path).compiled.loop
        assert definition is not None, "only steps with `forEach` have loops"
        limit, policy = definition.max_concurrency, definition.failure_policy
        while not context.closed:
            loop = context.loop(path)
            if loop is None or loop.outcome is not None:
                return
            if loop.next == loop.count or (loop.failures is not None and policy is FailurePolicy.FINISH_RUNNING):
                if not loop.open:
                    self._complete_loop(path, loop)
                return
            if limit and loop.open >= limit:
                return
            if loop.open and self._run_is_full():
                if path.text not in context.memory.blocked_loops:
                    context.update(blocked_loops=(*context.memory.blocked_loops, path.text))
                return
            if context.work > WORK:
                context.enqueue_first(path)
                return
            context.work += WORK_OF_A_START
            context.put_loop(path, replace(loop, next=loop.next + 1, open=loop.open + 1))
            item = path.item(loop.next)
            context.observer.item_started(item, context.now, loop.item(loop.next))
            self._start_task(item)

    def _unblock_loops(self) -> None:
        """Enqueue the loops that waited for a task to close."""
        context, memory = self._context, self._context.memory
        if memory.blocked_loops and not self._run_is_full():
            context.enqueue(Path.parse(path) for path in memory.blocked_loops if path in memory.loops)
            context.update(blocked_loops=())

    def _stop_loop(self, path: Path, outcome: Outcome) -> None:
        """Cancel the open items of a loop; it closes with the outcome once they have closed."""
        loop = self._context.memory.loops[path.text]
        if loop.outcome is not None:
            return
        self._context.put_loop(path, replace(loop, outcome=outcome))
        self._stopping.add(path.text)
        for index in range(loop.next):
            item = path.item(index)
            if self._context.task(item) is not None:
                self.stop_task(item, CANCELLED)
        self._stopping.discard(path.text)
        self._close_loop_if_stopped(path)

    def _item_closed(self, at: Location, outcome: Outcome) -> None:
        """Record the outcome of an item, and start another one or stop the loop."""
        context = self._context
        context.observer.closed(at.path, outcome, context.now)
        path = at.path.loop
        loop = context.memory.loops[path.text]
        loop = replace(loop, open=loop.open - 1)
        policy = at.compiled.loop.failure_policy if at.compiled.loop else FailurePolicy.CANCEL_RUNNING
        results = {"outputs": outcome.output, "artifacts": outcome.artifacts}
        results = {field: value for field, value in results.items() if value is not None}
        kept = loop.failures is None and at.path.step in at.flow.kept
        if outcome.status is Status.SUCCEEDED and results and kept:
            size = loop.size + sum(len(msgspec.json.encode(value)) for value in results.values())
            entries = {field: {**getattr(loop, field), str(at.path.index): value} for field, value in results.items()}
            loop = replace(loop, **entries, size=size)
            if size > MAX_LOOP_OUTPUT:
                message = (
                    f"the outputs of the items of step `{path}` have more than {MAX_LOOP_OUTPUT // 1024} KiB; let the "
                    "items return less, or keep large data elsewhere"
                )
                outcome = failed(application("OutputTooLarge", message))
                policy = FailurePolicy.CANCEL_RUNNING  # the failure is that of the loop
        recorded = (
            outcome.status is Status.CANCELLED
            if loop.outcome is not None
            else policy is not FailurePolicy.CANCEL_RUNNING
        )
        if recorded and outcome.failure is not None:
            failures = added(loop.failures, outcome.failure)
            loop = replace(loop, failures=failures, outputs={}, artifacts={}, size=0)
        context.put_loop(path, loop)
        if loop.outcome is not None:
            self._close_loop_if_stopped(path)
        elif outcome.status is Status.SUCCEEDED or loop.failures is not None:
            context.enqueue([path])
        else:
            self._stop_loop(path, outcome)

    def _run_is_full(self) -> bool:
        """Whether loops must wait because of the number of open tasks."""
        tasks = self._context.memory.tasks
        return len(tasks) >= MAX_OPEN or sum(task.size for task in tasks.values()) > MAX_OPEN_BYTES

    def _close_loop_if_stopped(self, path: Path) -> None:
        loop = self._context.memory.loops[path.text]
        if path.text not in self._stopping and not loop.open and loop.outcome is not None:
            outcome = _with_failures(loop.outcome, loop.failures) if loop.failures is not None else loop.outcome
            self._context.put_loop(path, None)
            self._close_step(path, outcome)

    def _complete_loop(self, path: Path, loop: ForEachLoop) -> None:
        """Close a loop in which no items are open or due."""
        if loop.failures is not None:
            self._context.put_loop(path, None)
            self._close_step(path, _with_failures(None, loop.failures))
            return
        output = artifacts = None
        if path.step in self._context.locate(path).flow.kept:
            output = [loop.outputs.get(str(index)) for index in range(loop.count)]
            artifacts = [loop.artifacts.get(str(index), {}) for index in range(loop.count)] if loop.artifacts else None
        self._context.put_loop(path, None)
        self._close_step(path, succeeded(output, artifacts))

    # Tasks

    def _start_task(self, path: Path) -> None:
        """Start a step or item: the timer of its timeout, and `onStart` or else its action."""
        context = self._context
        context.observer.started(path, context.now)
        at = context.locate(path)
        crowded = _waits(at.compiled) and self._too_many_wait()
        context.put_task(path, Task())
        if crowded:
            self.part_closed(path, failed(_too_many(at.where)))
            return
        try:
            timeout = context.timeout(at, "timeout", at.compiled.timeout)
            if timeout is not None:
                context.change_task(path, timed=True)
                context.start_timer(path.timeout, timeout)
            if self._begin_hook(at):
                return
        except StepError as error:
            self.part_closed(path, failed(error.failure))
            return
        self._take_limits(at)

    def stop_task(self, path: Path, outcome: Outcome) -> None:
        """Cancel the running part of a task. The task closes with the outcome after that part."""
        context = self._context
        task = context.memory.tasks[path.text]
        if task.outcome is not None or task.stage is Stage.ON_END:
            return  # `onEnd` is not interrupted
        context.put_task(path, replace(task, outcome=outcome))
        self._cancel_timeout(path)
        at = context.locate(path)
        if task.stage is Stage.LIMITS:
            actions.cancel_limits(context, path)
            self.part_closed(path, CANCELLED)
        elif task.stage is Stage.CATCH:
            self.stop(path.catch, CANCELLED)
        elif task.stage is Stage.ON_START:
            self.stop(path.on_start, CANCELLED)
        else:
            closed = self._cancel_action(at)
            if closed is not None:
                self.part_closed(path, closed)

    def part_closed(self, path: Path, outcome: Outcome) -> None:
        """Handle a failure or proceed after the action of a task, or the block of its `catch` or hook, has closed."""
        context = self._context
        task = context.task(path)
        if task is None or context.closed:
            return
        at = context.locate(path)
        if task.stage is Stage.ON_END:
            assert task.result is not None, "set as its block was opened"
            self._close_task(at, _with_hook(task.result, outcome))
        elif task.stage is Stage.ON_START and task.outcome is None and outcome.status is Status.SUCCEEDED:
            context.put_task(path, replace(task, stage=Stage.BODY))
            self._take_limits(at)
        else:
            if task.held:
                context.put_task(path, replace(task, held=False))
                actions.release_limits(context, path)
            self._cancel_timeout(path)
            decided = self._decided(at, context.memory.tasks[path.text], outcome)
            ended = None if decided is None else self._end_hook(at, decided)
            if ended is not None:
                self._close_task(at, ended)

    def _decided(self, at: Location, task: Task, outcome: Outcome) -> Outcome | None:
        """Return the outcome of a task whose action, `catch`, or `onStart` has closed; None if a `catch` has started."""
        context, wanted = self._context, task.outcome
        done = outcome.status is Status.SUCCEEDED and task.stage in {Stage.BODY, Stage.CATCH}
        if done and isinstance(at.compiled.action, RunActivity):
            context.observer.activity_completed(at.path, outcome.output)
        if wanted is not None and not (wanted.status is Status.CANCELLED and done):
            # Only the success of a stopped task counts, unless its timeout has passed. Failures in its block are still named.
            same = wanted.status is outcome.status is Status.CANCELLED
            outcome = replace(wanted, failure=outcome.failure) if same else wanted
        cancelled = wanted is not None and wanted.status is Status.CANCELLED
        if outcome.failure and task.stage is not Stage.CATCH and not cancelled:
            unhandled = self._handle(at, task, outcome.failure)
            if unhandled is None:
                return None
            outcome = failed(unhandled)
        if outcome.status is Status.SUCCEEDED and task.stage is Stage.BODY and at.compiled.compensate:
            try:
                self._record_compensation(at, at.compiled.compensate, outcome.output)
            except StepError as error:
                outcome = failed(error.failure)
        return outcome

    def _close_task(self, at: Location, outcome: Outcome) -> None:
        """Close the step or item."""
        self._context.put_task(at.path, None)
        if at.path.index is None:
            self._close_step(at.path, outcome)
        else:
            self._item_closed(at, outcome)
        self._unblock_loops()

    def _cancel_timeout(self, path: Path) -> None:
        """Cancel the timer of a task's `timeout`, if it is running."""
        task = self._context.memory.tasks[path.text]
        if task.timed:
            self._context.cancel_timer(path.timeout)
            self._context.put_task(path, replace(task, timed=False))

    def _too_many_wait(self) -> bool:
        """Whether the limit of waiting tasks, services, and blocks with a `stepsTimeout` is reached."""
        context, tasks = self._context, self._context.memory.tasks
        frames = context.memory.frames
        if len(tasks) + (1 + MAX_SERVICES) * len(frames) < MAX_WAITING:
            return False
        timed = sum(frame.steps_timeout is not None for path, frame in frames.items() if path)
        served = (context.program.flows[each.block] for each in frames.values() if each.services is not None)
        timed += sum(len(flow.services) for flow in served)
        if len(tasks) + timed < MAX_WAITING:
            return False
        context.work += 10 * len(tasks)
        waiting = (
            task.stage in {Stage.ON_START, Stage.LIMITS, Stage.BODY}
            and _waits(context.locate(Path.parse(path)).compiled)
            for path, task in tasks.items()
        )
        return sum(waiting) + timed >= MAX_WAITING

    # The limits and the action of a task

    def _take_limits(self, at: Location) -> None:
        """Take the limits of a task first, if it has any, and then start the action."""
        if not at.compiled.step.limits:
            self._start_action(at)
            return
        try:
            actions.take_limits(self._context, at)
        except StepError as error:
            self.part_closed(at.path, failed(error.failure))

    def limits_taken(self, path: Path) -> None:
        """Start the action of a task that now holds its limits. If the task has ended, release them again."""
        context, task = self._context, self._context.task(path)
        if task is None or task.stage is not Stage.LIMITS:
            actions.release_limits(context, path)
            return
        context.put_task(path, replace(task, stage=Stage.BODY, held=True))
        self._start_action(context.locate(path))

    def _start_action(self, at: Location) -> None:
        """Start the action of a task, and close it if the action closes as it starts."""
        outcome: Outcome | None = None
        try:
            match at.compiled.action:
                case CallBlock() as action:
                    self._call(at, action)
                case Switch() as action:
                    outcome = self._switch(at, action)
                case Parallel() as action:
                    self._parallel(at, action)
                case Return() as action:
                    output = self._context.evaluate(at, action.output)
                    self.stop(at.path.parent, succeeded(output))  # cancels this step too: it succeeds
                case action:
                    outcome = actions.start(self._context, at, action)
        except StepError as error:
            outcome = failed(error.failure)
        if outcome is not None:
            self.part_closed(at.path, outcome)

    def _cancel_action(self, at: Location) -> Outcome | None:
        """Cancel the action of a task. Return its outcome if it closes immediately; frames close later."""
        match at.compiled.action:
            case CallBlock() | Switch():
                self.stop(at.path, CANCELLED)
                return None
            case Parallel() as action:
                self._stop_branches(at.path, action.branches)
                return None
            case Return():
                return succeeded()
            case action:
                return actions.cancel(self._context, at, action)

    def _call(self, at: Location, action: CallBlock) -> None:
        """Open the frame of a block. Raises StepError."""
        self.open(at.path, action.block, self._context.evaluate(at, action.input), caller=at.path.frame)

    def _switch(self, at: Location, action: Switch) -> Outcome | None:
        """Call the block of the first case whose condition is true, or the default. Raises StepError."""
        holds = (case.call for case in action.cases if self._context.evaluate(at, case.when))
        chosen = next(holds, action.default)
        if chosen is None:
            return succeeded()
        self._call(at, chosen)
        return None

    def _parallel(self, at: Location, action: Parallel) -> None:
        """Open a frame for each branch, or for none. Raises StepError."""
        context = self._context
        opened: list[Path] = []
        for name, call in action.branches.items():
            frame = at.path.branch(name)
            try:
                self.open(frame, call.block, context.evaluate(at, call.input), branch=name, caller=at.path.frame)
            except StepError:
                for each in opened:
                    self._cancel_steps_timeout(each)
                    services.stop(context, each)
                    context.put_frame(each, None)
                    context.observer.discarded(each)
                raise
            opened.append(frame)

    def _branch_closed(self, path: Path, branch: str, outcome: Outcome) -> None:
        """Record the outcome of a branch. Cancel the others once the step has an outcome, and close it with the last one."""
        at = self._context.locate(path)
        action = at.compiled.action
        assert isinstance(action, Parallel)
        task = self._context.memory.tasks[path.text]
        branches = {**task.branches, branch: outcome}
        self._context.put_task(path, replace(task, branches=branches))
        closed = [branches[name] for name in action.branches if name in branches]
        succeeded_count = sum(each.status is Status.SUCCEEDED for each in closed)
        failed_count = sum(each.status is Status.FAILED for each in closed)
        total = len(action.branches)
        decided = succeeded_count >= action.required or (
            total - failed_count < action.required and action.failure_policy is FailurePolicy.CANCEL_RUNNING
        )
        if decided and len(closed) < total:
            self._stop_branches(path, action.branches)
        elif len(closed) == total:
            joined = _joined(at, action, branches)
            stopped = task.outcome is not None and task.outcome.status is Status.CANCELLED
            if stopped and joined.status is Status.FAILED and action.failure_policy is not FailurePolicy.CANCEL_RUNNING:
                joined = replace(CANCELLED, failure=joined.failure)
            self.part_closed(path, joined)

    def _stop_branches(self, path: Path, names: Iterable[str]) -> None:
        for name in names:
            self.stop(path.branch(name), CANCELLED)

    # Failures, hooks, and compensations

    def _handle(self, at: Location, task: Task, failure: Failure) -> Failure | None:
        """Handle a failure with a `catch`. Return the failure that remains; None if a block has started to handle it."""
        context = self._context
        context.observer.failed(at.path, failure)
        of_activity = task.stage is Stage.BODY and failure.kind is FailureKind.ACTIVITY
        if of_activity and at.compiled.step.dead_letter:
            context.commands.append(cmd.RecordMarker(marker_name=DEAD_LETTER, details=self._dead_letter(at, failure)))
        for clause in at.compiled.catch:
            if not matches(failure, clause.error_types):
                continue
            context.put_task(at.path, replace(task, stage=Stage.CATCH, timed=False, outcome=None, branches={}, size=0))
            try:
                variables = {clause.variable: as_variable(failure, clause.error_types)}
                params = context.evaluate(at, clause.call.input, **variables)
                self.open(at.path.catch, clause.call.block, params, caller=at.path.frame, caught=failure)
            except StepError as error:
                return replace(error.failure, cause=failure)
            return None
        return failure

    def _dead_letter(self, at: Location, failure: Failure) -> dict[str, Any]:
        """Return the marker data for a permanently failed activity. Its input is in its Scheduled event."""
        return {
            "step": at.path.text,
            "activity": failure.activity,
            "scheduledEventId": getattr(self._context.event, "scheduled_event_id", 0),
            "failure": as_json(failure),
        }

    def _begin_hook(self, at: Location) -> bool:
        """Open the block of `onStart`. Return whether it is defined. Raises StepError."""
        hook = at.compiled.on_start
        if hook is None:
            return False
        self._context.change_task(at.path, stage=Stage.ON_START)
        params = self._context.evaluate(at, hook.input)
        self.open(at.path.on_start, hook.block, params, caller=at.path.frame)
        return True

    def _end_hook(self, at: Location, outcome: Outcome) -> Outcome | None:
        """Open the block of `onEnd`. Return the outcome of the step if the block is not defined or cannot run."""
        hook = at.compiled.on_end
        if hook is None:
            return outcome
        self._context.put_task(at.path, Task(stage=Stage.ON_END, result=outcome))
        try:
            params = self._context.evaluate(at, hook.input, step=ended_as_json(outcome))
            self.open(at.path.on_end, hook.block, params, caller=at.path.frame)
        except StepError as error:
            return _with_hook(outcome, failed(error.failure))
        return None

    def _record_compensation(self, at: Location, action: RunActivity | CallBlock, output: Any) -> None:
        """Evaluate and record the compensation of a task that has completed. Raises StepError."""
        context, name = self._context, at.path.step
        frame = context.memory.frames[at.path.frame]
        record = step_as_json(replace(frame.steps[name], status=Status.SUCCEEDED, end_time=context.now, output=output))

        def evaluate(template: Template | None) -> Any:
            wanted = template.references.steps if template else ()
            steps = {**{n: step_as_json(frame.steps[n]) for n in wanted if n in frame.steps}, name: record}
            return context.evaluate(at, template, steps=steps)

        value = evaluate(action.input)
        limits = coercion.of_activity(at.where, action.timeouts, evaluate) if isinstance(action, RunActivity) else {}
        if context.memory.closing is None:
            recorded = Compensation(
                path=at.path.text, block=frame.block, depth=frame.depth, input=value, timeouts=limits
            )
            context.update(compensations=(*context.memory.compensations, recorded))


def _too_deep(block: str) -> Failure:
    message = f"`{block}` stands more than {MAX_DEPTH} blocks deep, or its path has more than {MAX_PATH} characters"
    return application("BlockDepthExceeded", message)


def _is_full(frame: Frame, flow: Flow) -> bool:
    """Whether no other step of a frame may run now."""
    limit = flow.max_concurrency
    return limit is not None and sum(each.status is Status.RUNNING for each in frame.steps.values()) >= limit


def _with_failures(outcome: Outcome | None, failures: Failures) -> Outcome:
    """Return the outcome of a frame or loop in which something has failed: it fails, too, unless it was cancelled.

    Args:
        outcome: The outcome with which it was stopped; None if it was not.
        failures: The failures.
    """
    if outcome is not None and outcome.status is Status.CANCELLED:
        return replace(outcome, failure=combined(failures))
    if outcome is not None and outcome.failure is not None:
        failures = replace(failures, kept=(outcome.failure, *failures.kept), count=failures.count + 1)
    return failed(combined(failures))


def _is_due(frame: Frame, step: CompiledStep) -> bool:
    """Whether a step has not started and nothing that it needs is running or has failed."""
    records = [frame.steps.get(need) for need in step.needs]
    return step.name not in frame.steps and all(
        record is not None and record.status not in {Status.RUNNING, Status.FAILED} for record in records
    )


def _continues(frame: Frame, flow: Flow) -> bool:
    """Whether steps of a frame with failures start later."""
    return flow.failure_policy is FailurePolicy.CONTINUE and any(_is_due(frame, step) for step in flow.steps)


def _consecutive(items: list[Any], first: int) -> bool:
    """Whether the items are consecutive integers, which need not be kept."""
    return items == list(range(first, first + len(items))) and all(type(item) is int for item in items)


def _waits(step: CompiledStep) -> bool:
    """Whether a step itself waits, at least for its timeout. Other steps run blocks or close as they start."""
    waiting = RunActivity | RunChild | WaitForSignal | Sleep | SignalRun | WaitUntil
    return isinstance(step.action, waiting) or step.timeout is not None or bool(step.step.limits)


def _too_many(where: str) -> Failure:
    message = (
        f"{where}: {MAX_WAITING} steps and items of the run wait already, which is as many as may; let a `forEach` begin "
        "fewer at a time (`maxConcurrency`), or divide the work into child workflows"
    )
    return application("PendingLimitExceeded", message)


def _joined(at: Location, action: Parallel, branches: dict[str, Outcome]) -> Outcome:
    """Return the outcome of a parallel step after all its branches have closed."""
    names, required = list(action.branches), action.required
    outputs = {name: branches[name].output for name in names if branches[name].status is Status.SUCCEEDED}
    if len(outputs) >= required:
        return succeeded(outputs)
    failures = [failure for name in names if (failure := branches[name].failure) is not None]
    if not failures:
        return CANCELLED
    if action.failure_policy is not FailurePolicy.CANCEL_RUNNING:
        first, *others = failures
        return failed(combined(reduce(added, others, added(None, first))))
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


def _with_hook(result: Outcome, hook: Outcome) -> Outcome:
    """Combine the outcomes of a step and its hook. A failed hook fails a successful step, and is added to another failure."""
    if hook.failure is None or result.status is Status.CANCELLED:
        return result
    if result.failure is None:
        return hook
    return failed(replace(result.failure, suppressed=(*result.failure.suppressed, hook.failure)))
