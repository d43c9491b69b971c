"""In which order runs start that have waited for room, and how often an operator returns memory that it is short of."""

from datetime import timedelta

from perdure.api.reasons import ConditionReason
from perdure.controller.capacity import Capacity, CapacitySettings, Refusal
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
