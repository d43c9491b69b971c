"""What each kind of step does: how it begins, how it stops, how its events end it. One class for each kind.

``begin`` gives the ending where there is nothing to wait for, None where something was begun. ``stop`` gives the ending
where it can stop at once, None where it has to be waited for.
"""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from perdure.api.durations import show_duration
from perdure.api.names import MAX_WORKFLOW_ID
from perdure.api.steps import ActivityCall, CancellationType, Compensate
from perdure.api.workflow import Activity
from perdure.engine import commands as cmd
from perdure.engine.failures import Failure, FailureKind, shorten
from perdure.engine.starts import ParentClosePolicy, WorkflowStart
from perdure.language import timeouts
from perdure.language.body import At, Body, Steps
from perdure.language.conversions import as_length, as_moment, as_text
from perdure.language.failures import EXPRESSION_ERROR, StepError, application, timeout
from perdure.language.memory import CANCELLED, Ending, Status, Undo, failed, parse_path, succeeded
from perdure.language.program import Program, retry_policy
from perdure.language.timeouts import OF_ACTIVITY

WAIT_TIMEOUT = "waitTimeout"
"""Key of the template of the `timeout` of `waitForSignal` and `waitUntil`."""


class Instant:
    """A kind that ends as it begins: there is never anything to stop."""

    def stop(self, steps: Steps, at: At) -> Ending | None:  # noqa: ARG002 (the protocol)
        """Nothing is open."""
        return CANCELLED


class ActivityBody:
    """Has an activity done."""

    def begin(self, steps: Steps, at: At) -> None:
        """Schedule it."""
        call = at.compiled.step.activity
        assert call is not None
        value = steps.evaluate(at, "input")
        size = len(msgspec.json.encode(value))
        steps.work += size >> 3
        steps.put_task(at.path, msgspec.structs.replace(steps.memory.tasks[at.path], size=size))
        computed = timeouts.of_call(at.where, call, lambda key: steps.evaluate(at, key))
        steps.commands.append(schedule(steps.program, call, at.path, value, computed))

    def stop(self, steps: Steps, at: At) -> Ending | None:
        """Ask it to stop, or leave it to itself."""
        call = at.compiled.step.activity
        assert call is not None
        if call.cancellation_type is not CancellationType.ABANDON:
            steps.commands.append(cmd.RequestCancelActivityTask(activity_id=at.path))
        return None if call.cancellation_type is CancellationType.WAIT_CANCELLATION_COMPLETED else CANCELLED


class SleepBody:
    """Waits for some time."""

    def begin(self, steps: Steps, at: At) -> None:
        """Start the timer."""
        sleep = at.compiled.step.sleep
        assert sleep is not None
        try:
            if sleep.duration is not None:
                given = steps.evaluate(at, "duration") if isinstance(sleep.duration, str) else sleep.duration
                length = as_length(given)
            else:
                until = steps.evaluate(at, "until") if isinstance(sleep.until, str) else sleep.until
                length = as_moment(until) - steps.now
        except ValueError as error:
            raise StepError(application(EXPRESSION_ERROR, f"{at.where}: `sleep`: {error}")) from error
        steps.start_timer(at.path, length)

    def stop(self, steps: Steps, at: At) -> Ending:
        """Cancel the timer."""
        steps.commands.append(cmd.CancelTimer(timer_id=at.path))
        return CANCELLED


class WaitForSignalBody:
    """Takes a signal, also one that came before."""

    def begin(self, steps: Steps, at: At) -> Ending | None:
        """Take the oldest of that name, or wait."""
        wait = at.compiled.step.wait_for_signal
        assert wait is not None
        signals = steps.memory.signals
        for i, signal in enumerate(signals):
            if signal.name == wait.name:
                steps.set(signals=(*signals[:i], *signals[i + 1 :]))
                steps.dirty = True
                return succeeded(signal.input)
        _limit(steps, at, wait.timeout)
        steps.set(listeners=(*steps.memory.listeners, at.path))
        return None

    def stop(self, steps: Steps, at: At) -> Ending:
        """No longer wait."""
        unwait(steps, at)
        return CANCELLED


