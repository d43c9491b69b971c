"""Updates and standalone activities that complete Nexus operations."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import (
    ActivityType,
    Callback,
    Link,
    Payloads,
    RetryPolicy,
    WorkflowExecution,
)
from temporalio.api.common.v1 import OnConflictOptions as AttachOptions
from temporalio.api.enums.v1 import (
    ActivityIdConflictPolicy,
    CallbackState,
    TimeoutType,
)
from temporalio.api.failure.v1 import Failure
from temporalio.api.nexus.v1 import (
    StartOperationResponse,
)
from temporalio.api.protocol.v1 import Message
from temporalio.api.update.v1 import Acceptance, Input, Meta, Outcome, Request
from temporalio.api.update.v1 import Response as UpdateResponse
from temporalio.api.workflowservice.v1 import PollNexusTaskQueueResponse

from perdure.frontend.errors import RpcError
from perdure.runtime.callbacks import CallbackToken
from rpc.nexus.calls import BILLS, FIVE, answer, caller, charge, endpoint, handle, replace, schedule, until
from rpc.served import Served, complete_workflow, names, served


def _callback_of(task: PollNexusTaskQueueResponse, token: str) -> Callback:
    """The callback that a handler hands on, as SDKs do it."""
    said = task.request.start_operation
    return Callback(
        nexus=Callback.Nexus(url=said.callback, header={**said.callback_header, "Nexus-Operation-Token": token})
    )


def _update_for(
    here: Served, task: PollNexusTaskQueueResponse, update_id: str = "u", workflow_id: str = "charge"
) -> Any:
    """Update a workflow for an operation, until the update is accepted."""
    asked = Request(
        meta=Meta(update_id=update_id),
        input=Input(name="add"),
        request_id=task.request.start_operation.request_id,
        completion_callbacks=[_callback_of(task, update_id)],
    )
    execution = WorkflowExecution(workflow_id=workflow_id)
    return asyncio.ensure_future(
        here.call("UpdateWorkflowExecution", namespace=BILLS, workflow_execution=execution, request=asked)
    )


async def _updated(here: Served) -> tuple[PollNexusTaskQueueResponse, Message]:
    """An operation whose handler updates an open workflow; and the update, which that has accepted."""
    task = await caller(here)
    await here.start("charge", namespace=BILLS)
    await charge(here)
    asked = _update_for(here, task)
    polled = await here.call("PollWorkflowTaskQueue", namespace=BILLS)
    [message] = polled.messages
    await _say(
        here, polled, message, Acceptance(accepted_request_message_id=message.id, accepted_request=_request(message))
    )
    await asked
    await answer(here, task, async_success=StartOperationResponse.Async(operation_token="u"))
    return task, message


def _request(message: Message) -> Request:
    """The request of an update, as sdk-core repeats it: only the fields that workflows see."""
    asked = Request()
    message.body.Unpack(asked)
    return Request(meta=asked.meta, input=asked.input)


async def _say(here: Served, task: Any, about: Message, *said: Any, commands: Sequence[Command] = ()) -> None:
    """Answer a workflow task with messages about an update."""
    messages = []
    for number, body in enumerate(said):
        message = Message(
            id=f"{about.id}/{number}/{task.started_event_id}", protocol_instance_id=about.protocol_instance_id
        )
        message.body.Pack(body)
        messages.append(message)
    await here.call(
        "RespondWorkflowTaskCompleted",
        namespace=BILLS,
        task_token=task.task_token,
        messages=messages,
        commands=commands,
    )


async def _next_task(here: Served) -> Any:
    """Have the workflow decide once more."""
    execution = WorkflowExecution(workflow_id="charge")
    await here.call("SignalWorkflowExecution", namespace=BILLS, workflow_execution=execution, signal_name="go")
    return await here.call("PollWorkflowTaskQueue", namespace=BILLS)


def _done(outcome: Outcome) -> UpdateResponse:
    return UpdateResponse(meta=Meta(update_id="u"), outcome=outcome)


async def _callbacks(here: Served) -> list[Any]:
    execution = WorkflowExecution(workflow_id="charge")
    return list((await here.call("DescribeWorkflowExecution", namespace=BILLS, execution=execution)).callbacks)


@served
async def test_the_end_of_an_update_completes_the_operation_and_the_workflow_stays_open(here: Served) -> None:
    _, message = await _updated(here)
    accepted = (await here.history("charge", namespace=BILLS))[-1]
    [callback] = accepted.workflow_execution_update_accepted_event_attributes.accepted_request.completion_callbacks
    assert callback.nexus.url == "temporal://system"
    [waiting] = await _callbacks(here)
    assert waiting.trigger.update_workflow_execution_completed.update_id == "u"
    assert waiting.state == CallbackState.CALLBACK_STATE_STANDBY
    await here.decide()
    assert "NexusOperationCompleted" not in names(await here.history())
    await _say(here, await _next_task(here), message, _done(Outcome(success=Payloads(payloads=[FIVE]))))
    await until(here, "NexusOperationCompleted")
    completed = (await here.history())[-2].nexus_operation_completed_event_attributes
    assert completed.result == FIVE
    await _say(here, await _next_task(here), message)
    assert await _callbacks(here) == [], "an open workflow forgets them"


@served
async def test_a_failed_or_abandoned_update_fails_the_operation(here: Served) -> None:
    _, message = await _updated(here)
    await here.decide()
    await _say(here, await _next_task(here), message, _done(Outcome(failure=Failure(message="no money"))))
    await until(here, "NexusOperationFailed")
    failed = (await here.history())[-2].nexus_operation_failed_event_attributes.failure
    assert failed.cause.message == "no money"


@served
async def test_a_workflow_that_closes_before_its_update_fails_the_operation(here: Served) -> None:
    _, message = await _updated(here)
    await here.decide()
    await _say(here, await _next_task(here), message, commands=[complete_workflow()])
    await until(here, "NexusOperationFailed")
    failed = (await here.history())[-2].nexus_operation_failed_event_attributes.failure
    assert failed.cause.application_failure_info.type == "AcceptedUpdateCompletedWorkflow"


@served
async def test_a_second_operation_with_the_same_update_waits_for_its_outcome(here: Served) -> None:
    _, message = await _updated(here)
    await here.decide()
    await here.start("other")
    await here.decide(schedule())
    second = await handle(here)
    await _update_for(here, second)
    await answer(here, second, async_success=StartOperationResponse.Async(operation_token="u"))
    [attached] = (await here.history("charge", namespace=BILLS))[
        -1
    ].workflow_execution_options_updated_event_attributes.workflow_update_options
    assert (attached.update_id, attached.attached_request_id) == ("u", second.request.start_operation.request_id)
    assert len(attached.attached_completion_callbacks) == 1
    await replace(here)
    await _say(here, await _next_task(here), message, _done(Outcome(success=Payloads(payloads=[FIVE]))))
    await until(here, "NexusOperationCompleted")
    await until(here, "NexusOperationCompleted", "other")
    late = await _update_for(here, second)
    assert late.outcome.success.payloads == [FIVE], "an update that has ended answers at once"


@served
async def test_invalid_callbacks_of_updates_are_rejected(here: Served) -> None:
    await here.start()
    execution = WorkflowExecution(workflow_id="w")
    good = CallbackToken(
        namespace="default", name="w", workflow_id="w", run_id="r", scheduled_event_id=5, request_id="guessed"
    )
    header = {"temporal-callback-token": good.text()}
    right = Callback(nexus=Callback.Nexus(url="temporal://system", header=header))
    for callbacks, request_id, message in (
        ([right], "", "request_id: is required"),
        (
            [Callback(nexus=Callback.Nexus(url="https://example.com"))],
            "r",
            "does not match any configured callback address",
        ),
        ([Callback()], "r", "unknown callback variant"),
        ([right] * 33, "r", "more than 32 callbacks"),
    ):
        asked = Request(input=Input(name="add"), request_id=request_id, completion_callbacks=callbacks)
        with pytest.raises(RpcError, match=message) as refused:
            await here.call("UpdateWorkflowExecution", workflow_execution=execution, request=asked)
        assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


async def _activity_for(here: Served, task: PollNexusTaskQueueResponse, **fields: Any) -> Any:
    """Start a standalone activity for an operation, and answer the call."""
    started = await here.call(
        "StartActivityExecution",
        namespace=BILLS,
        activity_id="charge",
        activity_type=ActivityType(name="Charge"),
        start_to_close_timeout=Duration(seconds=60),
        request_id=task.request.start_operation.request_id,
        **{"completion_callbacks": [_callback_of(task, "charge")], **fields},
    )
    await answer(here, task, async_success=StartOperationResponse.Async(operation_token="charge"))
    return started


@served
async def test_the_end_of_a_standalone_activity_completes_the_operations_that_wait_for_it(here: Served) -> None:
    first = await caller(here)
    started = await _activity_for(here, first)
    await here.decide()
    await here.start("other")
    await here.decide(schedule())
    options = AttachOptions(attach_request_id=True, attach_completion_callbacks=True, attach_links=True)
    policy = ActivityIdConflictPolicy.ACTIVITY_ID_CONFLICT_POLICY_USE_EXISTING
    link = Link(activity=Link.Activity(namespace="default", activity_id="from", run_id="r"))
    attached = await _activity_for(
        here, await handle(here), on_conflict_options=options, id_conflict_policy=policy, links=[link]
    )
    assert (attached.run_id, attached.started) == (started.run_id, False)
    reported = await here.call("DescribeActivityExecution", namespace=BILLS, activity_id="charge")
    assert [each.info.state for each in reported.callbacks] == [CallbackState.CALLBACK_STATE_STANDBY] * 2
    assert list(reported.info.links) == [link]
    task = await here.call("PollActivityTaskQueue", namespace=BILLS)
    await here.call(
        "RespondActivityTaskCompleted", namespace=BILLS, task_token=task.task_token, result=Payloads(payloads=[FIVE])
    )
    await until(here, "NexusOperationCompleted")
    assert (await here.history())[-2].nexus_operation_completed_event_attributes.result == FIVE
    await until(here, "NexusOperationCompleted", "other")


@served
async def test_simultaneous_starts_of_an_activity_complete_all_operations(here: Served) -> None:
    await endpoint(here)
    await here.start()
    await here.decide(*(schedule() for _ in range(4)))
    calls = [await handle(here) for _ in range(4)]
    options = AttachOptions(attach_request_id=True, attach_completion_callbacks=True, attach_links=True)
    policy = ActivityIdConflictPolicy.ACTIVITY_ID_CONFLICT_POLICY_USE_EXISTING
    started = await asyncio.gather(
        *(_activity_for(here, call, on_conflict_options=options, id_conflict_policy=policy) for call in calls)
    )
    assert sorted(each.started for each in started) == [False, False, False, True]
    assert len({each.run_id for each in started}) == 1
    task = await here.call("PollActivityTaskQueue", namespace=BILLS)
    await here.call("RespondActivityTaskCompleted", namespace=BILLS, task_token=task.task_token)
    await here.decide()
    await until(here, "NexusOperationCompleted", count=4)


@served
async def test_a_standalone_activity_shows_each_link_once(here: Served) -> None:
    task = await caller(here)
    link = Link(nexus_operation=Link.NexusOperation(namespace="default", operation_id="from", run_id="r"))
    callback = _callback_of(task, "charge")
    callback.links.append(link)
    await _activity_for(here, task, completion_callbacks=[callback], links=[link])
    reported = await here.call("DescribeActivityExecution", namespace=BILLS, activity_id="charge")
    assert list(reported.info.links) == [link]


@served
async def test_a_standalone_activity_that_fails_or_times_out_fails_the_operation(here: Served) -> None:
    await _activity_for(here, await caller(here), retry_policy=RetryPolicy(maximum_attempts=1))
    task = await here.call("PollActivityTaskQueue", namespace=BILLS)
    await here.call(
        "RespondActivityTaskFailed", namespace=BILLS, task_token=task.task_token, failure=Failure(message="no money")
    )
    await until(here, "NexusOperationFailed")
    failed = next(e for e in await here.history() if e.HasField("nexus_operation_failed_event_attributes"))
    assert failed.nexus_operation_failed_event_attributes.failure.cause.message == "no money"
    await here.decide(schedule())
    await _activity_for(here, await handle(here), retry_policy=RetryPolicy(maximum_attempts=1))
    await here.call("PollActivityTaskQueue", namespace=BILLS)
    await asyncio.sleep(70)
    failures = [
        event.nexus_operation_failed_event_attributes.failure.cause
        for event in await here.history()
        if event.HasField("nexus_operation_failed_event_attributes")
    ]
    assert failures[1].timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE


@served
async def test_the_reason_of_a_terminated_activity_is_the_failure_of_the_operation(here: Served) -> None:
    await _activity_for(here, await caller(here))
    await here.call("TerminateActivityExecution", namespace=BILLS, activity_id="charge", reason="out of stock")
    await until(here, "NexusOperationFailed")
    failed = next(e for e in await here.history() if e.HasField("nexus_operation_failed_event_attributes"))
    assert failed.nexus_operation_failed_event_attributes.failure.cause.message == "out of stock"


@served
async def test_attaching_to_an_open_activity_requires_a_request_id_and_a_callback_or_link(here: Served) -> None:
    for options, message in (
        (AttachOptions(attach_completion_callbacks=True), "requires attach_request_id"),
        (AttachOptions(attach_request_id=True), "requires at least one completion callback or link"),
    ):
        with pytest.raises(RpcError, match=message):
            await here.call(
                "StartActivityExecution",
                activity_id="a",
                activity_type=ActivityType(name="Charge"),
                start_to_close_timeout=Duration(seconds=60),
                on_conflict_options=options,
            )
