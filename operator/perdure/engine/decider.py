"""The interface between the engine and deciders, such as the YAML interpreter.

The decider of standalone activities and Nexus operations is here, too: it schedules one, and closes the run with its outcome.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.commands import Command
from perdure.engine.events import AnyEvent


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision: commands in order, and the state of the decider for the next one."""

    commands: tuple[Command, ...]
    memory: Any
    work: int = 0
    """Cost of the decision in units of about 0.1 us. It limits the number of decisions per step."""
    more: bool = False
    """Whether the decider has stopped so that others get their turn, and must be called again to continue."""


class UndecidableError(Exception):
    """The decider cannot decide, for a reason that is not a failure of the run.

    The run stays open, and the decision is retried with backoff until someone has fixed the cause.
    """

    def __init__(self, message: str, reason: str = "", *, cause: str = "Unspecified") -> None:
        """Create the error.

        Args:
            message: Why the decider cannot decide.
            reason: The reason for the run's condition, one CamelCase word; empty for the default.
            cause: The cause for workers, a name of temporal.api.enums.v1.WorkflowTaskFailedCause in CamelCase.
        """
        super().__init__(message)
        self.reason = reason
        self.cause = cause


class Decider(Protocol):
    """Decides what a run does next. Deterministic: the same memory and event always give the same decision."""

    def decide(self, memory: Any, event: AnyEvent | None, *, continue_as_new_suggested: bool = False) -> Decision:
        """Decide what follows an event that records no command.

        Args:
            memory: The memory from the last decision, None at first; after a restart, plain JSON with the keys of objects in
                any order.
            event: The event to decide about; None to continue the last decision, which stopped with `more`.
            continue_as_new_suggested: Whether the history was long when the event was recorded.

        Raises:
            UndecidableError: The decider cannot decide now.
        """
        ...


@dataclass(frozen=True, slots=True)
class StandaloneDecider:
    """Decides for a standalone activity or Nexus operation."""

    work: cmd.ScheduleActivityTask | cmd.ScheduleNexusOperation
    """The activity, or the operation."""

    def decide(
        self,
        memory: Any,
        event: ev.AnyEvent | None,
        *,
        continue_as_new_suggested: bool = False,  # noqa: ARG002 (the protocol)
    ) -> Decision:
        """Schedule the work, pass on a cancellation to it, and close with its outcome. Ignore all other events."""
        command = self._command(event)
        return Decision((command,) if command is not None else (), memory)

    def _command(self, event: ev.AnyEvent | None) -> cmd.Command | None:  # noqa: PLR0911 (one for each event)
        match event:
            case ev.WorkflowExecutionStarted():
                return self.work
            case ev.WorkflowExecutionCancelRequested():
                if isinstance(self.work, cmd.ScheduleActivityTask):
                    return cmd.RequestCancelActivityTask(activity_id=self.work.activity_id)
                return cmd.RequestCancelNexusOperation()
            case ev.ActivityTaskCompleted() | ev.NexusOperationCompleted():
                return cmd.CompleteWorkflowExecution(result=event.result)
            case ev.ActivityTaskFailed() | ev.NexusOperationFailed():
                return cmd.FailWorkflowExecution(failure=event.failure)
            case ev.ActivityTaskTimedOut() | ev.NexusOperationTimedOut():
                return cmd.TimeOutWorkflowExecution(failure=event.failure)
            case ev.ActivityTaskCanceled():
                return cmd.CancelWorkflowExecution(details=event.details)
            case ev.NexusOperationCanceled():
                return cmd.CancelWorkflowExecution(failure=event.failure)
            case _:
                return None
