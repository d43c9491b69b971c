"""`ActivityEnvironment`: tests of activities without a cluster."""

import asyncio
import threading
from typing import Any

import pytest

from perdure import activity
from perdure.activity import ActivityEnvironment


def copy_files(files: list[str]) -> dict[str, int]:
    done = (activity.last_heartbeat_details() or {}).get("done", 0)
    for number, name in enumerate(files[done:], start=done + 1):
        if not name:
            raise activity.ApplicationError("a file has no name", type="BadName", non_retryable=True)
        activity.heartbeat({"done": number})
    return {"files": len(files), "resumedAt": done}


def test_an_activity_runs_and_its_heartbeats_are_recorded() -> None:
    env = ActivityEnvironment()
    assert env.run(copy_files, ["a", "b"]) == {"files": 2, "resumedAt": 0}
    assert env.heartbeats == [{"done": 1}, {"done": 2}]


def test_an_activity_resumes_from_the_last_heartbeat_details() -> None:
    env = ActivityEnvironment(attempt=2, last_heartbeat_details={"done": 3})
    assert env.run(copy_files, ["a", "b", "c", "d"]) == {"files": 4, "resumedAt": 3}
    assert env.heartbeats == [{"done": 4}]


def test_an_exception_of_the_activity_is_raised() -> None:
    with pytest.raises(activity.ApplicationError) as caught:
        ActivityEnvironment().run(copy_files, [""])
    assert (caught.value.type, caught.value.non_retryable) == ("BadName", True)


def test_info_has_the_values_of_the_environment() -> None:
    info = ActivityEnvironment(attempt=3, run_id="r").run(lambda: [activity.info().attempt, activity.info().run_id])
    assert info == [3, "r"]


def test_a_heartbeat_raises_a_cancellation_once() -> None:
    cleaned: list[bool] = []

    def work() -> None:
        try:
            for number in range(10):
                activity.heartbeat(number)
        except activity.CancelledError:
            cleaned.append(activity.cancelled())
            activity.heartbeat("cleaning up")
            raise

    env = ActivityEnvironment(on_heartbeat=lambda details: env.cancel("enough") if details == 2 else None)
    with pytest.raises(activity.CancelledError, match="enough"):
        env.run(work)
    assert env.heartbeats == [0, 1, 2, "cleaning up"]
    assert cleaned == [True]


def test_each_heartbeat_of_a_superseded_attempt_raises() -> None:
    def work() -> None:
        with pytest.raises(activity.SupersededError):
            activity.heartbeat()
        activity.heartbeat()

    env = ActivityEnvironment()
    env.supersede()
    with pytest.raises(activity.SupersededError):
        env.run(work)


async def test_a_coroutine_is_awaited_and_its_task_is_cancelled() -> None:
    assert await ActivityEnvironment().run(coroutine, 2) == 4
    begun = asyncio.Event()
    env = ActivityEnvironment(on_heartbeat=lambda _: begun.set())
    running = asyncio.ensure_future(env.run(forever))
    await begun.wait()
    env.cancel("enough")
    with pytest.raises(activity.CancelledError, match="enough"):
        await running


async def coroutine(number: int) -> int:
    await asyncio.sleep(0)
    activity.heartbeat(number)
    return number * 2


async def forever() -> None:
    activity.heartbeat("begun")
    await asyncio.Event().wait()


async def test_concurrent_environments_are_independent() -> None:
    first, second = ActivityEnvironment(attempt=1), ActivityEnvironment(attempt=2)

    async def which() -> int:
        await asyncio.sleep(0)
        return activity.info().attempt

    assert await asyncio.gather(first.run(which), second.run(which)) == [1, 2]


def test_heartbeats_of_threads_are_recorded() -> None:
    def work() -> None:
        thread = threading.Thread(target=activity.heartbeat, args=("from a thread",))
        thread.start()
        thread.join()
        with activity.auto_heartbeat():
            pass

    env = ActivityEnvironment()
    env.run(work)
    assert env.heartbeats == ["from a thread"]


@pytest.mark.parametrize("result", [{1, 2}, float("nan"), 2**64])
def test_a_result_that_is_not_json_is_rejected(result: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        ActivityEnvironment().run(lambda: result)


def test_input_and_result_are_converted_through_json() -> None:
    assert ActivityEnvironment().run(lambda value: (type(value).__name__, value), (1, 2)) == ["list", [1, 2]]


def test_too_large_details_are_rejected() -> None:
    with pytest.raises(activity.PayloadTooLargeError):
        ActivityEnvironment().run(lambda: activity.heartbeat("x" * 20_000))


def test_a_missing_attribute_is_named() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = activity.nothing_like_it
