"""A run, as an asynchronous client reads and controls it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from perdure.api.policies import ResetPoint
from perdure.api.times import parse_duration
from perdure.client import versions
from perdure.client.errors import RefusedError, error_of
from perdure.client.frontend import ExecutionRef
from perdure.client.operations import answered, manifest, retry_request, wait_for_results
from perdure.client.run_requests import decoder, encoded
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.client import logs, progress, route, snapshots
    from perdure.view import page as pages
    from perdure.view.runs import follow as follow_view
    from perdure.view.runs import logs as logs_view
    from perdure.view.runs import run as run_view

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object
    from perdure.client.route import FrontendRoute
    from perdure.client.snapshots import RunSnapshot
    from perdure.view.runs.logs import AttemptLog
    from perdure.view.runs.run import RunView

R = TypeVar("R")
T = TypeVar("T")

Duration = str | float | timedelta
"""A duration: `"90s"`, `"1h30m"`, a number of seconds, or a `timedelta`."""

ANSWER_SECONDS = 30.0
"""How long a client waits for the answer to a request, in seconds."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that an attempt has written."""

    step: str
    """The step, such as `train[lr=0.1]`."""
    attempt: int
    pod: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a client reaches the cluster and the frontend."""

    cluster: Cluster
    route: FrontendRoute
    seconds: float
    """How long to wait for the answer to a request, in seconds."""


class AsyncRun(Generic[R]):
    """A run whose result is an `R`.

    All methods raise NotFoundError if the run does not exist, ForbiddenError if the user may not do this, and UnreachableError
    if the API server does not respond; all of these are ClientErrors.
    """

    def __init__(self, access: Access, name: str, decode: Callable[[Any], R]) -> None:
        """Made by `AsyncClient`."""
        self._access = access
        self._cluster = access.cluster
        self._name = name
        self._decode = decode

    @property
    def name(self) -> str:
        """The name of the WorkflowRun."""
        return self._name

    @property
    def namespace(self) -> str:
        """The namespace of the run."""
        return self._cluster.namespace

    def __repr__(self) -> str:
        return f"<run {self._name} in namespace {self.namespace}>"

    # Reading

    async def describe(self) -> RunSnapshot:
        """Read the run: its phase, its steps, what it waits for, and why it failed."""
        found = await self._cluster.runs.with_definition(await self._cluster.runs.get(self._name))
        return snapshots.RunSnapshot(found, await progress.view_of(self._cluster, found))

    async def history(self) -> Sequence[Mapping[str, Any]]:
        """Read all events of the history, with Temporal's names."""
        return list((await self._cluster.runs.history(await self._cluster.runs.get(self._name))).events)

    async def result(self, *, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - as the wait of a future
        """Wait until the run has completed, and return its result. Runs that continue it are followed.

        Args:
            timeout: Maximum wait; None: without end.

        Raises:
            RunEndedError: The run failed, timed out, or was cancelled or terminated. There is a subclass for each.
            TimeoutError: It has not ended in time; it keeps running.
            ValueTypeError: The result does not fit the declared type.
        """
        try:
            async with asyncio.timeout(seconds_of(timeout)):
                run = await self._last()
        except TimeoutError:
            raise TimeoutError(f"the run `{self._name}` has not ended within {timeout}; it keeps running") from None
        if run.phase != "Completed":
            raise error_of(run)
        return self._decode(run.output)

    async def _last(self) -> RunView:
        """Wait until the run has ended, and those that continue it; return the last one."""
        name = self._name
        while True:
            found = await progress.ended(self._cluster, name, lambda _: None)
            run = run_view.read_run(found, now=clock.now())
            if not run.chain.continued_as:
                return run
            name = run.chain.continued_as

    async def watch(self) -> AsyncIterator[RunSnapshot]:
        """Yield the run when it changes, beginning with its current state, until it is closed."""
        shown: object = None
        async for found, run in self._follow():
            steps = tuple((step.path, step.state, step.attempt) for step in run.every_step())
            state = run.phase, run.reason, run.message, run.progress, steps
            if state != shown:
                shown = state
                yield snapshots.RunSnapshot(found, run)

    async def wait(
        self,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 - as the wait of a future
        progress: Callable[[str], object] | None = None,
    ) -> RunSnapshot:
        """Wait until the run is closed, whatever the outcome.

        Args:
            timeout: Maximum wait; None: without end.
            progress: Called with a line for each change, such as `print`.

        Raises:
            TimeoutError: It has not ended in time; it keeps running.
        """
        changes = follow_view.Changes()
        last: tuple[Object, RunView] | None = None
        try:
            async with asyncio.timeout(seconds_of(timeout)):
                async for last in self._follow(progress):
                    if progress is not None:
                        for line in changes.lines(last[1], pages.Page(now=clock.now())):
                            progress(line)
        except TimeoutError:
            raise TimeoutError(f"the run `{self._name}` has not ended within {timeout}; it keeps running") from None
        assert last is not None, "the first read finds the run, or raises an error"
        return snapshots.RunSnapshot(*last)

    async def _follow(self, report: Callable[[str], object] | None = None) -> AsyncIterator[tuple[Object, RunView]]:
        found = await self._cluster.runs.with_definition(await self._cluster.runs.get(self._name))
        async for each in progress.follow(self._cluster, found, report or (lambda _: None)):
            yield each

    async def logs(
        self,
        *steps: str,
        attempt: int | None = None,
        failed: bool = False,
        children: bool = False,
        follow: bool = False,
    ) -> AsyncIterator[LogLine]:
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
        lines: asyncio.Queue[LogLine | None] = asyncio.Queue()

        def write(log: AttemptLog, text: str) -> None:
            lines.put_nowait(LogLine(log.label or log.step, log.attempt, log.pod, text))

        reader = logs.LogReader(
            cluster=self._cluster,
            run=await self._cluster.runs.get(self._name),
            selection=logs_view.LogSelection(steps=steps, attempt=attempt, failed=failed),
            children=children,
            write=write,
            report=lambda _: None,
        )

        async def read() -> None:
            try:
                await reader.check_steps()
                await (reader.follow() if follow else reader.read())
            finally:
                lines.put_nowait(None)

        reading = asyncio.create_task(read())
        try:
            while (line := await lines.get()) is not None:
                yield line
            await reading
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    # Requests

    async def signal(self, name: str, value: Any = None) -> None:
        """Send a signal. The run receives it exactly once, in order.

        Args:
            name: Name of the signal.
            value: Its value: JSON, a dataclass, a pydantic model, or a msgspec Struct.

        Raises:
            RefusedError: The run is closed.
        """
        await self._request("signal", {"name": name, "input": encoded(value, f"the signal {name}")})

    async def cancel(self, reason: str = "") -> None:
        """Request the cancellation: the run executes its handlers before it ends.

        Raises:
            RefusedError: The run is closed.
        """
        await self._request("cancel", {"reason": reason})

    async def terminate(self, reason: str = "") -> None:
        """Close the run immediately, without handlers, and delete its pods.

        Raises:
            RefusedError: The run is closed.
        """
        await self._request("terminate", {"reason": reason})

    async def pause(self, reason: str = "") -> None:
        """Pause the run: activities that run continue, and nothing new starts.

        Raises:
            RefusedError: The run is closed.
        """
        await self._request("pause", {"reason": reason})

    async def unpause(self, reason: str = "") -> None:
        """Unpause the run.

        Raises:
            RefusedError: The run is closed.
        """
        await self._request("unpause", {"reason": reason})

    async def set_version(self, version: str = versions.CURRENT) -> None:
        """Move the open run of code to another version of its workers. It continues where it is, and repeats nothing.

        Args:
            version: The build ID of the version, or `current`.

        Raises:
            RefusedError: The run is closed, or the version has no workers.
        """
        found = await self._cluster.runs.get(self._name)
        await self._request("updateOptions", await versions.options_of_move(self._cluster, [found], version))

    async def retry(self, *steps: str, to_version: str | None = None, reason: str = "") -> AsyncRun[R]:
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
        found = await self._cluster.runs.get(self._name)
        verb, request = await retry_request(self._cluster, found, steps=steps, to_version=to_version, reason=reason)
        return await self._restarted(verb, request)

    async def reset(
        self,
        event_id: int | None = None,
        *,
        to: ResetPoint | str = ResetPoint.LAST_WORKFLOW_TASK,
        to_version: str | None = None,
        reason: str = "",
    ) -> AsyncRun[R]:
        """Start a run that begins with a part of the history of this one. An open run is terminated.

        Args:
            event_id: ID of the last event to keep; None: `to` decides.
            to: `FirstWorkflowTask` or `LastWorkflowTask`: before that.
            to_version: For code: the build ID of the version of the new run, or `current`; None: that of this run.
            reason: The reason, for Events and the history.

        Raises:
            RefusedError: The history has no such event, or the version has no workers.
        """
        request: dict[str, Any] = {"eventId": event_id} if event_id is not None else {"to": ResetPoint(to).value}
        if to_version is not None:
            found = await self._cluster.runs.get(self._name)
            request["updateOptions"] = await versions.options_of_move(self._cluster, [found], to_version)
        return await self._restarted("reset", {**request, "reason": reason or None})

    async def delete(self) -> None:
        """Delete the run and its pods. An open run is terminated."""
        await self._cluster.delete("WorkflowRun", "workflowruns", self._name)

    async def _restarted(self, verb: str, request: Mapping[str, Any]) -> AsyncRun[R]:
        result = (await self._request(verb, request)).get("result") or {}
        return AsyncRun(self._access, str(result["workflowRun"]), self._decode)

    async def _request(self, verb: str, request: Mapping[str, Any]) -> Object:
        target = {"kind": "WorkflowRun", "name": self._name}
        return await perform(self._access, verb, request, target)

    # Calls of the code

    @overload
    async def query(self, name: str, *arguments: Any) -> Any: ...
    @overload
    async def query(self, name: str, *arguments: Any, result_type: type[T]) -> T: ...
    async def query(self, name: str, *arguments: Any, result_type: Any = Any) -> Any:
        """Query the run through the Temporal frontend. Workflows as code answer with their handlers, also when they are closed.

        Args:
            name: Name of the query. Runs of Workflows in YAML answer `steps`.
            arguments: Its arguments: JSON, dataclasses, pydantic models, or msgspec Structs.
            result_type: The type of the result.

        Raises:
            ClientError: The query was refused, or the frontend cannot be reached.
        """
        values = [encoded(each, f"an argument of the query {name}") for each in arguments]
        execution = await self._execution()
        async with route.reach(self._cluster, self._access.route, self._access.seconds) as api:
            return decoder(result_type, f"the query {name}")(await api.query(execution, name, values))

    @overload
    async def update(self, name: str, *arguments: Any, update_id: str | None = None) -> Any: ...
    @overload
    async def update(self, name: str, *arguments: Any, result_type: type[T], update_id: str | None = None) -> T: ...
    async def update(self, name: str, *arguments: Any, result_type: Any = Any, update_id: str | None = None) -> Any:
        """Update the run through the Temporal frontend, and wait for the result.

        Args:
            name: Name of the update.
            arguments: Its arguments: JSON, dataclasses, pydantic models, or msgspec Structs.
            result_type: The type of the result.
            update_id: An update with this ID is done at most once; None: a new ID.

        Raises:
            ClientError: The update was refused or has failed, or the frontend cannot be reached.
        """
        values = [encoded(each, f"an argument of the update {name}") for each in arguments]
        execution = await self._execution()
        async with route.reach(self._cluster, self._access.route, self._access.seconds) as api:
            found = await api.update(execution, name, values, update_id)
        return decoder(result_type, f"the update {name}")(found)

    async def _execution(self) -> ExecutionRef:
        found = await self._cluster.runs.get(self._name)
        return ExecutionRef(found["spec"].get("workflowId") or self._name, found["metadata"]["uid"])


async def perform(access: Access, verb: str, request: Mapping[str, Any], target: Object) -> Object:
    """Send a request as an Operation, wait for its result, and return its status.

    Raises:
        RefusedError: The operator refuses it.
        TimeoutError: No result came in time. The Operation stays, and an operator still executes it.
        CliError: The Operation cannot be created or read.
    """
    found = [await access.cluster.create("operations", manifest(verb, request, target))]
    await wait_for_results(access.cluster, found, access.seconds)
    status: Object = found[0].get("status") or {}
    name = found[0]["metadata"]["name"]
    if not answered(found[0]):
        raise TimeoutError(f"the Operation `{name}` has no result within {access.seconds:g}s; it stays pending")
    if status.get("phase") == "Failed":
        why: Object = next((each for each in status.get("conditions") or () if each["status"] == "True"), {})
        reason, message = str(why.get("reason") or ""), str(why.get("message") or "")
        raise RefusedError(f"{target['kind']} `{target.get('name')}`: {message or reason}", reason=reason)
    return status


def seconds_of(duration: Duration | None) -> float | None:
    """Return a duration in seconds; None for None.

    Raises:
        ValueError: The text is not a duration.
    """
    if isinstance(duration, str):
        return parse_duration(duration).total_seconds()
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
