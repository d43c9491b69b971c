"""A client for asynchronous programs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from perdure import __version__
from perdure.api.phases import CLOSED, Phase
from perdure.api.policies import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from perdure.client.cluster import Cluster
from perdure.client.connection import LOG_STREAMS, open_client
from perdure.client.progress import verdict
from perdure.client.requests import Requests
from perdure.client.route import LOCAL_TOKEN, FrontendRoute
from perdure.client.run import ANSWER_SECONDS, Access, AsyncRun, Duration, seconds_of
from perdure.client.run_requests import FlowType, RunRequest, decoder
from perdure.client.schedules import AsyncSchedules
from perdure.client.selection import Selection
from perdure.kube import clock
from perdure.kube.access import Overrides
from perdure.lazy import lazily

with lazily():
    from perdure.view.runs import summaries as runs_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from perdure.view.runs.summaries import RunSummary

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_CONNECTIONS = LOG_STREAMS + 4
"""Maximum number of concurrent requests."""


class AsyncClient:
    """Starts, reads, and controls runs, with the permissions of the user, through the API server.

        async with AsyncClient(namespace="shop") as client:
            run = await client.start(nightly, day=date(2026, 11, 27))
            print(await run.result(timeout="1h"))

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
        overrides = Overrides(namespace=namespace, context=context, kubeconfig=kubeconfig)
        self._http = open_client(overrides, user_agent=f"perdure-client/{__version__}", connections=_CONNECTIONS)
        if frontend is None and service_account is None and LOCAL_TOKEN.exists():
            route = FrontendRoute.of_pod()
        else:
            options = {"--context": context, "--kubeconfig": kubeconfig}
            arguments = [f"{name}={value}" for name, value in options.items() if value]
            route = FrontendRoute(address=frontend, account=service_account, kubectl=arguments)
        cluster = Cluster(Requests(self._http, self._http.access.namespace, "perdure"))
        self._access = Access(cluster=cluster, route=route, seconds=seconds_of(timeout) or 0.0)
        self.schedules = AsyncSchedules(self._access)
        """The Schedules of the namespace."""

    @property
    def namespace(self) -> str:
        """The namespace of the runs."""
        return self._access.cluster.namespace

    def __repr__(self) -> str:
        return f"<client of {self._http.access.server}, namespace {self.namespace}>"

    async def __aenter__(self) -> Self:
        """Return this client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections that no request uses."""
        self._http.close()

    # Starting

    async def start(self, flow: FlowType[P, R], /, *args: P.args, **kwargs: P.kwargs) -> AsyncRun[R]:
        """Start a flow, with arguments as those of its function, and wait until the operator accepts the run.

        Raises:
            ValueTypeError: An argument does not fit its declared type.
            NotStartedError: The operator refuses the run; `reason` says why.
            ClientError: The run cannot be created.
        """
        return await self.submit(RunRequest.of_flow(flow, *args, **kwargs))

    @overload
    async def start_workflow(
        self, workflow: str, input_: Any = None, *, result_type: type[T], **options: Any
    ) -> AsyncRun[T]: ...
    @overload
    async def start_workflow(self, workflow: str, input_: Any = None, **options: Any) -> AsyncRun[Any]: ...
    async def start_workflow(
        self, workflow: str, input_: Any = None, *, result_type: Any = Any, **options: Any
    ) -> AsyncRun[Any]:
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
        return await self.submit(request, **options)

    async def submit(
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
    ) -> AsyncRun[R]:
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
        spec = {
            "workflowId": workflow_id,
            "workflowIdReusePolicy": id_reuse_policy and WorkflowIdReusePolicy(id_reuse_policy).value,
            "workflowIdConflictPolicy": id_conflict_policy and WorkflowIdConflictPolicy(id_conflict_policy).value,
            "priority": priority,
            "startPaused": paused or None,
        }
        fields = {key: value for key, value in spec.items() if value is not None}
        cluster, seconds = self._access.cluster, self._access.seconds
        made = await cluster.create("workflowruns", request.manifest(name=name, labels=labels, spec=fields))
        created = str(made["metadata"]["name"])
        if wait and await verdict(cluster, created, seconds) is None:
            raise TimeoutError(f"no operator has processed the run `{created}` within {seconds:g}s; the run is kept")
        return AsyncRun(self._access, created, request.decode)

    # Finding

    @overload
    def run(self, name: str) -> AsyncRun[Any]: ...
    @overload
    def run(self, name: str, flow: FlowType[..., R]) -> AsyncRun[R]: ...
    @overload
    def run(self, name: str, *, result_type: type[T]) -> AsyncRun[T]: ...
    def run(self, name: str, flow: FlowType[..., Any] | None = None, *, result_type: Any = Any) -> AsyncRun[Any]:
        """Return a run by its name, without reading it.

        Args:
            name: Name of the WorkflowRun.
            flow: The flow that it runs, for the type of its result.
            result_type: The type of its result.
        """
        return AsyncRun(self._access, name, _decoder(name, flow, result_type))

    @overload
    async def find(self, workflow_id: str) -> AsyncRun[Any]: ...
    @overload
    async def find(self, workflow_id: str, flow: FlowType[..., R]) -> AsyncRun[R]: ...
    @overload
    async def find(self, workflow_id: str, *, result_type: type[T]) -> AsyncRun[T]: ...
    async def find(
        self, workflow_id: str, flow: FlowType[..., Any] | None = None, *, result_type: Any = Any
    ) -> AsyncRun[Any]:
        """Find a run by its workflow ID: the open one, otherwise the one that closed last.

        Args:
            workflow_id: The workflow ID.
            flow: The flow that it runs, for the type of its result.
            result_type: The type of its result.

        Raises:
            NotFoundError: There is none.
        """
        name = str((await self._access.cluster.runs.find(None, workflow_id))["metadata"]["name"])
        return AsyncRun(self._access, name, _decoder(name, flow, result_type))

    async def list(
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
        wanted = {Phase(phase).value for phase in phases}
        if open_only or closed_only:
            wanted = {phase.value for phase in (CLOSED if closed_only else frozenset(Phase) - CLOSED)}
        age = seconds_of(since)
        selection = Selection(
            phases=frozenset(wanted),
            workflow=workflow,
            selector=selector,
            attributes=tuple((search_attributes or {}).items()),
            since=None if age is None else timedelta(seconds=age),
            prefix=prefix,
        )
        found = await selection.read_newest(self._access.cluster, clock.now(), limit, everywhere=all_namespaces)
        return [runs_view.read_summary(each) for each in found]


def _decoder(name: str, flow: FlowType[..., Any] | None, hint: Any) -> Any:
    return decoder(hint, name) if flow is None else flow.signature.decode_result
