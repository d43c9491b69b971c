"""Payloads that a codec has encrypted: the server stores and returns ciphertext, and never sees the plaintext."""

import dataclasses
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleSpec,
    WorkflowFailureError,
)
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec
from temporalio.exceptions import ActivityError, ApplicationError

from support.sdk import flows, large_flows
from support.sdk.client import Temporal, until

SECRET = "card-4111111111111111"
ENCRYPTED = b"binary/encrypted"


class Encryption(PayloadCodec):
    """Encrypts whole payloads, as the encryption samples of Temporal's SDKs do."""

    def __init__(self) -> None:
        self._cipher = AESGCM(AESGCM.generate_key(bit_length=256))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload(metadata={"encoding": ENCRYPTED, "encryption-key-id": b"\xff\x00key"}, data=self._encrypt(each))
            for each in payloads
        ]

    def _encrypt(self, payload: Payload) -> bytes:
        nonce = uuid.uuid4().bytes[:12]
        return nonce + self._cipher.encrypt(nonce, payload.SerializeToString(), None)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        assert all(each.metadata["encoding"] == ENCRYPTED for each in payloads)
        return [Payload.FromString(self._cipher.decrypt(each.data[:12], each.data[12:], None)) for each in payloads]


@pytest.fixture
async def encrypted(temporal: Temporal) -> Temporal:
    """A client and workers with the codec."""
    converter = dataclasses.replace(
        DataConverter.default,
        payload_codec=Encryption(),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )
    return dataclasses.replace(temporal, client=await temporal.operator.connect(data_converter=converter))


def payloads_in(message: Message) -> list[Payload]:
    """Every payload of a message, except search attributes, which codecs do not encode."""
    if isinstance(message, Payload):
        return [message]
    found: list[Payload] = []
    for field, value in message.ListFields():
        if field.name == "search_attributes" or field.message_type is None:
            continue
        entry = field.message_type.GetOptions().map_entry
        if entry and field.message_type.fields_by_name["value"].message_type is None:
            continue
        each: Any
        for each in value.values() if entry else value if field.is_repeated else [value]:
            found += payloads_in(each)
    return found


def sealed(message: Message, least: int = 1) -> None:
    """Check that a response carries payloads, only encrypted ones, and no plaintext elsewhere."""
    found = payloads_in(message)
    assert len(found) >= least, message
    assert {each.metadata["encoding"] for each in found} == {ENCRYPTED}
    assert {each.metadata["encryption-key-id"] for each in found} == {b"\xff\x00key"}
    assert SECRET.encode() not in message.SerializeToString()


async def test_histories_and_lists_contain_only_ciphertext(encrypted: Temporal, temporal: Temporal) -> None:
    async with encrypted.worker():
        handle = await encrypted.start(large_flows.Carries.run, SECRET.encode(), -1, memo={"card": SECRET})
        await handle.signal(large_flows.Carries.take, SECRET.encode())
        assert await handle.execute_update(large_flows.Carries.change, SECRET.encode()) == SECRET.encode()[::-1]
        assert await handle.query(large_flows.Carries.sizes) == [len(SECRET)] * 3
        plain = temporal.client.get_workflow_handle(handle.id)
        sealed((await plain.describe()).raw_description)
        listed = [each async for each in temporal.client.list_workflows(f"WorkflowId = '{handle.id}'")]
        sealed(listed[0].raw_info)
        assert await (await handle.describe()).memo() == {"card": SECRET}
        await handle.signal(large_flows.Carries.close)
        assert await handle.result() == SECRET.encode()
    events = [event for event in (await plain.fetch_history()).events if payloads_in(event)]
    for event in events:
        sealed(event)
    # Two arguments and the memo, two signals' arguments less the empty one, the update's argument and result, the result.
    assert sum(len(payloads_in(event)) for event in events) >= 7


async def test_encoded_failures_hide_their_message_and_reach_the_client(
    encrypted: Temporal, temporal: Temporal
) -> None:
    once = {"retry": {"maximum_attempts": 1}}
    async with encrypted.worker():
        handle = await encrypted.start(flows.Call.run, "fail", [SECRET, True], once)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    activity = failed.value.cause
    assert isinstance(activity, ActivityError)
    assert isinstance(activity.cause, ApplicationError)
    assert (activity.cause.message, list(activity.cause.details)) == ("it failed", [{"code": 7}])
    history = await temporal.client.get_workflow_handle(handle.id).fetch_history()
    ended = history.events[-1].workflow_execution_failed_event_attributes.failure
    assert (ended.message, ended.cause.message) == ("Encoded failure", "Encoded failure")
    assert b"it failed" not in b"".join(event.SerializeToString() for event in history.events)


async def test_scheduled_runs_get_their_encrypted_input(encrypted: Temporal, temporal: Temporal) -> None:
    action = ScheduleActionStartWorkflow(
        flows.Greet.run, SECRET, id="greet", task_queue=encrypted.task_queue, memo={"card": SECRET}
    )
    handle = await encrypted.client.create_schedule("encrypted", Schedule(action=action, spec=ScheduleSpec()))
    sealed((await temporal.client.get_schedule_handle("encrypted").describe()).raw_description, least=2)
    async with encrypted.worker():
        await handle.trigger()

        async def result() -> str | None:
            started = (await handle.describe()).info.recent_actions
            if not started:
                return None
            execution = started[0].action
            assert isinstance(execution, ScheduleActionExecutionStartWorkflow)
            running = encrypted.client.get_workflow_handle_for(flows.Greet.run, execution.workflow_id)
            return await running.result()

        assert await until("the scheduled run", result) == f"Hello, {SECRET}"
    await handle.delete()
