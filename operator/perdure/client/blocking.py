"""A client for ordinary programs and notebooks: the asynchronous client, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload
from weakref import finalize

from perdure.api.policies import OverlapPolicy, ResetPoint
from perdure.client.asynchronous import AsyncClient
from perdure.client.run import ANSWER_SECONDS, AsyncRun, Duration, LogLine
from perdure.client.run_requests import FlowType, RunRequest
from perdure.client.versions import CURRENT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    from perdure.api.phases import Phase
    from perdure.api.policies import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
    from perdure.client.schedules import AsyncSchedules, ScheduleState
    from perdure.client.snapshots import RunSnapshot
    from perdure.view.runs.summaries import RunSummary

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own: in a notebook, that of the main thread is taken."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        Thread(target=_serve, args=(self._loop,), name="perdure-client", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something, and return its result. If the wait is interrupted, cancel it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator."""
        end = object()

        async def following() -> Any:
            return await anext(items, end)

        async def close() -> None:
            await items.aclose()  # type: ignore[attr-defined]

        try:
            while (item := self.run(following())) is not end:
                yield item
        finally:
            self.run(close())

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


class Run(Generic[R]):
    """A run whose result is an `R`.

    All methods raise NotFoundError if the run does not exist, ForbiddenError if the user may not do this, and UnreachableError
    if the API server does not respond; all of these are ClientErrors.
    """

    def __init__(self, loop: _Loop, run: AsyncRun[R]) -> None:
        """Made by `Client`."""
        self._loop = loop
        self._run = run

    @property
    def name(self) -> str:
        """The name of the WorkflowRun."""
        return self._run.name

    @property
    def namespace(self) -> str:
        """The namespace of the run."""
        return self._run.namespace

    def __repr__(self) -> str:
        return repr(self._run)

    def _repr_html_(self) -> str:
        """Return the state and the graph of the run as it is now, for a notebook."""
        return self.describe()._repr_html_()

    def describe(self) -> RunSnapshot:
        """Read the run: its phase, its steps, what it waits for, and why it failed."""
        return self._loop.run(self._run.describe())

    def history(self) -> Sequence[Mapping[str, Any]]:
        """Read all events of the history, with Temporal's names."""
        return self._loop.run(self._run.history())

    def result(self, *, timeout: Duration | None = None) -> R:
        """Wait until the run has completed, and return its result. Runs that continue it are followed.

        Args:
            timeout: Maximum wait; None: without end.

        Raises:
            RunEndedError: The run failed, timed out, or was cancelled or terminated. There is a subclass for each.
            TimeoutError: It has not ended in time; it keeps running.
            ValueTypeError: The result does not fit the declared type.
        """
        return self._loop.run(self._run.result(timeout=timeout))

    def watch(self) -> Iterator[RunSnapshot]:
        """Yield the run when it changes, beginning with its current state, until it is closed."""
        return self._loop.each(self._run.watch())

    def wait(self, *, timeout: Duration | None = None, progress: Callable[[str], object] | None = None) -> RunSnapshot:
        """Wait until the run is closed, whatever the outcome.

        Args:
            timeout: Maximum wait; None: without end.
            progress: Called with a line for each change, such as `print`, in another thread.

        Raises:
            TimeoutError: It has not ended in time; it keeps running.
        """
        return self._loop.run(self._run.wait(timeout=timeout, progress=progress))

    def logs(
        self,
        *steps: str,
        attempt: int | None = None,
        failed: bool = False,
        children: bool = False,
        follow: bool = False,
    ) -> Iterator[LogLine]:
        """Yield the lines that the pods of the run have written, also from the archive of logs.

        Args:
            steps: Only these steps and the steps inside them, such as `train[lr=0.1]`; none: all.
            attempt: Only attempts with this number.
            failed: Only failed attempts.
            children: Whether the logs of child runs are included.
            follow: Whether to wait for new lines until the run has ended.

        Raises:
            ClientError: The run has no such step, or the logs cannot be read.
        """
        lines = self._run.logs(*steps, attempt=attempt, failed=failed, children=children, follow=follow)
        return self._loop.each(lines)

    def signal(self, name: str, value: Any = None) -> None:
        """Send a signal. The run receives it exactly once, in order.

        Args:
            name: Name of the signal.
            value: Its value: JSON, a dataclass, a pydantic model, or a msgspec Struct.

        Raises:
            RefusedError: The run is closed.
        """
        self._loop.run(self._run.signal(name, value))

    def cancel(self, reason: str = "") -> None:
        """Request the cancellation: the run executes its handlers before it ends.

        Raises:
            RefusedError: The run is closed.
        """
        self._loop.run(self._run.cancel(reason))

    def terminate(self, reason: str = "") -> None:
        """Close the run immediately, without handlers, and delete its pods.

        Raises:
            RefusedError: The run is closed.
        """
        self._loop.run(self._run.terminate(reason))

    def pause(self, reason: str = "") -> None:
        """Pause the run: activities that run continue, and nothing new starts.

        Raises:
            RefusedError: The run is closed.
        """
        self._loop.run(self._run.pause(reason))

    def unpause(self, reason: str = "") -> None:
        """Unpause the run.

        Raises:
            RefusedError: The run is closed.
        """
        self._loop.run(self._run.unpause(reason))

    def set_version(self, version: str = CURRENT) -> None:
        """Move the open run of code to another version of its workers. It continues where it is, and repeats nothing.

        Args:
            version: The build ID of the version, or `current`.

        Raises:
            RefusedError: The run is closed, or the version has no workers.
        """
        self._loop.run(self._run.set_version(version))

    def retry(self, *steps: str, to_version: str | None = None, reason: str = "") -> Run[R]:
        """Start a run that repeats the failed steps of this closed one.

        A run of a Workflow in YAML keeps the results of all successful steps. A flow keeps those until the decision that started
        what failed: what it started together with that, and all that followed, runs again.

        Args:
            steps: Further steps to repeat, with all that follow, such as `train[lr=0.1]`.
            to_version: For code: the build ID of the version of the new run, or `current`; None: that of this run.
            reason: The reason, for Events and the history.

        Raises:
            RefusedError: The run is open, or has completed, or there is nothing to repeat.
        """
        return Run(self._loop, self._loop.run(self._run.retry(*steps, to_version=to_version, reason=reason)))

    def reset(
        self,
        event_id: int | None = None,
        *,
        to: ResetPoint | str = ResetPoint.LAST_WORKFLOW_TASK,
        to_version: str | None = None,
        reason: str = "",
    ) -> Run[R]:
        """Start a run that begins with a part of the history of this one. An open run is terminated.

        Args:
            event_id: ID of the last event to keep; None: `to` decides.
            to: `FirstWorkflowTask` or `LastWorkflowTask`: before that.
            to_version: For code: the build ID of the version of the new run, or `current`; None: that of this run.
            reason: The reason, for Events and the history.

        Raises:
            RefusedError: The history has no such event, or the version has no workers.
        """
        return Run(self._loop, self._loop.run(self._run.reset(event_id, to=to, to_version=to_version, reason=reason)))

    def delete(self) -> None:
        """Delete the run and its pods. An open run is terminated."""
        self._loop.run(self._run.delete())

    @overload
    def query(self, name: str, *arguments: Any) -> Any: ...
    @overload
    def query(self, name: str, *arguments: Any, result_type: type[T]) -> T: ...
    def query(self, name: str, *arguments: Any, result_type: Any = Any) -> Any:
        """Query the run through the Temporal frontend. Workflows as code answer with their handlers, also when they are closed.

        Args:
            name: Name of the query. Runs of Workflows in YAML answer `steps`.
            arguments: Its arguments: JSON, dataclasses, pydantic models, or msgspec Structs.
            result_type: The type of the result.

        Raises:
            ClientError: The query was refused, or the frontend cannot be reached.
        """
        return self._loop.run(self._run.query(name, *arguments, result_type=result_type))

    @overload
    def update(self, name: str, *arguments: Any, update_id: str | None = None) -> Any: ...
    @overload
    def update(self, name: str, *arguments: Any, result_type: type[T], update_id: str | None = None) -> T: ...
    def update(self, name: str, *arguments: Any, result_type: Any = Any, update_id: str | None = None) -> Any:
        """Update the run through the Temporal frontend, and wait for the result.

        Args:
            name: Name of the update.
            arguments: Its arguments: JSON, dataclasses, pydantic models, or msgspec Structs.
            result_type: The type of the result.
            update_id: An update with this ID is done at most once; None: a new ID.

        Raises:
            ClientError: The update was refused or has failed, or the frontend cannot be reached.
        """
        return self._loop.run(self._run.update(name, *arguments, result_type=result_type, update_id=update_id))


