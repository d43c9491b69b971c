"""Resets and retries of runs that Operations request."""

from perdure.api.operation import Reset, Retry
from perdure.api.reasons import ConditionReason
from perdure.controller.errors import RefusedError
from perdure.controller.operations.operation_status import OperationAnswer, identity
from perdure.controller.operations.targets import Targets
from perdure.controller.peers import Peers
from perdure.controller.run_entries import Entry
from perdure.controller.runs.resets import name_of, reset
from perdure.controller.tools import Tools
from perdure.engine.inputs import Answer
from perdure.kube import client as kube
from perdure.runtime.chains import created_by


class RunResets:
    """Creates the new run of a reset or a retry. The new run does the rest itself."""

    def __init__(self, tools: Tools, peers: Peers, targets: Targets) -> None:
        self._client = tools.client
        self._definitions = tools.definitions
        self._peers = peers
        self._targets = targets

    async def reset(self, obj: kube.Object, wanted: Reset | Retry, entry: Entry) -> OperationAnswer:
        """Reset or retry a run, once for each Operation.

        Args:
            obj: The Operation.
            wanted: Its reset or retry.
            entry: The run that it targets.

        Raises:
            RefusedError: The run cannot be reset, or another run of its workflow ID is open.
            NotYetError: The definition is being compiled.
        """
        try:
            run = await self._client.get(kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name))
        except kube.NotFoundError:
            raise RefusedError(ConditionReason.TARGET_NOT_FOUND, f"WorkflowRun `{entry.name}` was deleted") from None
        uid = obj["metadata"]["uid"]
        if isinstance(wanted, Retry):
            await self._check_alone(entry, name_of(entry.name, wanted, uid))
        made = await reset(
            self._client,
            self._definitions,
            run,
            wanted,
            request_id=uid,
            identity=identity(obj),
            principal=created_by(obj),
        )
        message = f"`{made.name}` continues from event {made.event_id} of `{entry.name}`"
        if made.kept:
            message += f" and keeps {made.kept} later results"
        if made.left_out:
            message += f"; {made.left_out} more would be too large, so their activities run again"
        result = {"workflowRun": made.name, "workflowId": entry.workflow_id, "runId": made.run_id}
        return OperationAnswer(Answer(ok=True, message=message), entry, {**result, "eventId": made.event_id})

    async def _check_alone(self, entry: Entry, own: str) -> None:
        """Check that no other run of the workflow ID is open, because a retry does not close other runs.

        Raises:
            RefusedError: Another run is open.
        """
        await self._targets.look(entry.namespace, entry.workflow_id)
        other = self._peers.directory.current.open_run(entry.namespace, entry.workflow_id)
        if other is not None and other.name not in {entry.name, own}:
            message = f"the run `{other.name}` with workflow ID `{entry.workflow_id}` is open; wait for its end, or terminate it"
            raise RefusedError(ConditionReason.WORKFLOW_ID_IN_USE, message)
