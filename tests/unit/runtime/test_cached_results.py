"""Which cached result an attempt can use, and what is stored."""

from datetime import timedelta
from typing import Any

import pytest

from perdure.api.kinds.cachedresult import CachedResult
from perdure.api.kinds.workflow import MAX_CACHED_BYTES
from perdure.engine.inputs import AttemptCompleted
from perdure.runtime.cached_results import CacheKey, build_cached_result, too_large

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
REPORT = {"store": "s", "key": "shop/uid/2-1/report", "size": 3}


def stored(make: Any, result: Any = 42, key: str = "v1", **artifacts: Any) -> dict[str, Any]:
    completed = AttemptCompleted(scheduled_event_id=2, attempt=1, result=result, artifacts=artifacts)
    return build_cached_result(CacheKey.of(make.activity(), key), make.run, "pay", completed, make.now, make.now + HOUR)


def test_a_stored_result_is_a_valid_object(make: Any) -> None:
    found = stored(make, report=REPORT)
    CachedResult.parse(found)
    assert found["metadata"]["name"].startswith("charge-h")
    assert found["metadata"]["labels"]["perdure.dev/activity"] == "charge"
    assert found["metadata"]["labels"]["perdure.dev/expires"] == str(int((make.now + HOUR).timestamp()))
    assert (found["spec"]["result"], found["spec"]["artifacts"]) == (42, {"report": REPORT})
    assert (found["spec"]["completedTime"], found["spec"]["expiryTime"]) == (
        "2026-01-31T12:02:00Z",
        "2026-01-31T13:02:00Z",
    )
    assert "result" not in stored(make, None)["spec"]


@pytest.mark.parametrize(
    ("max_age", "age", "is_found"),
    [
        (HOUR, timedelta(0), True),
        (HOUR, HOUR - MINUTE, True),
        (HOUR, HOUR, False),
        (2 * HOUR, HOUR, False),
        (MINUTE, MINUTE, False),
        (2 * MINUTE, MINUTE, True),
    ],
    ids=["new", "old", "expired", "expired for its author", "too old for the reader", "young enough for the reader"],
)
def test_a_result_is_found_until_it_is_too_old(
    make: Any, max_age: timedelta, age: timedelta, *, is_found: bool
) -> None:
    assert CacheKey.of(make.activity(), "v1").matches(stored(make), max_age, make.now + age) is is_found


@pytest.mark.parametrize(
    ("changes", "key", "is_found"),
    [
        ({}, "v1", True),
        ({"startToCloseTimeout": "1h", "retryPolicy": {"exponential": {}}}, "v1", True),
        ({"cache": {"key": "${input.id}", "maxAge": "3h"}}, "v1", True),
        ({}, "v2", False),
        ({"name": "refund"}, "v1", False),
        ({"container": {"image": "shop/charge:2"}}, "v1", False),
        ({"podSpecPatch": {"priority": 1}}, "v1", False),
        ({"artifacts": {"outputs": [{"name": "report", "path": "/out/report"}]}}, "v1", False),
    ],
)
def test_a_result_is_found_by_key_and_definition_of_the_activity(
    make: Any, changes: dict[str, Any], key: str, *, is_found: bool
) -> None:
    assert CacheKey.of(make.activity(**changes), key).matches(stored(make), HOUR, make.now) is is_found


def test_a_terminating_result_is_not_found(make: Any) -> None:
    leaving = stored(make)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-31T12:02:00Z"
    assert not CacheKey.of(make.activity(), "v1").matches(leaving, HOUR, make.now)


def test_a_name_collision_does_not_return_the_result_of_another_key(make: Any) -> None:
    other = stored(make, key="v2")
    assert not CacheKey.of(make.activity(), "v1").matches(other, HOUR, make.now)


def test_results_of_up_to_64_kib_are_stored(make: Any) -> None:
    room = MAX_CACHED_BYTES - len('["",null]')
    assert too_large(stored(make, "x" * room)) == ""
    want = "the result has 65537 bytes, but at most 65536 can be cached; return a reference to the data"
    assert too_large(stored(make, "x" * (room + 1))) == want
