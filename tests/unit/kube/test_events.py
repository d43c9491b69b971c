"""Notes of Kubernetes Events within the limits of the API server, with one on loopback that has the same limits."""

import asyncio

import pytest
from structlog.testing import capture_logs

from perdure.api.reasons import EventReason
from support.http_server import recording

ABOUT = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "WorkflowRun",
    "metadata": {"name": "order", "namespace": "shop", "uid": "uid"},
}


@pytest.mark.parametrize(
    ("note", "kept"),
    [
        ("short  and\nplain", "short and plain"),
        ("x" * 2_000, "x" * 1_024),
        ("é" * 2_000, "é" * 512),
        ("x" + "漢" * 2_000, "x" + "漢" * 341),
        ("🚲" * 300, "🚲" * 256),
        ("half \ud83d of a pair", "half ? of a pair"),
    ],
)
async def test_a_note_is_truncated_to_the_limit_of_the_api_server(note: str, kept: str) -> None:
    async with recording() as (recorder, posted):
        working = asyncio.create_task(recorder.run())
        recorder.record(ABOUT, kind="Warning", reason=EventReason.FAILED, note=note, action="Tell")
        assert await asyncio.wait_for(posted.get(), 30) == kept
        working.cancel()


async def test_dropped_events_are_logged_once_and_counted() -> None:
    async with recording(backlog=2) as (recorder, posted):
        with capture_logs() as logs:
            for number in range(5):
                recorder.record(ABOUT, kind="Warning", reason=EventReason.FAILED, note=str(number), action="Tell")
            working = asyncio.create_task(recorder.run())
            assert [await asyncio.wait_for(posted.get(), 30) for _ in range(2)] == ["0", "1"]
            working.cancel()
        assert [log["events"] for log in logs] == [3]


async def test_events_of_a_busy_namespace_neither_delay_nor_displace_others() -> None:
    async with recording(backlog=3) as (recorder, posted):
        with capture_logs() as logs:
            for number in range(9):
                recorder.record(ABOUT, kind="Warning", reason=EventReason.FAILED, note=f"busy {number}", action="Tell")
            other = {**ABOUT, "metadata": {**ABOUT["metadata"], "namespace": "bank"}}
            recorder.record(other, kind="Warning", reason=EventReason.FAILED, note="other", action="Tell")
            working = asyncio.create_task(recorder.run())
            notes = [await asyncio.wait_for(posted.get(), 30) for _ in range(4)]
            working.cancel()
        assert notes == ["busy 0", "other", "busy 1", "busy 2"]
        assert [log["events"] for log in logs] == [6]


@pytest.mark.parametrize(("routine", "first"), [(False, "it failed"), (True, "it started")])
async def test_routine_events_are_recorded_only_if_enabled(*, routine: bool, first: str) -> None:
    async with recording(routine=routine) as (recorder, posted):
        working = asyncio.create_task(recorder.run())
        recorder.record(ABOUT, kind="Normal", reason=EventReason.STARTED, note="it started", action="Start")
        recorder.record(ABOUT, kind="Warning", reason=EventReason.FAILED, note="it failed", action="Close")
        assert await asyncio.wait_for(posted.get(), 30) == first
        working.cancel()
