"""RPCs about the options of open workflows: their versioning override."""

import uuid

from temporalio.api.workflowservice.v1 import (
    UpdateWorkflowExecutionOptionsRequest,
    UpdateWorkflowExecutionOptionsResponse,
)

from perdure.engine import inputs
from perdure.frontend.core import Core
from perdure.frontend.errors import invalid, precondition
from perdure.frontend.history import versioning_override
from perdure.frontend.overrides import override_of, override_refused
from perdure.frontend.service.call import LONGEST_WAIT, CallContext

_PATHS = {"versioning_override", "versioningOverride"}


class WorkflowOptions:
    """Changes the options of open workflows."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def update_workflow_execution_options(
        self, request: UpdateWorkflowExecutionOptionsRequest, call: CallContext
    ) -> UpdateWorkflowExecutionOptionsResponse:
        """Set or remove the versioning override of a workflow."""
        if not request.HasField("workflow_execution_options"):
            raise invalid("WorkflowExecutionOptions is required")
        if not request.HasField("update_mask"):
            raise invalid("UpdateMask is required")
        for path in request.update_mask.paths:
            if path not in _PATHS:
                raise invalid(f"update_mask: `{path}` cannot be changed, only `versioning_override`")
        entry = await self._core.runs.reach(request.namespace, request.workflow_execution, call.within(LONGEST_WAIT))
        asked = request.workflow_execution_options
        override = override_of(asked.versioning_override) if asked.HasField("versioning_override") else None
        response = UpdateWorkflowExecutionOptionsResponse()
        if request.update_mask.paths:
            record = self._core.visibility.get(entry.namespace, entry.uid)
            known = await self._core.deployments.load(entry.namespace)
            if refused := override_refused(known, override, record.task_queue if record is not None else ""):
                raise precondition(refused)
            changed = inputs.OverrideChanged(
                request_id=uuid.uuid4().hex, override=override, identity=request.identity, principal=call.principal
            )
            await self._core.runs.demand(entry, changed)
        state = (await self._core.runs.view(entry)).state
        code = state.code if state is not None else None
        if code is not None and code.versioning.override is not None:
            found = versioning_override(code.versioning.override)
            response.workflow_execution_options.versioning_override.CopyFrom(found)
        return response
