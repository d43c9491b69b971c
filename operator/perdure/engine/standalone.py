"""The deciders of standalone activities and Nexus operations: schedule one, and close the run with its outcome. Pure."""

from dataclasses import dataclass
from typing import Any

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.decider import Decision


@dataclass(frozen=True, slots=True)
class ActivityDecider:
    """Decides for a standalone activity."""

    activity: cmd.ScheduleActivityTask
    """The activity."""

    def decide(
        self,
        memory: Any,
        event: ev.AnyEvent | None,
        *,
        continue_as_new_suggested: bool = False,  # noqa: ARG002 (the protocol)
    ) -> Decision:
        """Schedule the activity, pass on a cancellation to it, and close with its outcome. Ignore all other events."""
        command = self._command(event)
        return Decision((command,) if command is not None else (), memory)

    def _command(self, event: ev.AnyEvent | None) -> cmd.Command | None:  # noqa: PLR0911 (one for each event)
        match event:
            case ev.WorkflowExecutionStarted():
                return self.activity
            case ev.WorkflowExecutionCancelRequested():
                return cmd.RequestCancelActivityTask(activity_id=self.activity.activity_id)
            case ev.ActivityTaskCompleted():
                return cmd.CompleteWorkflowExecution(result=event.result)
            case ev.ActivityTaskFailed():
                return cmd.FailWorkflowExecution(failure=event.failure)
            case ev.ActivityTaskTimedOut():
                return cmd.TimeOutWorkflowExecution(failure=event.failure)
            case ev.ActivityTaskCanceled():
                return cmd.CancelWorkflowExecution(details=event.details)
            case _:
                return None


@dataclass(frozen=True, slots=True)
class OperationDecider:
    """Decides for a standalone Nexus operation."""

    operation: cmd.ScheduleNexusOperation
    """The operation."""

    def decide(
        self,
        memory: Any,
        event: ev.AnyEvent | None,
        *,
        continue_as_new_suggested: bool = False,  # noqa: ARG002 (the protocol)
    ) -> Decision:
        """Schedule the operation, pass on a cancellation to its handler, and close with its outcome."""
        command = self._command(event)
        return Decision((command,) if command is not None else (), memory)

    def _command(self, event: ev.AnyEvent | None) -> cmd.Command | None:  # noqa: PLR0911 (one for each event)
        match event:
            case ev.WorkflowExecutionStarted():
                return self.operation
            case ev.WorkflowExecutionCancelRequested():
                return cmd.RequestCancelNexusOperation()
            case ev.NexusOperationCompleted():
                return cmd.CompleteWorkflowExecution(result=event.result)
            case ev.NexusOperationFailed():
                return cmd.FailWorkflowExecution(failure=event.failure)
            case ev.NexusOperationTimedOut():
                return cmd.TimeOutWorkflowExecution(failure=event.failure)
            case ev.NexusOperationCanceled():
                return cmd.CancelWorkflowExecution(failure=event.failure)
            case _:
                return None
