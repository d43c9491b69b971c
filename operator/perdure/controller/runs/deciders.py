"""The decider of a run: an interpreter, a standalone activity or Nexus operation, or workers."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.api.kinds.workflowrun import StandaloneActivity, StandaloneNexusOperation, WorkflowRunSpec
from perdure.controller.errors import NotReadyError
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.controller.reconcile.reconciler import Inbox
from perdure.controller.reconcile.record import Record
from perdure.controller.recorded_state import DamagedStateError
from perdure.controller.services import Services
from perdure.controller.workflows.definitions import Definition, newer_definition, read_spec
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs
from perdure.engine.commands import Decider, Decision, StandaloneDecider
from perdure.engine.starts import StartExtras
from perdure.engine.state import RunState
from perdure.kube import client as kube
from perdure.language.interpreter import Interpreter, RunScope
from perdure.language.program import InvalidWorkflowError, retry_policy, with_defaults
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import continuation_of, extras_of, reset_of
from perdure.schedule.run_manifests import schedule_scope


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDecider:
    """The decider of a run, with its definition."""

    decider: Decider | None
    """The decider; None if workers decide."""
    definition: Definition | None = None


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


class RunDeciders:
    """Finds the decider of one run."""

    def __init__(self, services: Services, run: RunRef, record: Record, inbox: Inbox[inputs.Request]) -> None:
        """Create it.

        Args:
            services: The shared services.
            run: The run.
            record: The object of the run.
            inbox: The requests to the run.
        """
        self._services = services
        self._run = run
        self._record = record
        self._inbox = inbox

    async def resume(self, state: RunState) -> RunDecider:
        """Find the decider of a run that has already begun.

        Raises:
            NotYetError: The definition of the run is being compiled.
            NotReadyError: The WorkflowRevision of the run was deleted.
            RequestError: The Kubernetes API request failed.
            DamagedStateError: The stored definition has changed or is not valid.
            NewerStateError: A newer version has written the spec or the definition.
        """
        stored, snapshot = self._record.object["spec"], self._record.status.get("definition")
        try:
            spec = read_spec(stored)
            standalone = self.standalone(spec)
            if standalone is not None:
                return RunDecider(decider=standalone)
            definition = await self._services.definitions.pinned(
                self._run.namespace, self._run.name, spec, stored.get("inline"), self._record.status
            )
        except NotReadyError:
            if self._inbox.has(inputs.TerminateRequested):
                return RunDecider(decider=Idle())
            raise
        except InvalidWorkflowError as error:
            at = "spec.inline" if snapshot is None else "status.definition"
            if why := newer_definition(snapshot or stored.get("inline"), at):
                raise NewerStateError(why) from error
            if self._inbox.has(inputs.TerminateRequested):
                return RunDecider(decider=Idle())  # ending it needs no definition
            message = f"The definition that the run started with cannot be run: {error}; restore the status, or delete the run"
            raise DamagedStateError(message) from error
        pending = {
            each.activity_type for each in state.activities.values() if not (each.by_worker or each.runs_nothing)
        }
        if unknown := pending - definition.program.activities.keys():
            names = ", ".join(sorted(unknown))
            message = f"The definition lacks pending activities: {names}; restore the status, or delete the run"
            raise DamagedStateError(message)
        return RunDecider(decider=self.interpreter(definition, spec, state.start_time), definition=definition)

    def standalone(self, spec: WorkflowRunSpec) -> StandaloneDecider | None:
        """The decider of a standalone activity or Nexus operation; None if the run is a workflow."""
        extras = extras_of(self._record.object)
        if spec.activity is not None:
            return StandaloneDecider(scheduled_activity(self._run.workflow_id, spec, spec.activity, extras))
        if spec.nexus_operation is not None:
            return StandaloneDecider(scheduled_operation(spec, spec.nexus_operation, extras))
        return None

    def interpreter(self, definition: Definition, spec: WorkflowRunSpec, start_time: datetime) -> Interpreter:
        """The decider of a run of a Workflow."""
        values = with_defaults(definition.program, spec.input)
        return Interpreter(definition.program, scope_of(self._record.object), input=values, start_time=start_time)


def scheduled_activity(
    activity_id: str, spec: WorkflowRunSpec, activity: StandaloneActivity, extras: StartExtras
) -> cmd.ScheduleActivityTask:
    """The command that schedules a standalone activity.

    Args:
        activity_id: Its ID.
        spec: The spec of its run.
        activity: The activity in the spec.
        extras: Additional options of a Temporal client.
    """
    return cmd.ScheduleActivityTask(
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


def scheduled_operation(
    spec: WorkflowRunSpec, operation: StandaloneNexusOperation, extras: StartExtras
) -> cmd.ScheduleNexusOperation:
    """The command that schedules a standalone Nexus operation.

    Only the two namespaces may know the request ID, so it is not derived from anything that others can read. It is used once the
    operation is scheduled.

    Args:
        spec: The spec of its run.
        operation: The operation in the spec.
        extras: Additional options of a Temporal client.
    """
    return cmd.ScheduleNexusOperation(
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
