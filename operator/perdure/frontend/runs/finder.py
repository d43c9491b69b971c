"""Find runs by workflow ID, run ID, activity ID, or operation ID."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from temporalio.api.common.v1 import WorkflowExecution

from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry, Standing
from perdure.controller.manager import Manager
from perdure.controller.reconcile.newer_states import reported
from perdure.controller.runs.run_status import message_of
from perdure.engine.inputs import Answer
from perdure.frontend.errors import CompletedError, RpcError, invalid, not_found, unavailable
from perdure.frontend.messages import values
from perdure.frontend.runs.changes import RunChanges
from perdure.frontend.runs.unseen import UnseenRuns
from perdure.kube import client as kube
from perdure.runtime.kinds import RunKind

NOT_FOUND = "workflow not found for ID: {}"
NO_ACTIVITY = "activity not found for ID: {}"
NO_OPERATION = "nexus operation not found for ID: {}"
_NOT_FOUND = {
    RunKind.WORKFLOW: NOT_FOUND,
    RunKind.ACTIVITY: NO_ACTIVITY,
    RunKind.NEXUS_OPERATION: NO_OPERATION,
}
_Result = TypeVar("_Result")


class RunFinder:
    """Finds the runs of one operator."""

    def __init__(self, manager: Manager, changes: RunChanges) -> None:
        self._manager = manager
        self._changes = changes
        self._unseen = UnseenRuns(manager)

    async def catch_up(self, namespace: str) -> None:
        """Ensure that all runs of a namespace are known that existed when this operator last gained shards.

        Raises:
            RpcError: The API server does not respond.
        """
        try:
            await self._manager.runs.catch_up(namespace)
        except kube.RequestError as error:
            raise unavailable(str(error)) from error

    async def entry(self, namespace: str, execution: WorkflowExecution, *, first_run_id: str = "") -> Entry:
        """Find a run by run ID, or the newest run of a workflow ID.

        Raises:
            RpcError: The run does not exist, or the API server does not respond.
        """
        if not execution.workflow_id and not execution.run_id:
            raise invalid("WorkflowId is not set on request.")
        if execution.run_id and not values.is_uuid(execution.run_id):
            raise invalid("Invalid RunId.")
        entry = self._known(namespace, execution)
        if entry is None and await self._unseen.look(namespace, execution.workflow_id):
            entry = self._known(namespace, execution)
        if entry is None:
            raise not_found(NOT_FOUND.format(execution.workflow_id))
        if first_run_id and entry.first_uid != first_run_id:
            raise not_found("workflow execution not found: the newest run belongs to another chain")
        return entry

    def _known(self, namespace: str, execution: WorkflowExecution) -> Entry | None:
        directory = self._manager.directory
        if not execution.run_id:
            return directory.newest(namespace, execution.workflow_id)
        entry = directory.get(execution.run_id)
        if entry is None or entry.namespace != namespace or entry.kind.standalone:
            return None
        return entry if execution.workflow_id in {"", entry.workflow_id} else None

    def activity(self, namespace: str, activity_id: str, run_id: str) -> Entry:
        """Find a standalone activity by its run ID, or the newest of an activity ID.

        Raises:
            RpcError: It does not exist, or an ID cannot be one; the messages are Temporal's (chasm/lib/activity).
        """
        if not activity_id:
            raise invalid("activity ID is required")
        if len(activity_id) > values.MAX_ID:
            raise invalid(f"activity ID exceeds length limit. Length={len(activity_id)} Limit={values.MAX_ID}")
        if run_id and not values.is_uuid(run_id):
            raise invalid("invalid run id: must be a valid UUID")
        return self._standalone(namespace, activity_id, run_id, RunKind.ACTIVITY)

    def operation(self, namespace: str, operation_id: str, run_id: str) -> Entry:
        """Find a standalone Nexus operation by its run ID, or the newest of an operation ID.

        Raises:
            RpcError: It does not exist, or an ID cannot be one; the messages are Temporal's (chasm/lib/nexusoperation).
        """
        if not operation_id:
            raise invalid("operation_id is required")
        if len(operation_id) > values.MAX_ID:
            raise invalid(f"operation_id exceeds length limit. Length={len(operation_id)} Limit={values.MAX_ID}")
        if run_id and not values.is_uuid(run_id):
            raise invalid("run_id is not a valid UUID")
        return self._standalone(namespace, operation_id, run_id, RunKind.NEXUS_OPERATION)

    def _standalone(self, namespace: str, named: str, run_id: str, kind: RunKind) -> Entry:
        directory = self._manager.directory
        entry = directory.get(run_id) if run_id else directory.newest(namespace, named, kind=kind)
        if entry is None or (entry.kind, entry.namespace, entry.workflow_id) != (kind, namespace, named):
            raise not_found(_NOT_FOUND[kind].format(named))
        return entry

    async def reach(
        self, namespace: str, execution: WorkflowExecution, seconds: float, *, first_run_id: str = ""
    ) -> Entry:
        """Find a run like `entry`. If it has closed and continues in a run that has not started yet, wait for that run.

        Raises:
            RpcError: The run does not exist, or the next run does not start in time.
        """
        gap = partial(self._manager.directory.gap, namespace, execution.workflow_id)

        def bridged(before: Entry) -> bool:
            return gap() is not before

        while not execution.run_id and (before := gap()) is not None:
            if not await self._changes.wait_until(before.uid, partial(bridged, before), seconds):
                raise unavailable("the workflow continues in another run, which does not exist yet")
        entry = await self.entry(namespace, execution, first_run_id=first_run_id)
        if entry.continues:
            await self.has_started(entry.uid, seconds)
        return entry

    async def along(
        self, entry: Entry, execution: WorkflowExecution, seconds: float, do: Callable[[Entry], Awaitable[_Result]]
    ) -> _Result:
        """Do something with a run or, if it closes first and continues in another run, with that run.

        Args:
            entry: The run.
            execution: The execution from the client. A run ID selects only that run.
            seconds: How long to wait for the next run.
            do: The function to call.

        Raises:
            RpcError: `do` raised it, or the workflow does not continue (CompletedError).
        """
        while True:
            try:
                return await do(entry)
            except CompletedError:
                if execution.run_id:
                    raise
                meant = WorkflowExecution(workflow_id=entry.workflow_id)
                after = await self.reach(entry.namespace, meant, seconds)
                if after.uid == entry.uid or after.first_uid != entry.first_uid:
                    raise
                entry = after

    async def has_started(self, run_id: str, seconds: float) -> bool:
        """Wait until a run has started or can never start, and return whether it has started."""

        def so() -> bool:
            entry, run = self._manager.directory.get(run_id), self._manager.runs.get(run_id)
            waits = entry is not None and entry.standing is Standing.WAITING and not (run and run.unrecorded)
            return not waits or unreadable(self._manager, run_id) is not None

        return await self._changes.wait_until(run_id, so, seconds)

    def run_id_of(self, namespace: str) -> Callable[[str], str]:
        """Return a function that finds the run ID of a WorkflowRun by its name."""

        def find(name: str) -> str:
            entry = self._manager.directory.named(namespace, name)
            return entry.uid if entry is not None else ""

        return find


def gone(entry: Entry) -> RpcError:
    """Build the error for a run that was deleted."""
    return not_found(_NOT_FOUND[entry.kind].format(entry.workflow_id))


def unreadable(manager: Manager, run_id: str) -> Answer | None:
    """The answer to requests for a run whose status is damaged, or was written by a newer version; None for other runs."""
    run = manager.runs.get(run_id)
    if run is None or run.state is not None:
        return None
    status = run.object.get("status") or {}
    damage, newer = message_of(status, ConditionReason.STATE_DAMAGED), reported(status)
    if damage or newer:
        reason = ConditionReason.STATE_DAMAGED if damage else ConditionReason.NEWER_STATE
        return Answer(ok=False, reason=reason.value, message=damage or newer)
    return None
