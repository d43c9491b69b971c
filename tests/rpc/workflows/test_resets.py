"""Resets of workflows that have processed updates."""

import asyncio
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message as ProtoMessage
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import CommandType, ResetReapplyExcludeType, ResetReapplyType
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage as Stage
from temporalio.api.protocol.v1 import Message
from temporalio.api.update.v1 import Acceptance, Request, Response, UpdateRef, WaitPolicy

from rpc.served import Served, names, served

EXECUTION = WorkflowExecution(workflow_id="w")
UPDATE = Request()
UPDATE.meta.update_id, UPDATE.input.name = "u", "set"
UPDATE.input.args.payloads.add(metadata={"encoding": b"json/plain"}, data=b"1")
RESULT = Payload(metadata={"encoding": b"json/plain"}, data=b"2")


def message(number: int, said: ProtoMessage) -> Message:
    body = AnyMessage()
    body.Pack(said)
    return Message(id=f"m{number}", protocol_instance_id="u", body=body)


def answer() -> dict[str, Any]:
    """The messages of a worker that accepts and completes the update."""
    ended = Response()
    ended.meta.update_id = "u"
    ended.outcome.success.payloads.append(RESULT)
    accepted = Acceptance(accepted_request_message_id="u/request", accepted_request=UPDATE)
    messages = [message(1, accepted), message(2, ended)]
    commands = []
    for each in messages:
        command = Command(command_type=CommandType.COMMAND_TYPE_PROTOCOL_MESSAGE)
        command.protocol_message_command_attributes.message_id = each.id
        commands.append(command)
    return {"commands": commands, "messages": messages}


async def updated(here: Served) -> None:
    """A workflow that has processed an update."""
    await here.start()
    await here.decide()
    update = asyncio.create_task(here.call("UpdateWorkflowExecution", workflow_execution=EXECUTION, request=UPDATE))
    task = await here.task()
    assert [each.protocol_instance_id for each in task.messages] == ["u"]
    said = answer()
    await here.complete(task, *said["commands"], messages=said["messages"])
    await update


@served
async def test_an_update_is_processed_again_and_its_callers_get_the_new_outcome(here: Served) -> None:
    await updated(here)
    await here.call("ResetWorkflowExecution", workflow_execution=EXECUTION, workflow_task_finish_event_id=4)
    asked = UpdateRef(workflow_execution=EXECUTION, update_id="u")
    ended = WaitPolicy(lifecycle_stage=Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED)
    polling = asyncio.create_task(here.call("PollWorkflowExecutionUpdate", update_ref=asked, wait_policy=ended))
    task = await here.task()
    assert not task.messages, "SDKs read the update from the event that has admitted it"
    (admitted,) = [event for event in task.history.events if names([event]) == ["WorkflowExecutionUpdateAdmitted"]]
    assert admitted.workflow_execution_update_admitted_event_attributes.request == UPDATE
    said = answer()
    await here.complete(task, *said["commands"], messages=said["messages"])
    assert list((await polling).outcome.success.payloads) == [RESULT]
    accepted = (await here.history())[-2]
    assert names([accepted]) == ["WorkflowExecutionUpdateAccepted"]
    assert not accepted.workflow_execution_update_accepted_event_attributes.HasField("accepted_request")


@pytest.mark.parametrize(
    "without",
    [
        {"reset_reapply_type": ResetReapplyType.RESET_REAPPLY_TYPE_SIGNAL},
        {"reset_reapply_exclude_types": [ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE]},
    ],
    ids=["signals only", "updates excluded"],
)
def test_a_reset_can_exclude_updates(without: dict[str, Any]) -> None:
    @served
    async def test(here: Served) -> None:
        await updated(here)
        point = {"workflow_task_finish_event_id": 4, **without}
        await here.call("ResetWorkflowExecution", workflow_execution=EXECUTION, **point)
        assert "WorkflowExecutionUpdateAdmitted" not in names(await here.history())

    test()
