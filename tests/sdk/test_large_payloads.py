"""Payloads of up to 2 MiB, as on Temporal's server, through everything that carries them."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.service import RPCError

from support.sdk import large_flows
from support.sdk.client import Temporal

LARGE = 2_000_000


def _content(size: int) -> bytes:
    return bytes(number % 251 for number in range(size))


async def test_inputs_of_activities_children_and_continue_as_new_can_have_two_megabytes(temporal: Temporal) -> None:
    content = _content(LARGE)
    async with temporal.worker():
        handle = await temporal.start(large_flows.Carries.run, content, 1)
        assert await handle.result() == content
        first = temporal.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        history = await first.fetch_history()
    assert history.events[0].workflow_execution_started_event_attributes.input.payloads[0].data == content
    assert history.events[-1].workflow_execution_continued_as_new_event_attributes.input.payloads[0].data == content


async def test_signals_and_updates_can_have_two_megabytes_and_replay(temporal: Temporal) -> None:
    content = _content(LARGE)
    async with temporal.worker():
        handle = await temporal.start(large_flows.Carries.run, b"", -1)
        assert await handle.query(large_flows.Carries.sizes) == [0]  # the signal comes after the start, not with it
        await handle.signal(large_flows.Carries.take, content)
        assert await handle.execute_update(large_flows.Carries.change, content, id="one") == content[::-1]
        await handle.signal(large_flows.Carries.take, b"x" * 20_000)
    async with temporal.worker():  # it has nothing in memory, and replays the complete history
        assert await handle.query(large_flows.Carries.sizes) == [0, LARGE, LARGE, 20_000]
        assert await handle.execute_update(large_flows.Carries.change, content, id="one") == content[::-1]
        await handle.signal(large_flows.Carries.close)
        assert await handle.result() == b""


async def test_signal_with_start_delivers_a_large_signal(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(
            large_flows.Carries.run, b"", -1, start_signal="take", start_signal_args=[_content(LARGE)]
        )
        assert await handle.query(large_flows.Carries.sizes) in ([LARGE, 0], [0, LARGE])
        await handle.terminate()


async def test_heartbeat_details_of_two_megabytes_reach_the_next_attempt(temporal: Temporal) -> None:
    async with temporal.worker():
        assert await temporal.run(large_flows.BeatsAtLength.run, LARGE) == LARGE


async def test_results_beyond_two_megabytes_fail_the_activity(temporal: Temporal) -> None:
    async with temporal.worker():
        assert await temporal.run(large_flows.Gives.run, LARGE) == LARGE
        with pytest.raises(WorkflowFailureError) as caught:
            await temporal.run(large_flows.Gives.run, 2_200_000)
    assert isinstance(caught.value.cause, ActivityError)
    assert isinstance(caught.value.cause.cause, ApplicationError)
    assert "limit" in str(caught.value.cause.cause)


async def test_inputs_and_signals_beyond_two_megabytes_are_rejected(temporal: Temporal) -> None:
    async with temporal.worker():
        too_much = b"x" * 2_200_000
        with pytest.raises(RPCError, match="Blob data size exceeds limit"):
            await temporal.start(large_flows.Carries.run, too_much, -1)
        handle = await temporal.start(large_flows.Carries.run, b"", -1)
        with pytest.raises(RPCError, match="Blob data size exceeds limit"):
            await handle.signal(large_flows.Carries.take, too_much)
        await handle.terminate()


async def test_pages_of_a_history_with_large_payloads_stay_below_the_limit_of_messages(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(large_flows.Carries.run, b"", -1)
        for _ in range(4):
            await handle.signal(large_flows.Carries.take, _content(LARGE))
        await handle.signal(large_flows.Carries.close)
        await handle.result()
    pages = [events async for events in _pages(handle)]
    assert len(pages) >= 4
    assert all(sum(event.ByteSize() for event in events) < 4_000_000 for events in pages)
    names = await temporal.names(handle)
    assert names.count("WorkflowExecutionSignaled") == 5


async def _pages(handle: WorkflowHandle[Any, Any]) -> AsyncIterator[Sequence[HistoryEvent]]:
    token = b""
    while True:
        page = handle.fetch_history_events(next_page_token=token or None)
        await page.fetch_next_page()
        yield page.current_page or []
        token = page.next_page_token or b""
        if not token:
            return
