"""Convert a worker's response to a workflow task: its commands and messages become commands of the engine, in order."""

from collections.abc import Mapping, Sequence

from temporalio.api.command.v1 import Command as ProtoCommand
from temporalio.api.enums.v1 import CommandType
from temporalio.api.protocol.v1 import Message

from perdure.frontend.messages.enums import from_enum
from perdure.frontend.messages.values import UnfitError
from perdure.frontend.nexus.endpoints import Endpoints
from perdure.frontend.workflows.command_conversion import BadCommandError, CommandContext, engine_command
from perdure.frontend.workflows.update_messages import BAD_UPDATE, KnownUpdates, TaskAnswer, UpdateMessages
from perdure.runtime.blobs import Room

_LAST = (
    CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION,
)
"""Commands that close a workflow."""


def _check_sequence(commands: Sequence[ProtoCommand]) -> None:
    kinds = [command.command_type for command in commands]
    for kind in kinds[:-1]:
        if kind in _LAST:
            sequence = ", ".join(from_enum(CommandType, each) for each in kinds)
            closing = from_enum(CommandType, kind)
            raise UnfitError(f"invalid command sequence: [{sequence}], command {closing} must be the last command.")
    if CommandType.COMMAND_TYPE_UNSPECIFIED in kinds:
        raise UnfitError("unknown command type: Unspecified")


class CommandReader:
    """Reads one response of a worker."""

    def __init__(
        self,
        task: int,
        types: Mapping[str, str],
        namespace: str = "",
        updates: KnownUpdates | None = None,
        task_queue: str = "",
        *,
        endpoints: Endpoints | None = None,
        status_size: int = 0,
    ) -> None:
        """Prepare to read a response.

        Args:
            task: The ID of its WorkflowTaskStarted.
            types: The types of the registered search attributes, by name.
            namespace: The namespace of the workflow.
            updates: The updates that can be accepted and rejected; None: any update.
            task_queue: The task queue of the workflow, which is the default for its children.
            endpoints: The endpoints of Nexus operations.
            status_size: The size of the workflow's status, in bytes.
        """
        self._context = CommandContext(task, types, namespace, task_queue, endpoints or {}, Room(status_size))
        self._messages = UpdateMessages(updates)

    def read(self, commands: Sequence[ProtoCommand], messages: Sequence[Message]) -> TaskAnswer:
        """Read the whole response.

        Raises:
            BadCommandError: One of the commands cannot be executed.
            UnfitError: The response is malformed. It changes nothing, not even the task.
        """
        _check_sequence(commands)
        answered = TaskAnswer()
        waiting = {message.id: message for message in messages}
        if len(waiting) < len(messages):
            raise BadCommandError(BAD_UPDATE, "several messages have the same id")
        for command in commands:
            self._context.number += 1
            if command.command_type == CommandType.COMMAND_TYPE_PROTOCOL_MESSAGE:
                message = waiting.pop(command.protocol_message_command_attributes.message_id, None)
                if message is None:
                    raise BadCommandError(BAD_UPDATE, "a command refers to a message that does not exist")
                self._messages.read(message, answered)
            else:
                answered.commands.append(engine_command(command, self._context))
        early = TaskAnswer()
        for message in waiting.values():
            self._messages.read(message, early)
        answered.commands[:0] = early.commands
        answered.accepted[:0] = early.accepted
        answered.completed[:0] = early.completed
        answered.rejected |= early.rejected
        return answered