class Schedules:
    """The Schedules of the client's namespace.

    All methods raise ClientErrors: NotFoundError if the Schedule does not exist, ForbiddenError, and UnreachableError.
    """

    def __init__(self, loop: _Loop, schedules: AsyncSchedules) -> None:
        """Made by `Client`."""
        self._loop = loop
        self._schedules = schedules

    def create(
        self,
        name: str,
        run: RunRequest[Any],
        *,
        cron: str | Sequence[str] = (),
        every: Duration | None = None,
        time_zone: str | None = None,
        overlap_policy: OverlapPolicy | str | None = None,
        catchup_window: Duration | None = None,
        jitter: Duration | None = None,
        paused: bool = False,
        notes: str = "",
        **spec: Any,
    ) -> ScheduleState:
        """Create a Schedule.

        Args:
            name: Its name.
            run: What it starts, such as `RunRequest.of_flow(nightly, sources=["eu"])`.
            cron: Cron lines.
            every: An interval.
            time_zone: IANA name, such as `Europe/Berlin`; None: UTC.
            overlap_policy: What happens if an earlier run is open; None: `Skip`.
            catchup_window: How late a run can start; None: a minute.
            jitter: Maximum random delay of each start.
            paused: Whether it is created paused.
            notes: Notes for people.
            spec: Further fields of the spec, as in a manifest, such as `calendars`.

        Raises:
            AlreadyExistsError: A Schedule with this name exists.
            ClientError: The spec is not valid, or its times never come.
        """
        return self._loop.run(
            self._schedules.create(
                name,
                run,
                cron=cron,
                every=every,
                time_zone=time_zone,
                overlap_policy=overlap_policy,
                catchup_window=catchup_window,
                jitter=jitter,
                paused=paused,
                notes=notes,
                **spec,
            )
        )

    def list(self) -> list[ScheduleState]:
        """Read all Schedules of the namespace."""
        return self._loop.run(self._schedules.list())

    def get(self, name: str) -> ScheduleState:
        """Read a Schedule."""
        return self._loop.run(self._schedules.get(name))

    def delete(self, name: str) -> None:
        """Delete a Schedule, and its runs."""
        self._loop.run(self._schedules.delete(name))

    def pause(self, name: str, reason: str = "") -> None:
        """Pause a Schedule: no scheduled runs start until it is unpaused, and no further ones of a backfill in progress."""
        self._loop.run(self._schedules.pause(name, reason))

    def unpause(self, name: str, reason: str = "") -> None:
        """Unpause a Schedule that a request has paused. No runs start for times that have passed.

        Raises:
            RefusedError: `spec.paused` is true: the manifest pauses it.
        """
        self._loop.run(self._schedules.unpause(name, reason))

    def trigger(self, name: str, *, overlap_policy: OverlapPolicy | str | None = None) -> Run[Any] | None:
        """Start a run now, even if the Schedule is paused.

        Returns:
            The run; None if the overlap policy did not start one.
        """
        found = self._loop.run(self._schedules.trigger(name, overlap_policy=overlap_policy))
        return None if found is None else Run(self._loop, found)

    def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        overlap_policy: OverlapPolicy | str | None = None,
        at_most: int | None = None,
    ) -> None:
        """Start the runs of all times between two points in time.

        Args:
            name: Name of the Schedule.
            start: The first time to consider, with a time zone.
            end: The last time to consider, with a time zone.
            overlap_policy: What happens if an earlier run is open; None: that of the Schedule.
            at_most: Maximum number of its runs that are open at the same time.
        """
        self._loop.run(self._schedules.backfill(name, start, end, overlap_policy=overlap_policy, at_most=at_most))

    def cancel_backfills(self, name: str, reason: str = "") -> None:
        """Start no further runs of the backfills in progress; open runs continue. Repeating this changes nothing."""
        self._loop.run(self._schedules.cancel_backfills(name, reason))


