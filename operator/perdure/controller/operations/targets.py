"""Find the run that an Operation targets by name or workflow ID, or start it."""

from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry, entry_of
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.errors import RefusedError
from perdure.engine import inputs
from perdure.kube import client as kube
from perdure.kube.paths import escaped
from perdure.runtime.operation_requests import run_to_start, start_signal_of

_CLOSED = ConditionReason.WORKFLOW_EXECUTION_COMPLETED
_NOT_FOUND = ConditionReason.TARGET_NOT_FOUND


class HoldError(Exception):
    """An Operation and later ones for the same target must wait."""

    def __init__(self, *, until_answered: bool) -> None:
        """`until_answered`: whether earlier Operations must be answered first; otherwise it is retried soon."""
        super().__init__()
        self.until_answered = until_answered


class Targets:
    """Finds the runs that Operations target."""

    def __init__(self, client: kube.Client, runs: WorkflowRuns) -> None:
        self._client = client
        self._runs = runs

    async def find(self, obj: kube.Object, request: inputs.Request | None, *, again: bool) -> Entry:
        """Find the run that an Operation targets.

        Raises:
            RefusedError: The run does not exist.
            HoldError: The run is about to be created.
        """
        namespace, target, status = obj["metadata"]["namespace"], obj["spec"]["target"], obj.get("status") or {}
        if status.get("runId") and not again:
            entry = await self._named(namespace, status["workflowRun"])
            if entry is None or entry.uid != status["runId"]:
                raise RefusedError(_NOT_FOUND, f"WorkflowRun `{status['workflowRun']}` was deleted before it responded")
            return entry
        if "name" in target:
            entry = await self._named(namespace, target["name"])
            if entry is None:
                raise RefusedError(_NOT_FOUND, f"there is no WorkflowRun `{target['name']}` in namespace `{namespace}`")
            return entry
        return await self._of_workflow(obj, target["workflowId"], request, again=again)

    async def _of_workflow(
        self, obj: kube.Object, workflow_id: str, request: inputs.Request | None, *, again: bool
    ) -> Entry:
        """The open run of a workflow ID; otherwise the newest closed run, which answers that it is closed."""
        namespace, directory = obj["metadata"]["namespace"], self._runs.directory
        if directory.open_run(namespace, workflow_id) is None:
            await self.read_runs(namespace, workflow_id)
        entry = directory.open_run(namespace, workflow_id)
        if entry is not None:
            return entry
        known = directory.runs_of(namespace, workflow_id)
        if any(each.successor for each in known):
            raise HoldError(until_answered=False)  # the next run of the chain is about to be created
        if isinstance(request, inputs.SignalRequested) and "signalWithStart" in obj["spec"]:
            return await self._start(obj, request, again=again)
        newest = max(known, key=lambda each: (each.closed, each.uid), default=None)
        if newest is None:
            message = f"there is no run with workflow ID `{workflow_id}` in namespace `{namespace}`"
            raise RefusedError(_NOT_FOUND, message)
        return newest

    async def _start(self, obj: kube.Object, signal: inputs.SignalRequested, *, again: bool) -> Entry:
        """Create the run of a `signalWithStart`, unless it exists."""
        namespace, body = obj["metadata"]["namespace"], run_to_start(obj, signal)
        name = body["metadata"]["name"]
        try:
            run = await self._client.create(kube.path(kube.PERDURE, namespace, "workflowruns"), body)
        except kube.AlreadyExistsError:
            run = None
        except (kube.InvalidError, kube.TooLargeError) as error:
            raise RefusedError(ConditionReason.INVALID_SPEC, f"the run cannot be started: {error.message}") from error
        if run is not None:
            self._runs.update(run)
            return entry_of(run)
        try:
            run = await self._client.get(kube.path(kube.PERDURE, namespace, "workflowruns", name))
        except kube.NotFoundError:
            raise HoldError(until_answered=False) from None
        signal_of = start_signal_of(run)
        if signal_of is None or signal_of.request_id != signal.request_id:
            raise RefusedError(
                ConditionReason.WORKFLOW_ID_IN_USE,
                f"WorkflowRun `{name}` already exists and was not created for this request",
            )
        if again:
            failure = (run.get("status") or {}).get("failure") or {}
            raise RefusedError(_CLOSED, f"`{name}`, started for this request, has closed: {failure.get('message', '')}")
        return entry_of(run)

    async def _named(self, namespace: str, name: str) -> Entry | None:
        try:
            return entry_of(await self._client.get(kube.path(kube.PERDURE, namespace, "workflowruns", name)))
        except (kube.NotFoundError, ValueError):
            return None

    async def read_runs(self, namespace: str, workflow_id: str) -> None:
        """Read the runs of a workflow ID, because watches may lag. A run without a workflow ID has its name as the ID."""
        url = kube.path(kube.PERDURE, namespace, "workflowruns")
        async for found in self._client.lists.each(url, fieldSelector=f"spec.workflowId={escaped(workflow_id)}"):
            self._runs.update(found)
        try:
            found = await self._client.get(kube.path(kube.PERDURE, namespace, "workflowruns", workflow_id))
        except (kube.NotFoundError, ValueError):
            return
        self._runs.update(found)

    def continues(self, obj: kube.Object, entry: Entry) -> bool:
        """Whether another run of the workflow ID exists or will exist."""
        return "signalWithStart" in obj["spec"] or self._runs.directory.continues(entry)
