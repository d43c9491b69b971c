"""The RPC that resets a workflow."""

import uuid
from collections.abc import Iterable, Iterator
from functools import partial

from temporalio.api.enums.v1 import ResetReapplyExcludeType, ResetReapplyType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest, ResetWorkflowExecutionResponse

from perdure.api.kinds.operation import Reset
from perdure.controller.directory import Entry
from perdure.controller.errors import NotYetError, RefusedError, when_ready
from perdure.controller.runs.resets import reset
from perdure.engine.versioning import VersioningOverride
from perdure.frontend.deployments.overrides import changes_override, override_of, override_refused
from perdure.frontend.deployments.rules import WorkerDeployment
from perdure.frontend.errors import invalid, precondition, unavailable
from perdure.frontend.messages.values import MAX_EVENT
from perdure.frontend.registry import NamespaceRegistry
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.transport.rpc import LONGEST_WAIT, CallContext
from perdure.frontend.visibility.index import Visibility

_BEGIN_SECONDS = 20.0
_NO_SIGNALS = ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL
_NO_UPDATES = ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE
_WITHOUT_UPDATES = (ResetReapplyType.RESET_REAPPLY_TYPE_NONE, ResetReapplyType.RESET_REAPPLY_TYPE_SIGNAL)


class Resets:
    """Resets runs."""

    def __init__(
        self, runs: RunGateway, visibility: Visibility, deployments: NamespaceRegistry[WorkerDeployment]
    ) -> None:
        self._runs = runs
        self._visibility = visibility
        self._deployments = deployments

    async def reset_workflow_execution(
        self, request: ResetWorkflowExecutionRequest, call: CallContext
    ) -> ResetWorkflowExecutionResponse:
        """Start a new run from a point in a workflow's history: before the event that ended a workflow task."""
        if request.workflow_task_finish_event_id > MAX_EVENT:
            raise invalid("WorkflowTaskFinishEventId: no history has that many events")
        overrides = tuple(_overrides(request))
        entry = await self._runs.find(request.namespace, request.workflow_execution)
        if request.workflow_task_finish_event_id <= 1:
            raise invalid("WorkflowTaskFinishEventId must be > 1.")
        wanted = Reset(
            event_id=request.workflow_task_finish_event_id - 1,
            reapply_signals=request.reset_reapply_type != ResetReapplyType.RESET_REAPPLY_TYPE_NONE
            and _NO_SIGNALS not in request.reset_reapply_exclude_types,
            reapply_updates=request.reset_reapply_type not in _WITHOUT_UPDATES
            and _NO_UPDATES not in request.reset_reapply_exclude_types,
            reason=request.reason,
        )
        await self._check(entry, overrides)
        view = await self._runs.view(entry)
        attempt = partial(
            reset,
            self._runs.client,
            self._runs.definitions,
            view.object,
            wanted,
            request_id=request.request_id or uuid.uuid4().hex,
            overrides=overrides,
            identity=request.identity,
            principal=call.principal,
        )
        try:
            made = await when_ready(attempt, seconds=call.within(LONGEST_WAIT))
        except NotYetError as error:
            raise unavailable("the definition of the workflow is being compiled; retry later") from error
        except RefusedError as error:
            raise invalid(f"WorkflowTaskFinishEventId: {error.message}") from error
        self._runs.add(made.object)
        await self._wait_until_begun(made.run_id)
        return ResetWorkflowExecutionResponse(run_id=made.run_id)

    async def _check(self, entry: Entry, overrides: Iterable[VersioningOverride | None]) -> None:
        """Raise an error if the task queue of a run does not have the version of an override."""
        record = self._visibility.get(entry.namespace, entry.uid)
        queue = record.task_queue if record is not None else ""
        for override in overrides:
            if refused := override_refused(await self._deployments.load(entry.namespace), override, queue):
                raise precondition(refused)

    async def _wait_until_begun(self, run_id: str) -> None:
        """Wait until the new run has begun, after which the old run has closed."""
        runs = self._runs

        def has_begun() -> bool:
            return runs.state(run_id) is not None or runs.is_closed(run_id)

        if not await runs.changes.wait_until(run_id, has_begun, _BEGIN_SECONDS):
            raise unavailable("the new run has not started yet; the operator keeps trying")


def _overrides(request: ResetWorkflowExecutionRequest) -> Iterator[VersioningOverride | None]:
    """The changes of the versioning override after the reset. As on Temporal's server, no other operations can follow it.

    Raises:
        RpcError: An operation does not change the versioning override.
        UnfitError: An operation is not valid.
    """
    for each in request.post_reset_operations:
        if each.WhichOneof("variant") != "update_workflow_options":
            raise invalid("post_reset_operations: only `update_workflow_options` is supported")
        update = each.update_workflow_options
        if changes_override(update):
            options = update.workflow_execution_options
            yield override_of(options.versioning_override) if options.HasField("versioning_override") else None
