"""Repeats the decisions of a flow that ran without a sandbox, as a worker does that resumes its run after a crash.

A flow in a notebook or inside of a function has no module that a sandbox could import again. What reads the clock or takes random
numbers there shows when the flow gets the same events a second time, and decides differently.
"""

from __future__ import annotations

import asyncio
import io
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import MessageToJson
from temporalio.worker import UnsandboxedWorkflowRunner

if TYPE_CHECKING:
    from temporalio.bridge.proto.workflow_activation import WorkflowActivation
    from temporalio.bridge.proto.workflow_commands import WorkflowCommand
    from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails


@dataclass(slots=True)
class Decisions:
    """The activations of an instance of a flow, and the commands with which it has answered each."""

    details: WorkflowInstanceDetails
    steps: list[tuple[WorkflowActivation, list[WorkflowCommand]]] = field(default_factory=list)

    async def difference(self) -> str | None:
        """Decide again, and return the first difference; None if there is none. What the flow prints is dropped."""
        instance = UnsandboxedWorkflowRunner().create_instance(self.details)
        return await asyncio.to_thread(self._difference, instance)  # as workers do: it sets an event loop

    def _difference(self, instance: WorkflowInstance) -> str | None:
        with redirect_stdout(io.StringIO()):
            for activation, before in self.steps:
                again = type(activation)()
                again.CopyFrom(activation)
                again.is_replaying = True
                now = list(instance.activate(again).successful.commands)
                for index in range(max(len(before), len(now))):
                    first, second = _shown(before, index), _shown(now, index)
                    if first != second:
                        return f"{first}, and then {second}"
        return None


def _shown(commands: list[WorkflowCommand], index: int) -> str:
    """Return a command as text: what it does, and with which values."""
    if index >= len(commands):
        return "nothing"
    command = commands[index]
    kind = command.WhichOneof("variant") or ""
    message: Any = getattr(command, kind)
    match kind:
        case "schedule_activity" | "schedule_local_activity":
            return f"the activity {message.activity_id}{_values(message.arguments)}"
        case "start_child_workflow_execution":
            return f"the child {message.workflow_id}{_values(message.input)}"
        case "start_timer":
            return f"a timer of {message.start_to_fire_timeout.ToTimedelta()}"
        case "complete_workflow_execution":
            return f"the result{_values([message.result])}"
        case "fail_workflow_execution":
            return "a failure"
        case _:
            return f"{kind} {MessageToJson(message, indent=None)}"


def _values(payloads: Any) -> str:
    found = ", ".join(each.data.decode(errors="replace") for each in payloads if each.data)
    return f" ({found})" if found else ""
