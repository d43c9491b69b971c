"""A flow as a workflow of the Temporal SDK, and what its calls become: activities in pods, child workflows, timers, and signals.

The ID of an activity is its name with the arguments that tell it from others, so that histories, step graphs, and logs are
readable: `train[lr=0.1]`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Sequence  # noqa: TC003 - the SDK reads the annotations of handlers
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from perdure.flow.definitions import CALLS, duration
from perdure.flow.files import with_files
from perdure.flow.workspaces import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from perdure.flow.definitions import Activity, Environment, Flow, Retry


class FlowCalls:
    """Runs the calls of one run of a flow."""

    def __init__(self) -> None:
        """Create it without calls."""
        self._names: Counter[str] = Counter()
        self._signals: defaultdict[str, deque[Any]] = defaultdict(deque)

    async def run_activity(self, activity: Activity[..., Any], arguments: Mapping[str, Any], label: str) -> Any:
        """Run an activity in a pod, and return its result."""
        options = activity.options
        call = workflow.execute_activity(
            activity.name,
            with_files(activity.signature.encode_arguments(arguments)),
            activity_id=self._unique(f"{activity.name}[{label}]" if label else activity.name),
            task_queue=pods_queue(activity.environment),
            start_to_close_timeout=options.timeout,
            schedule_to_close_timeout=options.total_timeout,
            heartbeat_timeout=options.heartbeat,
            retry_policy=_policy(options.retry),
        )
        stored = await _cancellable(call)
        return activity.signature.decode_result(stored)

    async def run_child(self, flow: Flow[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Run a flow as a child, and return its result."""
        call = workflow.execute_child_workflow(
            flow.name,
            flow.signature.encode_arguments(arguments),
            id=f"{workflow.info().workflow_id}/{self._unique(flow.name)}",
            task_queue=flow.environment.name,
        )
        stored = await _cancellable(call)
        return flow.signature.decode_result(stored)

    def _unique(self, name: str) -> str:
        """Return an ID, the same in each replay: the second `load` is `load#2`."""
        self._names[name] += 1
        count = self._names[name]
        return name if count == 1 else f"{name}#{count}"

    def receive(self, name: str, value: Any) -> None:
        """Keep a signal until the flow takes it."""
        self._signals[name].append(value)

    def has_signal(self, name: str) -> bool:
        """Return whether a signal has arrived that nobody has taken."""
        return bool(self._signals[name])

    async def take_signal(self, name: str) -> Any:
        """Wait for a signal, and return its value."""
        received = self._signals[name]
        while not received:  # another that waits for it may have taken it
            await workflow.wait_condition(lambda: bool(received))
        return received.popleft()


async def _cancellable(call: Awaitable[Any]) -> Any:
    """Wait for a call. If its task was cancelled, this ends it, as `asyncio.timeout` and other code of asyncio expect.

    The SDK raises the failure of the activity, so that a block with a timeout would end with that and not with `TimeoutError`.
    """
    try:
        return await call
    except FailureError as error:
        task = asyncio.current_task()
        if is_cancelled_exception(error) and task is not None and task.cancelling():
            raise asyncio.CancelledError from error
        raise


def pods_queue(environment: Environment) -> str:
    """Return the task queue of the pods of an environment's activities."""
    return f"pods/{environment.name}"


def _policy(retry: Retry | str) -> RetryPolicy | None:
    """Return the policy of a call; None: the operator uses that of the activity's definition, which names a RetryPolicy."""
    if isinstance(retry, str):
        return None
    return RetryPolicy(
        initial_interval=duration(retry.initial),
        backoff_coefficient=retry.backoff,
        maximum_interval=None if retry.maximum is None else duration(retry.maximum),
        maximum_attempts=retry.attempts,
        non_retryable_error_types=retry.non_retryable or None,
    )


class _FlowWorkflow:
    """What the workflow classes of all flows have."""

    def __init__(self) -> None:
        self.calls = FlowCalls()

    @workflow.signal(dynamic=True)
    async def receive(self, signal: str, values: Sequence[RawValue]) -> None:
        """Keep a signal, whatever its name."""
        converter = workflow.payload_converter()
        decoded = [converter.from_payload(each.payload) for each in values]
        self.calls.receive(signal, decoded[0] if len(decoded) == 1 else decoded or None)


def workflow_class(flow: Flow[..., Any]) -> type:
    """Return a flow as a workflow class, in the module of the flow."""
    name = f"{_identifier(flow.name)}_workflow"

    async def run(self, arguments: Any = None) -> Any:  # type: ignore[no-untyped-def]  # noqa: ANN001 - the SDK would count it
        CALLS.set(self.calls)
        FOLDERS.set({})
        return await _run(flow, arguments)

    run.__qualname__ = f"{name}.run"
    run.__module__ = flow.function.__module__
    place = {"__module__": flow.function.__module__, "__qualname__": name, "__doc__": flow.__doc__}
    return workflow.defn(name=flow.name)(type(name, (_FlowWorkflow,), {**place, "run": workflow.run(run)}))


def _identifier(name: str) -> str:
    """Return a name as one that the sandbox can import, such as for `nightly-etl`."""
    return name if name.isidentifier() else f"flow_{name.encode().hex()}"


async def _run(flow: Flow[..., Any], arguments: Any) -> Any:
    """Run the function; an exception of its own fails the flow, as it would fail a program."""
    try:
        result = await flow.function(**flow.signature.decode_arguments(arguments))
        return flow.signature.encode_result(result)
    except Exception as raised:
        error = _first(raised)
        if isinstance(error, FailureError | workflow.NondeterminismError | workflow.ReadOnlyContextError):
            if error is raised:
                raise
            raise error from error.__cause__
        kind = type(error).__name__
        failure = ApplicationError(str(error) or kind, type=kind, non_retryable=True)
        raise failure.with_traceback(error.__traceback__) from error.__cause__  # as its cause, it would be told twice


def _first(error: Exception) -> Exception:
    """Return the error for which an `asyncio.TaskGroup` has failed: the first that is not a cancellation; others unchanged."""
    while isinstance(error, ExceptionGroup):
        parts = error.exceptions
        error = next((each for each in parts if not is_cancelled_exception(each)), parts[0])
    return error
