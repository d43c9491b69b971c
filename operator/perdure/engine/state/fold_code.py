"""How an event changes the state of a run that Temporal SDK workers decide."""

import msgspec

from perdure.engine import events as ev
from perdure.engine.code import Code, UpdateRecord, WorkflowTask
from perdure.engine.state.entries import removed, updated


def code_after(code: Code, event: ev.AnyEvent) -> Code:
    """Return the state for the workers after an event."""
    change = msgspec.structs.replace
    match event:
        case ev.WorkflowTaskScheduled():
            task = WorkflowTask(
                attempt=event.attempt,
                scheduled_event_id=event.event_id,
                scheduled_time=event.event_time,
                original_scheduled_time=event.event_time,
                start_to_close_timeout=event.start_to_close_timeout,
                sticky_queue=event.task_queue if event.sticky else "",
            )
            return change(code, task=task, wanted=False)
        case ev.WorkflowTaskCompleted():
            return change(
                code,
                task=None,
                previous_started_event_id=event.started_event_id,
                closing=False,
                versioning=code.versioning.completed(event.versioning_behavior, event.deployment_version),
            )
        case ev.WorkflowTaskFailed() | ev.WorkflowTaskTimedOut():
            return change(code, task=None)
        case ev.UpsertWorkflowSearchAttributes():
            return change(code, search_attributes=updated(code.search_attributes, event.search_attributes))
        case ev.WorkflowPropertiesModified():
            return change(code, memo=updated(code.memo, event.upserted_memo))
        case ev.WorkflowExecutionUpdateAdmitted():
            return change(code, admitted={**code.admitted, event.update_id: event.event_id})
        case ev.WorkflowExecutionUpdateAccepted():
            record = UpdateRecord(accepted_event_id=event.event_id)
            admitted = removed(code.admitted, event.update_id)
            return change(code, updates={**code.updates, event.update_id: record}, admitted=admitted)
        case ev.WorkflowExecutionUpdateCompleted():
            record = UpdateRecord(accepted_event_id=event.accepted_event_id, completed_event_id=event.event_id)
            return change(code, updates={**code.updates, event.update_id: record})
        case _:
            return code


def code_with_override(code: Code | None, event: ev.WorkflowExecutionOptionsUpdated) -> Code | None:
    """Return the state for the workers after an event that sets or removes the versioning override."""
    if code is None or (event.versioning_override is None and not event.unset_versioning_override):
        return code
    versioning = msgspec.structs.replace(code.versioning, override=event.versioning_override)
    return msgspec.structs.replace(code, versioning=versioning)
