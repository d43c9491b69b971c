"""In which order runs start that have waited for room, and what an operator knows and returns of its memory."""

from datetime import timedelta
from pathlib import Path

import pytest

from perdure.api.reasons import ConditionReason
from perdure.controller.capacity import Capacity, CapacitySettings, Refusal, share_of_memory
from perdure.controller.directory import Directory
from perdure.controller.queue import Key, KeyedQueue, RunKey
from perdure.kube.clock import now
from support.clock import stopped_clock


async def _nothing(_: Key) -> None:
    """Process nothing."""


def test_memory_is_returned_at_most_once_a_minute() -> None:
    read: list[float] = []

    def in_use() -> float:
        read.append(0.95)
        return read[-1]

    queue: KeyedQueue[Key] = KeyedQueue(_nothing, clock=now)
    capacity = Capacity(Directory(), queue, CapacitySettings(memory_in_use=in_use))
    with stopped_clock() as clock:
        counts = []
        for _ in range(4):
            before = len(read)
            assert capacity.refusal("shop") is not None
            counts.append(len(read) - before)  # twice if memory was returned in between
            clock.forward(timedelta(seconds=30))
    assert counts == [2, 1, 2, 1]


FULL = Refusal(ConditionReason.TOO_MANY_OPEN_RUNS, "the namespace is full")


def test_who_has_waited_the_longest_starts_first_however_often_it_looks() -> None:
    woken: list[Key] = []

    class Queue(KeyedQueue[Key]):
        def wake(self, key: Key) -> None:
            woken.append(key)

    capacity = Capacity(Directory(), Queue(_nothing, clock=now))
    a, b, c, d = (RunKey("shop", name, name) for name in "abcd")
    for key in (a, b, c):
        capacity.wait(key, FULL, now())
    capacity.wait(a, FULL, now())  # it looks again after some minutes
    capacity.release("shop")
    assert woken == [a]
    capacity.wait(a, FULL, now())  # what closed was deleted, and another run took its place
    capacity.wait(d, FULL, now())
    capacity.wait(a, FULL, now())
    capacity.leave(c)  # it was deleted
    for _ in range(4):
        capacity.release("shop")
    assert woken == [a, a, b, d]


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"memory.max": "1000\n", "memory.current": "700\n", "memory.stat": "anon 1\ninactive_file 200\n"}, 0.5),
        ({"memory.max": "max\n", "memory.current": "700\n", "memory.stat": "inactive_file 200\n"}, 0.0),
        (
            {
                "memory/memory.limit_in_bytes": "1000\n",
                "memory/memory.usage_in_bytes": "700\n",
                "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 100\n",
            },
            0.6,
        ),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0.0),
        ({}, 0.0),
    ],
    ids=["cgroup v2", "v2 without a limit", "cgroup v1", "v1 without a limit", "neither"],
)
def test_the_share_of_memory_is_that_of_the_container(files: dict[str, str], share: float, tmp_path: Path) -> None:
    for name, content in files.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="ascii")
    assert share_of_memory(tmp_path) == share