class WaitUntilBody:
    """Waits until a condition holds."""

    def begin(self, steps: Steps, at: At) -> Ending | None:
        """Ask, and if it does not hold, ask again whenever something happened."""
        wait = at.compiled.step.wait_until
        assert wait is not None
        if steps.evaluate(at, "condition"):
            return succeeded()
        _limit(steps, at, wait.timeout)
        steps.set(watchers=(*steps.memory.watchers, at.path))
        return None

    def stop(self, steps: Steps, at: At) -> Ending:
        """No longer wait."""
        unwait(steps, at)
        return CANCELLED


def _limit(steps: Steps, at: At, given: timedelta | str | None) -> None:
    limit = steps.limit(at, WAIT_TIMEOUT, given)
    if limit is not None:
        steps.start_timer(at.path, limit)


def unwait(steps: Steps, at: At) -> None:
    """Forget that a task waits for a signal or a condition, and its time limit."""
    memory = steps.memory
    steps.set(
        listeners=tuple(path for path in memory.listeners if path != at.path),
        watchers=tuple(path for path in memory.watchers if path != at.path),
    )
    wait = at.compiled.step.wait_for_signal or at.compiled.step.wait_until
    if wait is not None and wait.timeout is not None:
        steps.commands.append(cmd.CancelTimer(timer_id=at.path))


def time_is_up(steps: Steps, at: At) -> Ending:
    """The timer of a sleep or of a wait has fired."""
    step = at.compiled.step
    if step.sleep:
        return succeeded()
    wait = step.wait_for_signal or step.wait_until
    assert wait is not None
    limit = show_duration(steps.limit_of(at.path, WAIT_TIMEOUT, wait.timeout))
    unwait(steps, at)
    if step.wait_for_signal:
        return failed(timeout(f"{at.where}: no signal `{step.wait_for_signal.name}` came within {limit}"))
    return failed(timeout(f"{at.where}: the condition did not hold within {limit}"))


class ChildWorkflowBody:
    """Starts another run and waits for it."""

    def begin(self, steps: Steps, at: At) -> None:
        """Ask for the child."""
        child = at.compiled.step.child_workflow
        assert child is not None
        value = steps.evaluate(at, "input")
        size = len(msgspec.json.encode(value))
        steps.work += size >> 3
        steps.put_task(at.path, msgspec.structs.replace(steps.memory.tasks[at.path], size=size))
        workflow_id = as_text(steps.evaluate(at, "workflowId"))
        if len(workflow_id) > MAX_WORKFLOW_ID:
            message = f"{at.where}: `workflowId` has {len(workflow_id)} characters; it may have {MAX_WORKFLOW_ID}"
            raise StepError(application(EXPRESSION_ERROR, message))
        attributes = steps.evaluate(at, "searchAttributes") or {}
        execution, run = (
            timeouts.positive(at.where, key, steps.evaluate(at, key)) if isinstance(given, str) else given
            for key, given in (("executionTimeout", child.execution_timeout), ("runTimeout", child.run_timeout))
        )
        steps.commands.append(
            cmd.StartChildWorkflowExecution(
                child_id=at.path,
                start=WorkflowStart(
                    workflow_type=child.workflow.name or child.workflow.type or "",
                    task_queue=child.workflow.task_queue or "",
                    workflow_id=workflow_id,
                    workflow_id_reuse_policy=child.workflow_id_reuse_policy.value,
                    input=value,
                    workflow_execution_timeout=execution or None,
                    workflow_run_timeout=run or None,
                    workflow_task_timeout=child.task_timeout,
                    search_attributes=attributes,
                ),
                retry_policy=retry_policy(child.retry_policy) if child.retry_policy else None,
                parent_close_policy=ParentClosePolicy(child.parent_close_policy.value),
            )
        )

    def stop(self, steps: Steps, at: At) -> Ending | None:
        """Ask it to cancel itself, or leave it to itself."""
        child = at.compiled.step.child_workflow
        assert child is not None
        if child.cancellation_type is not CancellationType.ABANDON:
            steps.commands.append(
                cmd.RequestCancelExternalWorkflowExecution(child_id=at.path, reason="the step was cancelled")
            )
        return None if child.cancellation_type is CancellationType.WAIT_CANCELLATION_COMPLETED else CANCELLED


class CallBody:
    """Runs a block."""

    def begin(self, steps: Steps, at: At) -> None:
        """Open its frame."""
        call = at.compiled.step.call
        assert call is not None
        steps.open_frame(at.path, call.block, steps.evaluate(at, "input"), outer=at.frame)

    def stop(self, steps: Steps, at: At) -> None:
        """Stop its frame."""
        steps.stop_frame(at.path, CANCELLED)


