"""Rate limits of task queues, and their settings."""

import math
import tracemalloc
from datetime import UTC, datetime

import pytest

from perdure.frontend import task_queues
from perdure.frontend.errors import RpcError
from perdure.frontend.matching import dispatch as model
from perdure.frontend.matching.dispatch import Backlog, QueueSettings, Rank, RateLimit, RateLimits
from perdure.frontend.matching.queues import Kind, Offer, QueueName, TaskQueues

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANY = Rank()
QUEUE = QueueName("default", Kind.ACTIVITY, "orders")


def limit(rate: float | None) -> RateLimit:
    return RateLimit(requests_per_second=rate, update_time=NOW)


def passed(limits: RateLimits, rank: Rank, seconds: float) -> int:
    """The number of items of one rank that pass within some seconds."""
    time, number = 0.0, 0
    while (wait := limits.wait(time, rank)) < math.inf and (time := time + wait) < seconds - 1e-9:
        limits.count(time, rank)
        number += 1
    return number


def test_a_configured_limit_overrides_that_of_workers() -> None:
    limits = RateLimits()
    assert limits.per_second is None
    limits.request_rate(1)
    assert passed(limits, ANY, 10) == 10
    limits.configure(QueueSettings(queue_rate_limit=limit(2)))
    limits.request_rate(1)
    assert limits.per_second == 2
    limits.configure(QueueSettings(queue_rate_limit=limit(None)))
    assert limits.per_second == 1, "a limit that was removed leaves that of workers"


def test_each_fairness_key_has_a_rate_in_proportion_to_its_weight() -> None:
    limits = RateLimits(
        QueueSettings(fairness_keys_rate_limit_default=limit(1), fairness_weight_overrides={"set": 3.0})
    )
    assert passed(limits, Rank(fairness_key="plain"), 10) == 10
    assert passed(limits, Rank(fairness_key="heavy", weight=2.0), 10) == 21
    assert passed(limits, Rank(fairness_key="set", weight=2.0), 10) == 32
    assert passed(limits, Rank(fairness_key="plain", level=1), 10) == 0, "its share counts at every level"


def test_a_rate_of_zero_pauses_a_queue() -> None:
    assert passed(RateLimits(QueueSettings(queue_rate_limit=limit(0))), ANY, 10) == 0
    assert passed(RateLimits(QueueSettings(fairness_keys_rate_limit_default=limit(0))), ANY, 10) == 0


def test_idle_fairness_keys_are_forgotten() -> None:
    limits = RateLimits(QueueSettings(fairness_keys_rate_limit_default=limit(1)))
    peaks = []
    tracemalloc.start()
    try:
        for number in range(10_000):
            limits.count(2.0 * number, Rank(fairness_key=str(number)))
            if number % 5_000 == 4_999:
                peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0], f"memory grows with every key: {peaks}"


def test_configured_weights_reorder_waiting_items() -> None:
    waiting: Backlog[Offer] = Backlog()
    for number in range(6):
        waiting.put(Offer(f"a{number}", rank=Rank(fairness_key="a")), NOW)
    for number in range(6):
        waiting.put(Offer(f"b{number}", rank=Rank(fairness_key="b")), NOW)
    waiting.set_weights(QueueSettings(fairness_weight_overrides={"b": 3.0}).weight)
    assert [waiting.pop().run_id[0] for _ in range(8)].count("b") == 6
    assert waiting.oldest == NOW


async def allowed() -> None:
    """Every poller has permission."""


async def test_new_settings_reach_a_waiting_poller() -> None:
    queues = TaskQueues()
    queues.configure("default", {"orders": {"activity": QueueSettings(queue_rate_limit=limit(0))}})
    queues.settle("run", {Offer("run"): QUEUE})
    assert await queues.poll(QUEUE, "worker", 0.01, allowed) is None
    assert queues.limits(QUEUE).per_second == 0
    queues.configure("default", {})
    assert await queues.poll(QUEUE, "worker", 5, allowed) == Offer("run")


async def test_workers_of_all_versions_share_one_limit() -> None:
    queues = TaskQueues()
    parts = [QUEUE, QueueName("default", Kind.ACTIVITY, "orders", "shop:1")]
    for part in parts:
        queues.settle(part.version, {Offer(part.version): part})
    queues.configure("default", {"orders": {"activity": QueueSettings(queue_rate_limit=limit(0.01))}})
    assert await queues.poll(parts[0], "worker", 5, allowed) == Offer("")
    assert await queues.poll(parts[1], "worker", 0.01, allowed) is None


@pytest.mark.parametrize(
    ("weights", "removed", "message"),
    [
        ({"a": math.nan}, [], "must be greater than zero"),
        ({"a": math.inf}, [], "must be finite"),
        ({"a": -1.0}, [], "must be greater than zero"),
        ({"ä" * 33: 1.0}, [], "fairness key length exceeds limit"),
        ({}, [str(number) for number in range(1_001)], "got 1001, maximum 1000"),
    ],
)
def test_invalid_weights_are_rejected(weights: dict[str, float], removed: list[str], message: str) -> None:
    with pytest.raises(RpcError, match=message):
        task_queues.check_weights(weights, removed)


def test_a_queue_has_a_limited_number_of_weights() -> None:
    full = task_queues.with_weights(model.NO_SETTINGS, {str(number): 1.0 for number in range(1_000)}, [])
    task_queues.with_weights(full, {"new": 1.0}, ["0"])
    with pytest.raises(RpcError, match="maximum of 1000"):
        task_queues.with_weights(full, {"new": 1.0}, [])
