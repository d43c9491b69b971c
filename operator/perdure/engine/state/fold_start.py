"""The state of a run after its first event."""

from datetime import timedelta

from perdure.engine import events as ev
from perdure.engine.code import Code, task_timeout
from perdure.engine.state.deadlines import deadline_after
from perdure.engine.state.pending import PendingCallback
from perdure.engine.state.run_state import RunState
from perdure.engine.versioning import AUTO_UPGRADE, PINNED, Versioning


def first_state(event: ev.WorkflowExecutionStarted, size: int) -> RunState:
    """The state of a run after its first event, which takes `size` bytes of history."""
    backoff = event.first_workflow_task_backoff
    run_ends = deadline_after(event.event_time + (backoff or timedelta(0)), event.workflow_run_timeout)
    chain_ends = event.workflow_execution_expiration_time
    return RunState(
        next_event_id=2,
        history_size=size,
        start_time=event.event_time,
        run_deadline=min(filter(None, (run_ends, chain_ends)), default=None),
        run_timeout=event.workflow_run_timeout,
        expiration=chain_ends,
        first_decision_time=deadline_after(event.event_time, backoff),
        attempt=event.attempt,
        retries_since=event.retries_since,
        retry_policy=event.retry_policy,
        workflow_id=event.workflow_id,
        run_id=event.original_execution_run_id,
        successor=event.successor,
        code=_code(event) if event.task_queue else None,
        standalone=event.standalone,
        callbacks={
            str(number): PendingCallback(callback=callback, registration_time=event.event_time)
            for number, callback in enumerate(event.completion_callbacks, 1)
        },
    )


def _code(event: ev.WorkflowExecutionStarted) -> Code:
    return Code(
        workflow_type=event.workflow_type,
        task_queue=event.task_queue or "",
        task_timeout=task_timeout(event.workflow_task_timeout, event.workflow_run_timeout),
        cron_schedule=event.cron_schedule,
        priority=event.priority,
        memo=event.memo or {},
        search_attributes=event.search_attributes,
        versioning=_versioning(event),
    )


def _versioning(event: ev.WorkflowExecutionStarted) -> Versioning:
    upgrade = event.inherited_auto_upgrade_info
    if upgrade is not None:
        return Versioning(
            behavior=AUTO_UPGRADE,
            version=upgrade.source_deployment_version,
            override=event.versioning_override,
            initial_behavior=upgrade.continue_as_new_initial_versioning_behavior,
        )
    inherited = event.inherited_pinned_version
    behavior = PINNED if inherited is not None else ""
    return Versioning(behavior=behavior, version=inherited, override=event.versioning_override)