class SwitchBody:
    """Runs one of several blocks, or none."""

    def begin(self, steps: Steps, at: At) -> Ending | None:
        """Ask the cases in order."""
        switch = at.compiled.step.switch
        assert switch is not None
        for i, case in enumerate(switch.cases):
            if steps.evaluate(at, f"case/{i}"):
                steps.open_frame(at.path, case.call.block, steps.evaluate(at, f"input/{i}"), outer=at.frame)
                return None
        if switch.default:
            steps.open_frame(at.path, switch.default.call.block, steps.evaluate(at, "input/default"), outer=at.frame)
            return None
        return succeeded()

    def stop(self, steps: Steps, at: At) -> None:
        """Stop the block."""
        steps.stop_frame(at.path, CANCELLED)


class ParallelBody:
    """Runs blocks at the same time, until as many as are wanted have succeeded, or too many have failed."""

    def begin(self, steps: Steps, at: At) -> None:
        """Open a frame for each branch."""
        parallel = at.compiled.step.parallel
        assert parallel is not None
        opened: list[str] = []
        for branch in parallel.branches:
            try:
                params = steps.evaluate(at, f"branch/{branch.name}")
                steps.open_frame(f"{at.path}.{branch.name}", branch.block, params, branch=branch.name, outer=at.frame)
            except StepError:
                for name in opened:
                    steps.put_frame(f"{at.path}.{name}", None)  # nothing in it has begun
                raise
            opened.append(branch.name)

    def stop(self, steps: Steps, at: At) -> None:
        """Stop the branches that are open; the last of them to end ends the step."""
        parallel = at.compiled.step.parallel
        assert parallel is not None
        for branch in parallel.branches:
            steps.stop_frame(f"{at.path}.{branch.name}", CANCELLED)


def branch_ended(steps: Steps, path: str, branch: str, ending: Ending) -> None:
    """One branch of a parallel step has ended: stop the others when the step is decided, and end it with the last."""
    at = steps.at(path)
    parallel = at.compiled.step.parallel
    assert parallel is not None
    task = steps.memory.tasks[path]
    task = msgspec.structs.replace(task, branches={**task.branches, branch: ending})
    steps.put_task(path, task)
    names = [b.name for b in parallel.branches]
    ended = [task.branches[name] for name in names if name in task.branches]
    wanted = len(names) if parallel.wait == "All" else 1 if parallel.wait == "Any" else int(parallel.wait)
    good = sum(e.status is Status.SUCCEEDED for e in ended)
    bad = [e for e in ended if e.status is Status.FAILED]
    decided = good >= wanted or len(names) - len(bad) < wanted
    if decided and len(ended) < len(names):
        for name in names:
            steps.stop_frame(f"{path}.{name}", CANCELLED)
        return
    if len(ended) == len(names):
        steps.end_body(path, _joined(steps, at, names, wanted))


def _joined(steps: Steps, at: At, names: list[str], wanted: int) -> Ending:
    """How a parallel step ends, all of whose branches have."""
    branches = steps.memory.tasks[at.path].branches
    good = {name: branches[name].output for name in names if branches[name].status is Status.SUCCEEDED}
    if len(good) >= wanted:
        return succeeded(good)
    failures = [failure for name in names if (failure := branches[name].failure) is not None]
    if not failures:
        return CANCELLED
    if len(failures) == 1 or wanted == len(names):
        return failed(failures[0])
    told = "; ".join(failure.message for failure in failures)
    message = f"{at.where}: {len(failures)} of {len(names)} branches failed, {wanted} had to succeed: {told}"
    return failed(
        Failure(
            kind=FailureKind.APPLICATION,
            type="BranchesFailed",
            message=shorten(message),
            cause=failures[-1],
            suppressed=tuple(failures[:-1]),
        )
    )


class SetBody(Instant):
    """Sets variables."""

    def begin(self, steps: Steps, at: At) -> Ending:
        """Evaluate and remember them."""
        values = steps.evaluate(at, "set")
        steps.set(vars={**steps.memory.vars, **values})
        steps.dirty = True
        return succeeded(values)


