"""The start of a run: its first event, and the deciders of runs without a definition."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.api.names import successor_name
from perdure.api.workflowrun import StandaloneActivity, StandaloneNexusOperation, WorkflowRunSpec
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.code import task_timeout
from perdure.engine.cron import next_due
from perdure.engine.decider import Decision
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.retry import RetryPolicy
from perdure.engine.standalone import OneActivity, OneOperation
from perdure.engine.starts import ParentReference, StartExtras
from perdure.kube import client as kube
from perdure.language.interpreter import RunScope
from perdure.language.program import retry_policy
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import Continuation, Parent, continuation_of, reset_of
from perdure.schedule.run_manifests import ScheduledBy, schedule_scope

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Idle:
    """The decider of a run that ends before its definition is known: it only handles cancellation."""

    def decide(
        self,
        memory: Any,
        event: ev.AnyEvent | None,
        *,
        continue_as_new_suggested: bool = False,  # noqa: ARG002 (the protocol)
    ) -> Decision:
        """Cancel the run if its cancellation was requested."""
        requested = isinstance(event, ev.WorkflowExecutionCancelRequested)
        return Decision((cmd.CancelWorkflowExecution(),) if requested else (), memory)


@dataclass(frozen=True, slots=True)
class Pointer:
    """The decider of a run that only points to another one: it completes immediately."""

    name: str
    run_id: str

    def decide(
        self,
        memory: Any,
        event: ev.AnyEvent | None,  # noqa: ARG002 (the protocol)
        *,
        continue_as_new_suggested: bool = False,  # noqa: ARG002 (the protocol)
    ) -> Decision:
        """Complete with the name of the other run."""
        result = {"workflowRun": self.name, "runId": self.run_id}
        return Decision((cmd.CompleteWorkflowExecution(result=result),), memory)


def one_activity(
    activity_id: str, spec: WorkflowRunSpec, activity: StandaloneActivity, extras: StartExtras
) -> OneActivity:
    """The decider of a standalone activity.

    Args:
        activity_id: Its ID.
        spec: The spec of its run.
        activity: The activity in the spec.
        extras: Additional options of a Temporal client.
    """
    scheduled = cmd.ScheduleActivityTask(
        activity_id=activity_id,
        activity_type=activity.type,
        input=spec.input,
        schedule_to_close_timeout=activity.schedule_to_close_timeout,
        schedule_to_start_timeout=activity.schedule_to_start_timeout,
        start_to_close_timeout=activity.start_to_close_timeout,
        heartbeat_timeout=activity.heartbeat_timeout,
        retry_policy=retry_policy(activity.retry_policy),
        task_queue=activity.task_queue,
        header=extras.header,
        priority=extras.priority,
        start_delay=spec.start_delay or None,
        user_metadata=extras.user_metadata,
    )
    return OneActivity(scheduled)


def one_operation(spec: WorkflowRunSpec, operation: StandaloneNexusOperation, extras: StartExtras) -> OneOperation:
    """The decider of a standalone Nexus operation.

    Only the two namespaces may know the request ID, so it is not derived from anything that others can read. It is used once the
    operation is scheduled.

    Args:
        spec: The spec of its run.
        operation: The operation in the spec.
        extras: Additional options of a Temporal client.
    """
    scheduled = cmd.ScheduleNexusOperation(
        endpoint=operation.endpoint,
        endpoint_id=extras.endpoint_id,
        handler_namespace=extras.handler_namespace,
        service=operation.service,
        operation=operation.operation,
        request_id=str(uuid.uuid4()),
        input=spec.input,
        schedule_to_close_timeout=operation.schedule_to_close_timeout,
        schedule_to_start_timeout=operation.schedule_to_start_timeout,
        start_to_close_timeout=operation.start_to_close_timeout,
        nexus_header=operation.headers,
        user_metadata=extras.user_metadata,
    )
    return OneOperation(scheduled)


def scope_of(run: kube.Object) -> RunScope:
    """The values of `run` and `schedule` in expressions.

    A reset does not change them, so that repeated decisions see the same values.
    """
    meta, continues, reset = run["metadata"], continuation_of(run), reset_of(run)
    return RunScope(
        name=reset.original.name if reset else meta["name"],
        namespace=meta["namespace"],
        workflow_id=run["spec"].get("workflowId") or meta["name"],
        run_id=reset.original.run_id if reset else meta["uid"],
        attempt=continues.attempt if continues else 1,
        schedule=schedule_scope(run),
    )


def first_event(
    run: RunRef,
    spec: WorkflowRunSpec,
    workflow_type: str,
    given: Any,
    now: datetime,
    *,
    policy: RetryPolicy | None,
    parent: Parent | None,
    continues: Continuation | None,
    extras: StartExtras | None = None,
    schedule: ScheduledBy | None = None,
    principal: str = "",
) -> ev.WorkflowExecutionStarted:
    """The first event of a run.

    Args:
        run: The run.
        spec: The spec of the run.
        workflow_type: The workflow type.
        given: The input, including defaults.
        now: When the run begins.
        policy: The retry policy of the run.
        parent: The parent of the run, if it is a child.
        continues: The run that it continues or retries, whose execution timeout continues.
        extras: Additional options of a Temporal client if workers decide the run; otherwise None.
        schedule: The Schedule that started the run; code gets the outcome of its previous run.
        principal: The user that created the run, authenticated by the API server.
    """
    optional: dict[str, Any] = {}
    if extras is not None and (spec.activity or spec.nexus_operation):
        # The event that schedules it has its input, header, priority and summary.
        optional = {
            "standalone": True,
            "identity": extras.identity,
            "links": extras.links,
            "completion_callbacks": extras.completion_callbacks,
        }
    elif extras is not None and spec.workflow is not None:
        optional = _client_options(extras, spec.workflow.task_queue, run, parent)
    if optional.get("cron_schedule") and continues is None:
        optional["initiator"] = "CronSchedule"
    if optional and schedule is not None and extras is not None and extras.last_completion_result is None:
        optional["last_completion_result"] = schedule.last_completion_result
    last_failure = schedule.last_failure if schedule is not None else None
    expiration = continues.expiration if continues else None
    if continues is None and spec.execution_timeout:
        expiration = now + spec.execution_timeout
    run_timeout = spec.run_timeout or spec.execution_timeout or None
    if run_timeout and spec.execution_timeout:
        run_timeout = min(run_timeout, spec.execution_timeout)
    return ev.WorkflowExecutionStarted(
        event_id=1,
        event_time=now,
        principal=principal,
        workflow_type=workflow_type,
        workflow_id=run.workflow_id,
        input=given,
        workflow_execution_timeout=spec.execution_timeout or None,
        workflow_run_timeout=run_timeout,
        workflow_task_timeout=task_timeout(spec.task_timeout, run_timeout) if spec.workflow else spec.task_timeout,
        workflow_execution_expiration_time=expiration,
        first_workflow_task_backoff=_first_wait(spec, continues, optional.get("cron_schedule", ""), now) or None,
        retry_policy=policy,
        original_execution_run_id=run.uid,
        first_execution_run_id=continues.first_run_id if continues else run.uid,
        continued_execution_run_id=continues.run_id if continues else None,
        continued_failure=continues.failure if continues else _failure(last_failure) if extras is not None else None,
        attempt=continues.attempt if continues else 1,
        retries_since=continues.retries_since if continues else None,
        parent=ParentReference(
            name=parent.name,
            workflow_id=parent.workflow_id,
            run_id=parent.run_id,
            initiated_event_id=parent.initiated_event_id,
        )
        if parent
        else None,
        search_attributes=spec.search_attributes,
        successor=successor_name(run.name, run.uid),
        **optional,
    )


def _first_wait(
    spec: WorkflowRunSpec, continues: Continuation | None, cron_schedule: str, now: datetime
) -> timedelta | None:
    """How long the first decision waits; for a cron schedule, rounded up to whole seconds, as on Temporal's server."""
    if spec.activity is not None:
        return None  # the activity itself waits
    due = continues.due if continues else next_due(cron_schedule, now, now)
    if due is None:
        return continues.backoff if continues else spec.start_delay
    return max(timedelta(0), -((now - due) // _SECOND) * _SECOND)


def _failure(failure: Mapping[str, Any] | None) -> Failure | None:
    """Read a failure in the format of a status."""
    try:
        return msgspec.convert(failure, Failure) if failure else None
    except msgspec.ValidationError:
        return Failure(kind=FailureKind.SERVER, message="the failure of the previous run cannot be read")


def _client_options(extras: StartExtras, task_queue: str | None, run: RunRef, parent: Parent | None) -> dict[str, Any]:
    root = extras.root_workflow_id, extras.root_run_id
    if not extras.root_workflow_id:
        root = (parent.workflow_id, parent.run_id) if parent else (run.workflow_id, run.uid)
    return {
        "task_queue": task_queue,
        "identity": extras.identity,
        "header": extras.header,
        "memo": extras.memo,
        "cron_schedule": extras.cron_schedule,
        "initiator": extras.initiator,
        "last_completion_result": extras.last_completion_result,
        "priority": extras.priority,
        "user_metadata": extras.user_metadata,
        "completion_callbacks": extras.completion_callbacks,
        "eager_execution_accepted": extras.eager_execution_accepted,
        "links": extras.links,
        "versioning_override": extras.versioning_override,
        "inherited_pinned_version": extras.inherited_pinned_version,
        "inherited_auto_upgrade_info": extras.inherited_auto_upgrade_info,
        "root_workflow_id": root[0],
        "root_run_id": root[1],
    }