class Client:
    """Starts, reads, and controls runs, with the permissions of the user, through the API server.

        with Client(namespace="shop") as client:
            run = client.start(nightly, day=date(2026, 11, 27))
            print(run.result(timeout="1h"))

    Errors are ClientErrors, with the reasons of Perdure where the operator has refused something.
    """

    def __init__(
        self,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | None = None,
        frontend: str | None = None,
        service_account: str | None = None,
        timeout: Duration = ANSWER_SECONDS,
    ) -> None:
        """Read the kubeconfig, or the ServiceAccount of the pod in which this runs. Nothing is sent yet.

        Args:
            namespace: The namespace of the runs; None: that of the kubeconfig, or of the pod.
            context: A context of the kubeconfig; None: its current one.
            kubeconfig: A file; None: those of the variable `KUBECONFIG`, or `~/.kube/config`.
            frontend: Address of the HTTP API of the Temporal frontend, for queries and updates. None: in a pod with a token for
                it, as `perdure deploy` mounts one, the Service; elsewhere, a port-forward, which requires kubectl.
            service_account: The ServiceAccount that sends queries and updates; None: the token of the kubeconfig or the pod.
            timeout: How long to wait for the answer to a request.

        Raises:
            ClientError: No cluster is configured, or the kubeconfig cannot be read.
        """
        self._client = AsyncClient(
            namespace=namespace,
            context=context,
            kubeconfig=kubeconfig,
            frontend=frontend,
            service_account=service_account,
            timeout=timeout,
        )
        self._loop = _Loop()
        self._stop = finalize(self, self._loop.stop)
        self.schedules = Schedules(self._loop, self._client.schedules)
        """The Schedules of the namespace."""

    @property
    def namespace(self) -> str:
        """The namespace of the runs."""
        return self._client.namespace

    def __repr__(self) -> str:
        return repr(self._client)

    def __enter__(self) -> Self:
        """Return this client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections, and end the thread."""
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread."""
        self._client.close()
        self._stop()

    # Starting

    def start(self, flow: FlowType[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Start a flow, with arguments as those of its function, and wait until the operator accepts the run.

        Raises:
            ValueTypeError: An argument does not fit its declared type.
            NotStartedError: The operator refuses the run; `reason` says why.
            ClientError: The run cannot be created.
        """
        return self.submit(RunRequest.of_flow(flow, *args, **kwargs))

    @overload
    def start_workflow(self, workflow: str, input_: Any = None, *, result_type: type[T], **options: Any) -> Run[T]: ...
    @overload
    def start_workflow(self, workflow: str, input_: Any = None, **options: Any) -> Run[Any]: ...
    def start_workflow(self, workflow: str, input_: Any = None, *, result_type: Any = Any, **options: Any) -> Run[Any]:
        """Start a run of a Workflow, and wait until the operator accepts it.

        Args:
            workflow: Name of the Workflow.
            input_: The input: JSON, a dataclass, a pydantic model, or a msgspec Struct.
            result_type: The type of the result.
            options: The options of `submit`, such as `name` and `workflow_id`.

        Raises:
            NotStartedError: The operator refuses the run; `reason` says why, such as `InvalidInput`.
            ClientError: The run cannot be created.
        """
        request: RunRequest[Any] = RunRequest.of_workflow(workflow, input_, result_type=result_type)
        return self.submit(request, **options)

    def submit(
        self,
        request: RunRequest[R],
        *,
        name: str | None = None,
        workflow_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        id_reuse_policy: WorkflowIdReusePolicy | str | None = None,
        id_conflict_policy: WorkflowIdConflictPolicy | str | None = None,
        priority: int | None = None,
        paused: bool = False,
        wait: bool = True,
    ) -> Run[R]:
        """Start what a request describes.

        Args:
            request: A flow, a Workflow, or a type of code, with its input.
            name: Name of the WorkflowRun; None: the API server generates one.
            workflow_id: The workflow ID; None: the name.
            labels: Labels of the run.
            id_reuse_policy: Whether the workflow ID of closed runs can be used again.
            id_conflict_policy: What happens if an open run has the workflow ID.
            priority: Priority in the queues of WorkflowLimits, from -1000 to 1000; higher values go first.
            paused: Whether the run is created paused.
            wait: Whether to wait until the operator accepts the run.

        Raises:
            AlreadyExistsError: A run with the name exists.
            NotStartedError: The operator refuses the run; `reason` says why, such as `InvalidInput`.
            TimeoutError: The operator has not decided in time; the run is kept, and starts when an operator runs.
            ClientError: The run cannot be created.
        """
        started = self._client.submit(
            request,
            name=name,
            workflow_id=workflow_id,
            labels=labels,
            id_reuse_policy=id_reuse_policy,
            id_conflict_policy=id_conflict_policy,
            priority=priority,
            paused=paused,
            wait=wait,
        )
        return Run(self._loop, self._loop.run(started))

    # Finding

    @overload
    def run(self, name: str) -> Run[Any]: ...
    @overload
    def run(self, name: str, flow: FlowType[..., R]) -> Run[R]: ...
    @overload
    def run(self, name: str, *, result_type: type[T]) -> Run[T]: ...
    def run(self, name: str, flow: FlowType[..., Any] | None = None, *, result_type: Any = Any) -> Run[Any]:
        """Return a run by its name, without reading it.

        Args:
            name: Name of the WorkflowRun.
            flow: The flow that it runs, for the type of its result.
            result_type: The type of its result.
        """
        found = self._client.run(name, result_type=result_type) if flow is None else self._client.run(name, flow)
        return Run(self._loop, found)

    @overload
    def find(self, workflow_id: str) -> Run[Any]: ...
    @overload
    def find(self, workflow_id: str, flow: FlowType[..., R]) -> Run[R]: ...
    @overload
    def find(self, workflow_id: str, *, result_type: type[T]) -> Run[T]: ...
    def find(self, workflow_id: str, flow: FlowType[..., Any] | None = None, *, result_type: Any = Any) -> Run[Any]:
        """Find a run by its workflow ID: the open one, otherwise the one that closed last.

        Args:
            workflow_id: The workflow ID.
            flow: The flow that it runs, for the type of its result.
            result_type: The type of its result.

        Raises:
            NotFoundError: There is none.
        """
        client = self._client
        found = client.find(workflow_id, result_type=result_type) if flow is None else client.find(workflow_id, flow)
        return Run(self._loop, self._loop.run(found))

    def list(
        self,
        *,
        workflow: str | None = None,
        phases: Iterable[Phase | str] = (),
        open_only: bool = False,
        closed_only: bool = False,
        selector: str | None = None,
        search_attributes: Mapping[str, str] | None = None,
        since: Duration | None = None,
        prefix: str = "",
        limit: int = 100,
        all_namespaces: bool = False,
    ) -> list[RunSummary]:
        """List runs, newest first.

        Args:
            workflow: Only runs of this Workflow, flow, or workflow type.
            phases: Only runs in these phases.
            open_only: Only open runs.
            closed_only: Only closed runs.
            selector: Only runs with these labels, such as `team=shop,env!=test`.
            search_attributes: Only runs with these search attributes.
            since: Only runs created within this time.
            prefix: Only runs whose name begins with this.
            limit: Maximum number of runs.
            all_namespaces: Whether to list the runs of all namespaces.

        Raises:
            ClientError: The runs cannot be read.
        """
        return self._loop.run(
            self._client.list(
                workflow=workflow,
                phases=phases,
                open_only=open_only,
                closed_only=closed_only,
                selector=selector,
                search_attributes=search_attributes,
                since=since,
                prefix=prefix,
                limit=limit,
                all_namespaces=all_namespaces,
            )
        )