class SignalBody:
    """Tells another run something."""

    def begin(self, steps: Steps, at: At) -> None:
        """Ask for it; the other run's answer ends the step."""
        steps.commands.append(
            cmd.SignalExternalWorkflowExecution(
                signal_id=at.path,
                workflow_id=as_text(steps.evaluate(at, "workflowId")),
                signal_name=as_text(steps.evaluate(at, "name")),
                input=steps.evaluate(at, "input"),
            )
        )

    def stop(self, steps: Steps, at: At) -> Ending:  # noqa: ARG002 (the protocol)
        """It is under way, and no longer waited for."""
        return CANCELLED


class ContinueAsNewBody(Instant):
    """Goes on in a new run."""

    def begin(self, steps: Steps, at: At) -> None:
        """Close this one."""
        given = at.compiled.step.continue_as_new
        assert given is not None
        value = steps.evaluate(at, "input") if "input" in at.compiled.templates else steps.scope["input"]
        steps.continue_as_new(value)


class FailBody(Instant):
    """Fails the block or the run."""

    def begin(self, steps: Steps, at: At) -> Ending:
        """Fail; in the block of a `catch`, because of what was caught."""
        given = at.compiled.step.fail
        assert given is not None
        return failed(
            Failure(
                kind=FailureKind.APPLICATION,
                type=given.type,
                message=as_text(steps.evaluate(at, "message")),
                details=steps.evaluate(at, "details"),
                non_retryable=given.non_retryable,
                cause=_caught(steps, at.frame),
            )
        )


def _caught(steps: Steps, frame: str) -> Failure | None:
    """The failure that the block handles in which a step stands, or the block that called it."""
    while frame in steps.memory.frames:
        caught = steps.memory.frames[frame].caught
        if caught is not None or not frame:
            return caught
        frame = frame.rpartition("/")[0]  # not parse_path: the path of a branch or of a `catch` is none of a task
    return None


class ReturnBody:
    """Ends the block or the run."""

    def begin(self, steps: Steps, at: At) -> None:
        """Stop everything else in the frame; this step, which is told so too, has succeeded."""
        steps.stop_frame(at.frame, succeeded(steps.evaluate(at, "output")))

    def stop(self, steps: Steps, at: At) -> Ending:  # noqa: ARG002 (the protocol)
        """It has done what it is there for."""
        return succeeded()


BODIES: dict[str, Body] = {
    "activity": ActivityBody(),
    "sleep": SleepBody(),
    "wait_for_signal": WaitForSignalBody(),
    "wait_until": WaitUntilBody(),
    "child_workflow": ChildWorkflowBody(),
    "call": CallBody(),
    "switch": SwitchBody(),
    "parallel": ParallelBody(),
    "set": SetBody(),
    "signal": SignalBody(),
    "continue_as_new": ContinueAsNewBody(),
    "fail": FailBody(),
    "return": ReturnBody(),
}
"""By the name that `Step.kind` gives."""


def schedule(
    program: Program, call: ActivityCall, activity_id: str, value: object, computed: Mapping[str, timedelta]
) -> cmd.ScheduleActivityTask:
    """The command for an activity, with what the call overrides; `computed` are the timeouts that expressions gave."""
    definition = program.activities[call.name]
    limits = {name: computed.get(name) or _literal(call, name) or _literal(definition, name) for name in OF_ACTIVITY}
    return cmd.ScheduleActivityTask(
        activity_id=activity_id,
        activity_type=(definition.worker.type if definition.worker else None) or call.name,
        task_queue=definition.worker.task_queue if definition.worker else "",
        input=value,
        schedule_to_close_timeout=limits["schedule_to_close_timeout"],
        schedule_to_start_timeout=limits["schedule_to_start_timeout"],
        start_to_close_timeout=limits["start_to_close_timeout"],
        heartbeat_timeout=limits["heartbeat_timeout"],
        retry_policy=retry_policy(call.retry_policy or definition.retry_policy),
    )


def _literal(given: ActivityCall | Activity, name: str) -> timedelta | None:
    value = getattr(given, name)
    return value if isinstance(value, timedelta) else None


def compensation(program: Program, undo: Undo) -> Compensate:
    """What undoes a step."""
    compensate = program.flows[undo.block].by_name[parse_path(undo.path)[1]].step.compensate
    assert compensate is not None
    return compensate


def begin_undo(steps: Steps, undo: Undo, path: str) -> None:
    """Begin a compensation; raises StepError."""
    compensate = compensation(steps.program, undo)
    if compensate.activity:
        steps.commands.append(schedule(steps.program, compensate.activity, path, undo.input, undo.timeouts))
    elif compensate.call:
        steps.open_frame(path, compensate.call.block, undo.input)
