"""How often an operator that is short of memory looks for memory that it can return."""

from datetime import timedelta

from perdure.controller.capacity import Capacity, CapacitySettings
from perdure.controller.directory import Directory
from perdure.controller.queue import Key, KeyedQueue
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
