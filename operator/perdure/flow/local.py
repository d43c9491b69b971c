"""Runs flows in this process, in virtual time: the workflow code of the Temporal SDK, and the functions of the activities.

This plays the server for the SDK: it hands its workflow instances what has happened, and does what they command. Timers and
delays of retries take no time. Only what the SDK exports for other workflow runners is used, and the messages that those get.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import json
import uuid
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar

from temporalio import workflow
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import RetryState
from temporalio.api.enums.v1 import TimeoutType as ProtoTimeoutType
from temporalio.api.failure.v1 import ActivityFailureInfo, CanceledFailureInfo, Failure, TimeoutFailureInfo
from temporalio.bridge.proto import activity_result, child_workflow
from temporalio.bridge.proto import workflow_activation as activation
from temporalio.bridge.proto import workflow_commands as commands
from temporalio.common import Priority, SearchAttributePair, TypedSearchAttributes
from temporalio.converter import DataConverter, DefaultFailureConverter
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from perdure import activity as pods
from perdure.activity._context import MESSAGE_LIMIT, result_too_large
from perdure.api.files import EXCHANGE
from perdure.api.kinds.retrypolicy import RetryPolicySpec, RetryRules
from perdure.api.names import FILES_FIELD
from perdure.api.times import format_duration
from perdure.client.run_requests import encoded
from perdure.engine import failures
from perdure.engine.activities import too_many_losses
from perdure.engine.failures import FailureKind, TimeoutType
from perdure.engine.retry import RetryPolicy, decide_retry
from perdure.flow.control import SCHEDULED_TIME, type_of
from perdure.flow.definitions import (
    Activity,
    Duration,
    Environment,
    Flow,
    Retry,
    duration,
    environment_named,
    environments_kept,
)
from perdure.flow.files import LocalStore
from perdure.flow.manifests import retry_policy
from perdure.flow.repeats import Decisions
from perdure.flow.sandbox import RESTRICTED, advice, sandboxed_instance
from perdure.flow.workspaces import FOLDERS
from perdure.kube import clock
from perdure.language.program import retry_rules
from perdure.runtime.pods.payloads import LARGE_RESULT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from google.protobuf.duration_pb2 import Duration as ProtoDuration

    from perdure.flow.files import LocalFiles
    from perdure.flow.workspaces import Workspace

P = ParamSpec("P")
R = TypeVar("R")

_PODS: Final = "pods/"
_DEEPEST: Final = 100
"""Maximum number of flows that are children of each other."""
_CONVERTER: Final = DataConverter.default
_IN_USE: Any = "START_CHILD_WORKFLOW_EXECUTION_FAILED_CAUSE_WORKFLOW_ALREADY_EXISTS"
_TIMEOUTS: Final = {
    TimeoutType.START_TO_CLOSE: ProtoTimeoutType.TIMEOUT_TYPE_START_TO_CLOSE,
    TimeoutType.SCHEDULE_TO_CLOSE: ProtoTimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE,
    TimeoutType.HEARTBEAT: ProtoTimeoutType.TIMEOUT_TYPE_HEARTBEAT,
}

Outcome = Literal["Completed", "Failed", "TimedOut", "Lost", "Cancelled", "Stopped", "Running"]

_Action = Awaitable[None] | None
"""What an action of the queue does later, if it does."""


class StuckError(RuntimeError):
    """A flow waits for something that nobody will do, such as a signal that the test does not send."""


class SandboxError(RuntimeError):
    """A flow did what only activities may, such as to read the clock: a worker would not continue its run until it is changed."""


class PodLostError(Exception):
    """The error of an attempt that a test has lost."""


class AttemptTimeoutError(Exception):
    """The error of an attempt, or of an activity, that has taken too long."""

    type = FailureKind.TIMEOUT

    def __init__(self, limit: TimeoutType) -> None:
        """`limit`: the timeout that it has reached."""
        super().__init__(f"the attempt has reached its {limit} timeout")
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Call:
    """An attempt of an activity in a local run."""

    activity: str
    id: str
    """The ID of the activity, such as `train[lr=0.1]`."""
    arguments: Mapping[str, Any]
    """As JSON."""
    attempt: int
    time: datetime
    error: BaseException | None = None
    """Why it failed, or did not end."""
    outcome: Outcome = "Running"
    """How it ended. `Stopped`: the end of the flow stopped it; `Running`: it has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an attempt ends."""

    result: Any = None
    """As JSON."""
    error: BaseException | None = None
    takes: timedelta | None = timedelta()
    """How long it runs; None: until a timeout or a cancellation ends it."""
    calls: bool = False
    """Whether the function decides. It is called at the end, so that the function of an attempt that is cancelled or times out is
    not called: the loser of a race takes no time."""


@dataclass(slots=True)
class _Script:
    """What a test has decided about the attempts of an activity."""

    errors: deque[BaseException] = field(default_factory=deque)
    takes: timedelta = timedelta()
    function: Callable[..., Any] | None = None
    """What runs in place of its function."""


@dataclass(slots=True)
class _Task:
    """An activity that has not ended."""

    execution: _Execution
    seq: int
    command: Any
    local: bool
    scheduled: datetime
    attempt: int = 0
    losses: int = 0
    """How many attempts were lost, which do not count for retries."""
    details: Any = None
    open: bool = True
    call: int = -1
    """The index of its running attempt in `calls`; -1: no attempt runs."""


@dataclass(slots=True, eq=False)
class _Execution:
    """One run of a workflow."""

    flow: Flow[..., Any]
    workflow_id: str
    run_id: str
    instance: WorkflowInstance
    on_close: Callable[[_Execution], object]
    start: activation.InitializeWorkflow
    parent: _Execution | None
    decisions: Decisions | None
    """What it has decided, to repeat it; None if a sandbox checks it."""
    tasks: dict[int, _Task] = field(default_factory=dict)
    timers: set[int] = field(default_factory=set)
    children: dict[int, _Execution] = field(default_factory=dict)
    closed: bool = False
    result: Any = None
    error: BaseException | None = None


class LocalRun:
    """A run of a flow in this process, with the failures, losses, and signals that a test decides.

    run = LocalRun()
    run.fail(extract, ConnectionError("no route"), times=2)
    run.send_signal("approve", True, after="1h")
    assert run.run(nightly, day=date(2026, 11, 27)) == 7
    assert [call.attempt for call in run.calls if call.activity == "extract"] == [1, 2, 3]
    """

    def __init__(
        self,
        *,
        start: datetime | None = None,
        activities: Mapping[str, Callable[..., Any]] | None = None,
        scheduled_time: datetime | None = None,
        retry_policies: Mapping[str, Retry | RetryPolicySpec] | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            start: The time at which it starts; None: now.
            activities: Functions for activities of other workers, by type.
            scheduled_time: When the Schedule that starts it is due, with a zone; None: no Schedule starts it.
            retry_policies: The RetryPolicies that activities name; an attempt that fails needs that of its activity.
        """
        self.now = start or clock.now()
        """The virtual time."""
        self.calls: list[Call] = []
        """The attempts of activities so far, in order."""
        self.start = self.now
        """When it starts, or has started."""
        self.scheduled_time = scheduled_time
        """What `scheduled_time()` of the flow returns, but not of its children."""
        self.retry_policies = dict(retry_policies or {})
        """The RetryPolicies that activities name, by name. Their circuit breakers have no effect."""
        self.runs = 1
        """How many runs there are so far: more than one after continue-as-new."""
        self._activities = dict(activities or {})
        self._scripts: defaultdict[tuple[str, str], _Script] = defaultdict(_Script)
        """What a test has decided, by environment and activity."""
        self._plan: list[tuple[timedelta, Callable[[], _Action]]] = []
        """What is done to the flow, and how long after its start."""
        self._queue: list[tuple[datetime, bool, int, Callable[[], _Action]]] = []
        self._numbers = itertools.count()
        self.max_actions = 1_000_000
        """The number of events after which a flow counts as endless."""
        self.max_attempts = 1_000
        """The number of attempts after which an activity counts as endless whose function fails, and that has no other limit."""
        self._executions: list[_Execution] = []
        self._root: _Execution | None = None
        self.sandbox = True
        """Whether flows run in the sandbox of workers, which imports their module again: not for debuggers, and not if a test has
        changed the module. A flow whose module cannot be imported again is replayed at the end, and must decide the same."""
        self._store = LocalStore()
        """What has the files and workspaces of activities."""

    # What a test decides

    def fail(self, activity: Activity[..., Any], error: BaseException, *, times: int = 1) -> None:
        """Let the next attempts of an activity fail.

        Args:
            activity: The activity.
            error: The error of its function.
            times: The number of attempts.
        """
        self._script(activity).errors.extend([error] * times)

    def lose(self, activity: Activity[..., Any], *, times: int = 1) -> None:
        """Let the next attempts of an activity be lost with their nodes, so that they run again."""
        self.fail(activity, PodLostError("the pod was lost"), times=times)

    def replace(self, activity: Activity[..., Any], function: Callable[..., Any]) -> None:
        """Run another function in place of that of an activity, such as one without a warehouse.

        Args:
            activity: The activity.
            function: Gets its arguments, and returns what the activity would return.
        """
        self._script(activity).function = function

    def set_duration(self, activity: Activity[..., Any], time: Duration) -> None:
        """Let each attempt of an activity take a virtual time; 0 by default."""
        self._script(activity).takes = duration(time)

    def _script(self, activity: Activity[..., Any] | None) -> _Script:
        """What a test has decided about an activity; about one of another worker, nothing."""
        return _Script() if activity is None else self._scripts[activity.environment.name, activity.name]

    def folder_of(self, workspace: Workspace) -> Path:
        """Return the folder that is a workspace of the flow, so that a test can put files there, and read them."""
        return self._store.workspace("claim" if workspace.claim is not None else "", workspace.name)

    def send_signal(self, name: str, value: Any = None, *, after: Duration = "0s") -> None:
        """Send a signal to the flow, a time after its start.

        Raises:
            ValueTypeError: JSON cannot represent its value.
        """
        stored = encoded(value, f"the signal {name}")
        self._plan.append((duration(after), lambda: self._signal(self._require_root(), name, stored)))

    def cancel(self, *, after: Duration = "0s") -> None:
        """Cancel the flow, a time after its start."""
        self._plan.append((duration(after), lambda: self._cancel(self._require_root())))

    # The run

    def run(self, flow: Flow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a flow to its end.

        Args:
            flow: The flow.
            args: Its arguments.
            kwargs: Its arguments by name.

        Returns:
            Its result.

        Raises:
            StuckError: It waits for something that nobody will do.
            SandboxError: It did what only activities may.
            LookupError: An attempt has failed, and its RetryPolicy is not in `retry_policies`; or a function is missing.
            temporalio.exceptions.FailureError: It has failed: an error of its own is an ApplicationError of that type, and the
                failure of an activity an ActivityError.
        """
        if workflow.unsafe.in_sandbox():
            raise RuntimeError(
                "the module of the flow starts a local run when it is imported, as a worker does: "
                'put that below `if __name__ == "__main__":`'
            )
        stored = flow.signature.encode_arguments(flow.signature.bind(args, kwargs))
        with ThreadPoolExecutor(1) as thread:  # this one may have an event loop already
            result = thread.submit(asyncio.run, self._run(flow, stored)).result()
        with _in_activity(self._store.attempt(), {}):  # so that a file in the result can be read
            found: R = flow.signature.decode_result(result)
        return found

    def timeline(self) -> str:
        """Return the attempts of activities so far as lines: the time since the start, the activity, and how it ended."""
        return "\n".join(
            f"+{format_duration(call.time - self.start)} {call.id}{f', attempt {call.attempt}' if call.attempt > 1 else ''}: "
            + _shown(call)
            for call in self.calls
        )

    async def _run(self, flow: Flow[..., Any], stored: Any) -> Any:
        self._queue.clear()
        self._executions.clear()
        payloads = _CONVERTER.payload_converter.to_payloads([stored])
        start = _start_of(flow, flow.name, payloads)
        self._root = self._start(flow, start, on_close=lambda _: None)
        for delay, action in self._plan:
            self._after(delay, action)
        try:
            for number in itertools.count():
                if self._root.closed:
                    break
                if number == self.max_actions:
                    raise StuckError(f"the flow {self._root.start.workflow_type} has not ended after {number:,} events")
                if not self._queue:
                    raise StuckError(self._explanation())
                time, _, _, action = heapq.heappop(self._queue)
                self.now = max(self.now, time)
                done = action()
                if done is not None:
                    await done
            await self._check_repeats()
        finally:
            for execution in self._executions:
                await self._evict(execution)
        if self._root.error is not None:
            raise self._root.error
        return self._root.result

    async def _check_repeats(self) -> None:
        """Check that flows without a sandbox decide the same again.

        Raises:
            SandboxError: One does not.
        """
        for execution in self._executions:
            if execution.decisions is None:
                continue
            difference = await execution.decisions.difference()
            if difference is not None:
                raise SandboxError(
                    f"the flow {execution.start.workflow_type} decides differently when it is replayed: {difference}; "
                    "use `pf.now()`, `workflow.random()` of temporalio, or an activity for what changes"
                ) from self._require_root().error

    async def _evict(self, execution: _Execution) -> None:
        """Let an instance end its tasks, as a worker does when it forgets a run."""
        act = activation.WorkflowActivation(run_id=execution.run_id)
        act.jobs.add().remove_from_cache.message = "the run is over"
        await asyncio.to_thread(execution.instance.activate, act)

    def _after(self, delay: timedelta, action: Callable[[], _Action]) -> None:
        self._push(delay, action, last=False)

    def _push(self, delay: timedelta, action: Callable[[], _Action], *, last: bool) -> None:
        """Plan an action; `last`: after all others of that time."""
        heapq.heappush(self._queue, (self.now + delay, last, next(self._numbers), action))

    def _require_root(self) -> _Execution:
        assert self._root is not None  # actions run after the start
        return self._root

    def _explanation(self) -> str:
        root = self._require_root()
        return (
            f"at {self.now:%Y-%m-%d %H:%M:%S}, the flow {root.start.workflow_type} waits for something that nobody will do; "
            "if it waits for a signal, send it with `LocalRun.send_signal`"
        )

    # Workflows

    def _start(
        self,
        flow: Flow[..., Any],
        start: activation.InitializeWorkflow,
        on_close: Callable[[_Execution], object],
        parent: _Execution | None = None,
    ) -> _Execution:
        number = next(self._numbers)
        run_id = str(uuid.UUID(int=number))
        start.randomness_seed = number
        start.start_time.FromDatetime(self.now)
        start.first_execution_run_id = start.first_execution_run_id or run_id
        info = workflow.Info(
            attempt=1,
            continued_run_id=start.continued_from_execution_run_id or None,
            cron_schedule=None,
            execution_timeout=None,
            first_execution_run_id=start.first_execution_run_id,
            headers={},
            namespace="default",
            original_execution_run_id=run_id,
            parent=None
            if parent is None
            else workflow.ParentInfo(namespace="default", run_id=parent.run_id, workflow_id=parent.workflow_id),
            root=None,
            priority=Priority.default,
            raw_memo={},
            retry_policy=None,
            run_id=run_id,
            run_timeout=None,
            search_attributes={},
            start_time=self.now,
            task_queue=flow.environment.name,
            task_timeout=timedelta(seconds=10),
            typed_search_attributes=self._search_attributes() if parent is None else TypedSearchAttributes.empty,
            workflow_id=start.workflow_id,
            workflow_start_time=self.now,
            workflow_type=start.workflow_type,
        )
        details = WorkflowInstanceDetails(
            payload_converter_factory=lambda: _CONVERTER.payload_converter,
            failure_converter_class=DefaultFailureConverter,
            interceptor_classes=[],
            defn=_definition(flow.workflow),
            info=info,
            randomness_seed=number,
            extern_functions={},
            disable_eager_activity_execution=True,
            worker_level_failure_exception_types=[],
            patch_activation_callback=None,
            last_completion_result=Payloads(),
            last_failure=None,
        )
        with environments_kept():
            instance = sandboxed_instance(flow, details) if self.sandbox else None
        repeated = Decisions(details) if self.sandbox and instance is None else None
        instance = instance or UnsandboxedWorkflowRunner().create_instance(details)
        execution = _Execution(flow, start.workflow_id, run_id, instance, on_close, start, parent, repeated)
        self._executions.append(execution)
        self._after(timedelta(), lambda: self._activate(execution, initialize_workflow=start))
        return execution

    def _search_attributes(self) -> TypedSearchAttributes:
        time = self.scheduled_time
        return TypedSearchAttributes([] if time is None else [SearchAttributePair(SCHEDULED_TIME, time)])

    async def _activate(self, execution: _Execution, **job: Any) -> None:
        """Tell an execution what has happened, and do what it commands."""
        if execution.closed:
            return
        act = activation.WorkflowActivation(run_id=execution.run_id, jobs=[activation.WorkflowActivationJob(**job)])
        act.timestamp.FromDatetime(self.now)
        with environments_kept():
            completion = await asyncio.to_thread(
                execution.instance.activate, act
            )  # as workers do: it sets an event loop
        if completion.HasField("failed"):
            failure = completion.failed.failure
            if failure.application_failure_info.type == RESTRICTED:
                raise SandboxError(advice(failure, execution.flow)) from _error_of(failure)
            raise _error_of(failure)
        found = list(completion.successful.commands)
        if execution.decisions is not None:
            execution.decisions.steps.append((act, found))
        for command in found:
            self._do(execution, command)

    def _do(self, execution: _Execution, command: commands.WorkflowCommand) -> None:
        """Do what a workflow commands; markers, memos, and search attributes have no effect here."""
        kind = command.WhichOneof("variant") or ""
        handlers: dict[str, Callable[[_Execution, Any], None]] = {
            "start_timer": self._start_timer,
            "cancel_timer": lambda execution, message: execution.timers.discard(message.seq),
            "schedule_activity": partial(self._schedule, local=False),
            "schedule_local_activity": partial(self._schedule, local=True),
            "request_cancel_activity": self._request_cancel,
            "request_cancel_local_activity": self._request_cancel,
            "complete_workflow_execution": lambda run, message: self._close(run, result=_value(message.result)),
            "fail_workflow_execution": lambda run, message: self._close(run, error=_error_of(message.failure)),
            "cancel_workflow_execution": lambda run, _: self._close(
                run, error=CancelledError("the flow was cancelled")
            ),
            "continue_as_new_workflow_execution": self._continue,
            "start_child_workflow_execution": self._start_child,
            "cancel_child_workflow_execution": self._cancel_child,
            "signal_external_workflow_execution": self._signal_other,
            "request_cancel_external_workflow_execution": self._cancel_other,
            "schedule_nexus_operation": _refuse_nexus,
        }
        if kind in handlers:
            handlers[kind](execution, getattr(command, kind))

    def _start_timer(self, execution: _Execution, message: Any) -> None:
        execution.timers.add(message.seq)
        self._after(_delta(message.start_to_fire_timeout), lambda: self._fire(execution, message.seq))

    def _fire(self, execution: _Execution, seq: int) -> _Action:
        if seq not in execution.timers:
            return None
        execution.timers.discard(seq)
        return self._activate(execution, fire_timer=activation.FireTimer(seq=seq))

    def _close(self, execution: _Execution, *, result: Any = None, error: BaseException | None = None) -> None:
        execution.closed, execution.result, execution.error = True, result, error
        for task in execution.tasks.values():
            task.open = False
            self._end_call(task, "Stopped", None)
        for child in execution.children.values():  # Temporal's default: a parent that closes terminates its children
            if not child.closed:
                self._close(child, error=CancelledError("its parent has closed"))
        execution.on_close(execution)

    def _continue(self, execution: _Execution, message: Any) -> None:
        flow = self._flow(message.task_queue, message.workflow_type or execution.start.workflow_type, execution)
        start = _start_of(flow, execution.workflow_id, message.arguments)
        start.continued_from_execution_run_id = execution.run_id
        start.first_execution_run_id = execution.start.first_execution_run_id
        on_close, execution.on_close = execution.on_close, lambda _: None
        self._close(execution)
        parent = execution.parent
        following = self._start(flow, start, on_close, parent)
        if parent is not None:
            parent.children |= {seq: following for seq, child in parent.children.items() if child is execution}
        if execution is self._root:
            self._root = following
            self.runs += 1

    def _cancel(self, execution: _Execution) -> _Action:
        return self._activate(execution, cancel_workflow=activation.CancelWorkflow(reason="cancelled"))

    def _signal(self, execution: _Execution, name: str, value: Any) -> _Action:
        payloads = _CONVERTER.payload_converter.to_payloads([value])
        signal = activation.SignalWorkflow(signal_name=name, input=payloads, originating_event_id=self._event_id())
        return self._activate(execution, signal_workflow=signal)

    def _event_id(self) -> int:
        """Return the ID of an event that a history would have; the SDK groups by it what a signal does."""
        return next(self._numbers) + 1

    def _open(self, workflow_id: str) -> _Execution | None:
        return next((each for each in self._executions if each.workflow_id == workflow_id and not each.closed), None)

    def _signal_other(self, execution: _Execution, message: Any) -> None:
        other = self._open(message.child_workflow_id or message.workflow_execution.workflow_id)
        resolution = activation.ResolveSignalExternalWorkflow(seq=message.seq)
        if other is None:
            resolution.failure.CopyFrom(_failure(LookupError("there is no such workflow")))
        else:
            signal = activation.SignalWorkflow(
                signal_name=message.signal_name, input=message.args, originating_event_id=self._event_id()
            )
            self._after(timedelta(), lambda: self._activate(other, signal_workflow=signal))
        self._after(timedelta(), lambda: self._activate(execution, resolve_signal_external_workflow=resolution))

    def _cancel_other(self, execution: _Execution, message: Any) -> None:
        other = self._open(message.workflow_execution.workflow_id)
        resolution = activation.ResolveRequestCancelExternalWorkflow(seq=message.seq)
        if other is None:
            resolution.failure.CopyFrom(_failure(LookupError("there is no such workflow")))
        else:
            self._after(timedelta(), lambda: self._cancel(other))
        self._after(timedelta(), lambda: self._activate(execution, resolve_request_cancel_external_workflow=resolution))

    # Children

    def _start_child(self, parent: _Execution, message: Any) -> None:
        flow = self._flow(message.task_queue, message.workflow_type, parent)
        if self._open(message.workflow_id) is not None:
            failure = activation.ResolveChildWorkflowExecutionStartFailure(
                workflow_id=message.workflow_id,
                workflow_type=message.workflow_type,
                cause=_IN_USE,
            )
            resolution = activation.ResolveChildWorkflowExecutionStart(seq=message.seq, failed=failure)
            self._after(timedelta(), lambda: self._activate(parent, resolve_child_workflow_execution_start=resolution))
            return
        self._check_depth(parent)
        start = _start_of(flow, message.workflow_id, message.input)
        child = self._start(flow, start, lambda closed: self._resolve_child(parent, message, closed), parent)
        parent.children[message.seq] = child
        resolution = activation.ResolveChildWorkflowExecutionStart(
            seq=message.seq, succeeded=activation.ResolveChildWorkflowExecutionStartSuccess(run_id=child.run_id)
        )
        self._after(timedelta(), lambda: self._activate(parent, resolve_child_workflow_execution_start=resolution))

    def _check_depth(self, parent: _Execution) -> None:
        """Check that a child is not one of a flow that starts itself without end.

        Raises:
            StuckError: It is.
        """
        depth, above = 1, parent.parent
        while above is not None:
            depth, above = depth + 1, above.parent
        if depth > _DEEPEST:
            raise StuckError(
                f"the flow {parent.start.workflow_type} is a child of a child and so on, {_DEEPEST} levels deep"
            )

    def _resolve_child(self, parent: _Execution, message: Any, child: _Execution) -> None:
        result = child_workflow.ChildWorkflowResult()
        if child.error is None:
            result.completed.result.CopyFrom(_CONVERTER.payload_converter.to_payload(child.result))
        else:
            failure = Failure(message="Child Workflow execution failed", cause=_failure(child.error))
            info = failure.child_workflow_execution_failure_info
            info.workflow_type.name = message.workflow_type
            info.workflow_execution.workflow_id = message.workflow_id
            info.workflow_execution.run_id = child.run_id
            info.retry_state = RetryState.RETRY_STATE_RETRY_POLICY_NOT_SET
            if isinstance(child.error, CancelledError):
                result.cancelled.failure.CopyFrom(failure)
            else:
                result.failed.failure.CopyFrom(failure)
        resolution = activation.ResolveChildWorkflowExecution(seq=message.seq, result=result)
        self._after(timedelta(), lambda: self._activate(parent, resolve_child_workflow_execution=resolution))

    def _flow(self, queue: str, name: str, caller: _Execution) -> Flow[..., Any]:
        environment = self._environment(queue, caller)
        flow = None if environment is None else environment.flows.get(name)
        if flow is None:
            raise LookupError(f"no flow `{name}` is defined in the environment {queue!r}")
        return flow

    def _environment(self, queue: str, caller: _Execution) -> Environment | None:
        here = caller.flow.environment
        return here if queue in ("", here.name) else environment_named(queue)

    def _cancel_child(self, execution: _Execution, message: Any) -> None:
        child = execution.children.get(message.child_workflow_seq)
        if child is not None:
            self._after(timedelta(), lambda: self._cancel(child))

    # Activities

    def _schedule(self, execution: _Execution, message: Any, *, local: bool) -> None:
        task = _Task(execution, message.seq, message, local, self.now)
        execution.tasks[message.seq] = task
        self._after(timedelta(), lambda: self._attempt(task))

    def _request_cancel(self, execution: _Execution, message: Any) -> None:
        self._after(timedelta(), lambda: self._cancel_task(execution, message.seq))

    async def _attempt(self, task: _Task) -> None:
        if not task.open:
            return
        task.attempt += 1
        command = task.command
        arguments = _value(command.arguments[0]) if command.arguments else None
        shown = {name: value for name, value in (arguments or {}).items() if name != FILES_FIELD}
        call = Call(command.activity_type, command.activity_id, shown, task.attempt, self.now)
        ending = await self.ending(task, call)
        task.call = len(self.calls)
        self.calls.append(call)
        limits = [(_delta(command.start_to_close_timeout), TimeoutType.START_TO_CLOSE)]
        if ending.takes is None:
            limits.append((_delta(command.heartbeat_timeout), TimeoutType.HEARTBEAT))
        if (expiration := _expiration(task)) is not None:
            limits.append((expiration - self.now, TimeoutType.SCHEDULE_TO_CLOSE))
        for limit, kind in sorted(each for each in limits if each[0])[:1]:
            if ending.takes is None or ending.takes > limit:
                ending = Ending(error=AttemptTimeoutError(kind), takes=limit)
        if ending.takes is not None:
            self._push(ending.takes, partial(self._attempt_ended, task, ending), last=True)

    async def ending(self, task: _Task, call: Call) -> Ending:  # noqa: ARG002 - scenarios decide by the call
        """Decide how an attempt ends: as a test says, or as the function does."""
        script = self._script(self._activity(task))
        if script.errors:
            return Ending(error=script.errors.popleft(), takes=script.takes)
        return Ending(takes=script.takes, calls=True)

    async def _called(self, task: _Task) -> Ending:
        """Return how an attempt ends whose function decides."""
        try:
            return Ending(result=await self._call(task))
        except Exception as error:  # noqa: BLE001 - every error of the function is that of the attempt
            return Ending(error=error)

    def _end_call(self, task: _Task, outcome: Outcome, error: BaseException | None) -> None:
        """Record how an attempt has ended; nothing if none runs."""
        if task.call >= 0:
            self.calls[task.call] = replace(self.calls[task.call], outcome=outcome, error=error)
            task.call = -1

    async def _call(self, task: _Task) -> Any:
        command = task.command
        function = self._function(task)
        environment = pods.ActivityEnvironment(
            attempt=task.attempt,
            activity=command.activity_type,
            activity_id=command.activity_id,
            last_heartbeat_details=task.details,
            workflow_id=task.execution.workflow_id,
            run_id=task.execution.run_id,
        )
        try:
            values = [_value(each) for each in command.arguments]
            argument = values[0] if len(values) == 1 else values or None
            if isinstance(argument, dict):
                argument.pop(FILES_FIELD, None)
            with _in_activity(self._store.attempt(), self._folders(task)):
                result = await asyncio.to_thread(environment.run, function, argument)
                return await result if inspect.isawaitable(result) else result
        finally:
            task.details = environment.heartbeats[-1] if environment.heartbeats else task.details

    def _folders(self, task: _Task) -> dict[str, Path]:
        """The workspaces that an activity mounts: as on a cluster, each run has its own, but those with a claim are of all."""
        activity, run = self._activity(task), task.execution
        mounted = () if activity is None else activity.options.workspaces
        return {
            each.name: self.folder_of(each)
            if each.claim is not None or run is self._executions[0]
            else self._store.workspace(run.run_id, each.name)
            for each in mounted
        }

    def _function(self, task: _Task) -> Callable[..., Any]:
        command = task.command
        if command.activity_type in self._activities:
            return self._activities[command.activity_type]
        activity = self._activity(task)
        if activity is None:
            raise LookupError(
                f"no activity `{command.activity_type}` is defined for the task queue {command.task_queue!r}; "
                "give its function to `LocalRun(activities=…)`"
            )
        other = self._script(activity).function
        return activity.run if other is None else activity.replaced(other).run

    def _activity(self, task: _Task) -> Activity[..., Any] | None:
        """Return the activity of a flow; None for one of another worker."""
        queue = task.command.task_queue if not task.local else ""
        environment = self._environment(queue.removeprefix(_PODS), task.execution)
        return None if environment is None else environment.activities.get(task.command.activity_type)

    async def _attempt_ended(self, task: _Task, ending: Ending) -> None:
        """End the activity, or repeat a failed attempt."""
        if not task.open:
            return
        called = ending.calls
        if called:
            ending = await self._called(task)
        ending = _fitting(ending, self._activity(task))
        error = ending.error
        self._end_call(task, _outcome(error), error)
        if error is None:
            await self._resolve(task, completed=ending.result)
            return
        after = self._after_failure(task, error)
        if isinstance(after, BaseException):
            await self._resolve(task, error=after)
        elif called and task.attempt - task.losses >= self.max_attempts and not self._policy(task).maximum_attempts:
            raise StuckError(
                f"{task.attempt:,} attempts of {task.command.activity_id} have failed, and it is repeated without end: "
                f"{type_of(error)}: {error}; give it `retries`, or set `LocalRun.max_attempts`"
            ) from error
        else:
            self._after(after, lambda: self._attempt(task))

    def _after_failure(self, task: _Task, error: BaseException) -> timedelta | BaseException:
        """Return the delay before the next attempt, as the operator does; without one, the error of the activity."""
        policy, expiration = self._policy(task), _expiration(task)
        if not isinstance(error, PodLostError):
            decision = decide_retry(
                policy,
                _engine_failure(error),
                attempt=task.attempt - task.losses,
                now=self.now,
                expiration=expiration,
                since=task.scheduled,
            )
            return error if decision.delay is None else decision.delay
        task.losses += 1
        delay = policy.interval(task.losses)
        if expiration is not None and self.now + delay >= expiration:
            return AttemptTimeoutError(TimeoutType.SCHEDULE_TO_CLOSE)
        if policy.maximum_losses is not None and task.losses > policy.maximum_losses:
            failure = too_many_losses(task.losses, _engine_failure(error))
            return ApplicationError(failure.message, type=failure.type, non_retryable=True)
        return delay

    def _policy(self, task: _Task) -> RetryPolicy:
        """Return the retry policy of a call; of one without, that of its activity.

        Raises:
            LookupError: The activity names a RetryPolicy that this run does not have.
        """
        if task.command.HasField("retry_policy"):
            return _policy_of(task.command.retry_policy)
        activity = self._activity(task)
        chosen: Retry | RetryPolicySpec | str = Retry() if activity is None else activity.options.retry
        if isinstance(chosen, str):
            if chosen not in self.retry_policies:
                raise LookupError(
                    f"an attempt of {task.command.activity_type} has failed, and this local run does not have its RetryPolicy "
                    f"`{chosen}`: add it, such as `LocalRun(retry_policies={{{chosen!r}: pf.Retry(attempts=5)}})`"
                )
            chosen = self.retry_policies[chosen]
        return retry_rules(RetryRules.parse(retry_policy(chosen)) if isinstance(chosen, Retry) else chosen)

    async def _resolve(self, task: _Task, *, completed: Any = None, error: BaseException | None = None) -> None:
        task.open = False
        resolution = activity_result.ActivityResolution()
        if error is None:
            resolution.completed.result.CopyFrom(_CONVERTER.payload_converter.to_payload(completed))
        else:
            resolution.failed.failure.CopyFrom(_activity_failure(task, _failure(error)))
        await self._activate(
            task.execution, resolve_activity=activation.ResolveActivity(seq=task.seq, result=resolution)
        )

    def _cancel_task(self, execution: _Execution, seq: int) -> _Action:
        task = execution.tasks.get(seq)
        if task is None or not task.open:
            return None
        task.open = False
        self._end_call(task, "Cancelled", CancelledError("cancelled"))
        failure = Failure(message="cancelled", canceled_failure_info=CanceledFailureInfo())
        resolution = activity_result.ActivityResolution()
        resolution.cancelled.failure.CopyFrom(_activity_failure(task, failure))
        return self._activate(execution, resolve_activity=activation.ResolveActivity(seq=seq, result=resolution))


@contextmanager
def _in_activity(files: LocalFiles, folders: Mapping[str, Path]) -> Iterator[None]:
    """Have the files of an attempt, and its workspaces, within a block."""
    tokens = EXCHANGE.set(files), FOLDERS.set(folders)
    try:
        yield
    finally:
        EXCHANGE.reset(tokens[0])
        FOLDERS.reset(tokens[1])


def _start_of(flow: Flow[..., Any], workflow_id: str, arguments: Any) -> activation.InitializeWorkflow:
    return activation.InitializeWorkflow(
        workflow_type=flow.name, workflow_id=workflow_id, arguments=arguments, attempt=1
    )


def _refuse_nexus(_: _Execution, message: Any) -> None:
    raise NotImplementedError(
        f"a local run cannot call the Nexus operation `{message.operation}`; test it on a cluster"
    )


def _definition(cls: type) -> Any:
    """Return what the SDK knows of a workflow class."""
    return workflow._Definition.must_from_class(cls)  # noqa: SLF001 - a workflow runner gets it from there


def _policy_of(message: Any) -> RetryPolicy:
    """Return the retry policy of a call."""
    return RetryPolicy(
        initial_interval=_delta(message.initial_interval) or timedelta(seconds=1),
        backoff_coefficient=message.backoff_coefficient or 2.0,
        maximum_interval=_delta(message.maximum_interval) or None,
        maximum_attempts=message.maximum_attempts,
        non_retryable_error_types=tuple(message.non_retryable_error_types),
    )


def _expiration(task: _Task) -> datetime | None:
    """When all attempts of an activity must have ended."""
    limit = _delta(task.command.schedule_to_close_timeout)
    return task.scheduled + limit if limit else None


def _engine_failure(error: BaseException) -> failures.Failure:
    """Return why an attempt has failed, as the operator sees it."""
    if isinstance(error, AttemptTimeoutError):
        return failures.Failure(kind=FailureKind.TIMEOUT, message=str(error), timeout_type=error.limit)
    delay = getattr(error, "next_retry_delay", None)
    return failures.Failure(
        kind=FailureKind.APPLICATION,
        message=str(error),
        type=type_of(error),
        non_retryable=bool(getattr(error, "non_retryable", False)),
        next_retry_delay=timedelta(seconds=delay) if isinstance(delay, int | float) else delay,
    )


def _fitting(ending: Ending, activity: Activity[..., Any] | None) -> Ending:
    """Return how an attempt ends in a pod, whose result has a limit."""
    if activity is None or ending.error is not None:
        return ending
    large = activity.options.definition.get("resultSize") == "Large"
    limit = LARGE_RESULT_LIMIT if large else MESSAGE_LIMIT
    size = len(json.dumps(ending.result, ensure_ascii=False, separators=(",", ":")).encode())
    if size <= limit:
        return ending
    return Ending(error=result_too_large(size, limit, large=large))


def _shown(call: Call) -> str:
    """Return how an attempt has ended, for people."""
    if call.error is not None:
        return f"{type_of(call.error)}: {call.error}"
    return "ok" if call.outcome == "Completed" else call.outcome.lower()


def _outcome(error: BaseException | None) -> Outcome:
    if error is None:
        return "Completed"
    return (
        "Lost"
        if isinstance(error, PodLostError)
        else "TimedOut"
        if isinstance(error, AttemptTimeoutError)
        else "Failed"
    )


def _failure(error: BaseException) -> Failure:
    """Return an error as a failure, as a pod or an operator reports it."""
    if isinstance(error, AttemptTimeoutError):
        info = TimeoutFailureInfo(timeout_type=_TIMEOUTS[error.limit])
        return Failure(message=str(error), timeout_failure_info=info)
    if isinstance(error, pods.ApplicationError):
        details = [] if error.details is None else [error.details]
        error = ApplicationError(str(error), *details, type=type_of(error), non_retryable=error.non_retryable)
    failure = Failure()
    _CONVERTER.failure_converter.to_failure(error, _CONVERTER.payload_converter, failure)
    return failure


def _activity_failure(task: _Task, cause: Failure) -> Failure:
    info = ActivityFailureInfo(activity_id=task.command.activity_id, retry_state=RetryState.RETRY_STATE_UNSPECIFIED)
    info.activity_type.name = task.command.activity_type
    return Failure(message="Activity task failed", cause=cause, activity_failure_info=info)


def _error_of(failure: Failure) -> BaseException:
    return _CONVERTER.failure_converter.from_failure(failure, _CONVERTER.payload_converter)


def _value(payload: Any) -> Any:
    if not payload.metadata:
        return None
    return _CONVERTER.payload_converter.from_payloads([payload])[0]


def _delta(message: ProtoDuration) -> timedelta:
    return message.ToTimedelta()
