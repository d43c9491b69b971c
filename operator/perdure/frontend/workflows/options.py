"""The RPC that changes the options of an open workflow: its versioning override."""

import uuid

from temporalio.api.workflow.v1 import VersioningOverride as ProtoOverride
from temporalio.api.workflowservice.v1 import (
    UpdateWorkflowExecutionOptionsRequest,
    UpdateWorkflowExecutionOptionsResponse,
)

from perdure.controller.directory import Entry
from perdure.engine import inputs
from perdure.engine.versioning import PINNED, VersioningOverride
from perdure.frontend.deployments.overrides import changes_override, override_of, override_refused
from perdure.frontend.deployments.rules import WorkerDeployment
from perdure.frontend.errors import precondition
from perdure.frontend.messages.histories import versioning_override
from perdure.frontend.registry import NamespaceRegistry
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.transport.rpc import LONGEST_WAIT, CallContext
from perdure.frontend.visibility.index import Visibility


class WorkflowOptions:
    """Changes the options of open workflows."""

    def __init__(
        self, runs: RunGateway, visibility: Visibility, deployments: NamespaceRegistry[WorkerDeployment]
    ) -> None:
        self._runs = runs
        self._visibility = visibility
        self._deployments = deployments

    async def update_workflow_execution_options(
        self, request: UpdateWorkflowExecutionOptionsRequest, call: CallContext
    ) -> UpdateWorkflowExecutionOptionsResponse:
        """Set or remove the versioning override of a workflow."""
        is_changed = changes_override(request)
        entry = await self._runs.reach(request.namespace, request.workflow_execution, call.within(LONGEST_WAIT))
        options = request.workflow_execution_options
        override = (
            await self._override(entry, options.versioning_override)
            if options.HasField("versioning_override")
            else None
        )
        response = UpdateWorkflowExecutionOptionsResponse()
        if is_changed:
            record = self._visibility.get(entry.namespace, entry.uid)
            known = await self._deployments.load(entry.namespace)
            if refused := override_refused(known, override, record.task_queue if record is not None else ""):
                raise precondition(refused)
            changed = inputs.OverrideChanged(
                request_id=uuid.uuid4().hex, override=override, identity=request.identity, principal=call.principal
            )
            await self._runs.demand(entry, changed)
        state = (await self._runs.view(entry)).state
        code = state.code if state is not None else None
        if code is not None and code.versioning.override is not None:
            found = versioning_override(code.versioning.override)
            response.workflow_execution_options.versioning_override.CopyFrom(found)
        return response

    async def _override(self, entry: Entry, override: ProtoOverride) -> VersioningOverride:
        """Read a versioning override. A pinned override without a version keeps the version of a pinned workflow."""
        if override.pinned.behavior and not override.pinned.HasField("version"):
            state = (await self._runs.view(entry)).state
            pinned_to = state.code.versioning.pinned_to if state is not None and state.code is not None else None
            if pinned_to is None:
                raise precondition("pinned override: name a version, because the workflow is not pinned to any yet")
            return VersioningOverride(behavior=PINNED, version=pinned_to)
        return override_of(override)
