"""Updates that a worker can accept and reject, and pending ones."""

import asyncio
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from temporalio.api.protocol.v1 import Message
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.update.v1 import Acceptance, Rejection, Request

from perdure.frontend.errors import RpcError
from perdure.frontend.workflows.commands import BadCommandError, CommandReader, KnownUpdates
from perdure.frontend.workflows.queries import Queries
from perdure.frontend.workflows.updates import Updates

KNOWN = KnownUpdates(waiting={"asked"}, accepted={"taken"})


def message(update_id: str, body: Any, name: str = "") -> Message:
    packed = AnyMessage()
    packed.Pack(body)
    return Message(id=name or f"{update_id}/said", protocol_instance_id=update_id, body=packed)


def request(update_id: str) -> Request:
    made = Request()
    made.meta.update_id = update_id
    made.input.name = "add"
    return made


def test_a_requested_update_is_accepted() -> None:
    answered = CommandReader(3, {}, "ours", KNOWN).read([], [message("asked", Acceptance())])
    assert answered.accepted == ["asked"]


def test_an_update_known_only_to_the_worker_is_read_from_its_response() -> None:
    said = [
        message("lost", Acceptance(accepted_request=request("lost"))),
        message("unwanted", Rejection(rejected_request=request("unwanted"))),
    ]
    answered = CommandReader(3, {}, "ours", KNOWN).read([], said)
    assert (answered.accepted, list(answered.rejected)) == (["lost"], ["unwanted"])


@pytest.mark.parametrize(
    "said",
    [
        [message("nope", Acceptance())],
        [message("", Acceptance())],
        [message("", Acceptance(accepted_request=request("")))],
        [message("nope", Acceptance(accepted_request=request("other")))],
        [message("nope", Rejection())],
        [message("taken", Acceptance(accepted_request=request("taken")))],
        [message("asked", Acceptance()), message("asked", Acceptance(), "again")],
        [message("asked", Acceptance()), message("asked", Rejection(), "again")],
        [message("asked", Acceptance(), "same"), message("lost", Acceptance(accepted_request=request("lost")), "same")],
    ],
    ids=["unknown", "unnamed", "unnamed twice", "another's", "rejected", "taken", "twice", "both", "one message id"],
)
def test_an_unknown_or_repeated_update_response_fails_the_workflow_task(said: list[Message]) -> None:
    with pytest.raises(BadCommandError) as caught:
        CommandReader(3, {}, "ours", KNOWN).read([], said)
    assert caught.value.cause == "BadUpdateWorkflowExecutionMessage"


async def test_closing_a_run_aborts_its_updates_and_queries() -> None:
    updates, queries = Updates(), Queries()
    update, query = updates.admit("run", "u", request("u")), queries.add("run", WorkflowQuery())
    updates.abort("run")
    queries.abort("run")
    assert update.aborted
    assert (updates.get("run", "u"), queries.attached("run")) == (None, [])
    async with asyncio.timeout(1):
        await update.ended.wait()
        with pytest.raises(RpcError, match="deleted"):
            await query.answer


def test_an_unaccepted_update_is_removed_with_its_last_waiting_call() -> None:
    updates = Updates()
    update = updates.admit("run", "u", request("u"))
    with updates.awaited("run", update):
        with updates.awaited("run", update):
            pass
        assert updates.undecided("run") == [update]
    assert updates.get("run", "u") is None


def test_an_accepted_update_is_kept() -> None:
    updates = Updates()
    update = updates.admit("run", "u", request("u"))
    with updates.awaited("run", update):
        update.accept()
    assert updates.get("run", "u") is update
