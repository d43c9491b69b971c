"""Segments: a sealed history is read completely, and later changes are detected."""

import copy
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.api.kinds.historysegment import HistorySegment
from perdure.api.names import segment_name
from perdure.api.reasons import ConditionReason
from perdure.runtime import segments
from perdure.runtime.attempts import RunRef

RUN = RunRef(namespace="shop", name="order-1", uid="0b7d1b5e-0000-4000-8000-000000000001", workflow_id="order")
Json = dict[str, Any]

values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("abä/~", max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def events_of(inputs: list[Any], first: int = 1) -> list[Json]:
    return [{"eventId": first + n, "eventType": "MarkerRecorded", "details": value} for n, value in enumerate(inputs)]


def stored(value: Any) -> Any:
    """A value as the API server returns it: keys in another order, floats without a fraction as integers."""
    if isinstance(value, dict):
        return {key: stored(value[key]) for key in sorted(value, reverse=True)}
    if isinstance(value, list):
        return [stored(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return json.loads(f"{value:.0f}")
    return value


@given(st.lists(values, min_size=1, max_size=5))
def test_the_hash_of_a_segment_survives_storage(inputs: list[Any]) -> None:
    segment = segments.build(RUN, 0, events_of(inputs), None)
    again = stored(orjson.loads(orjson.dumps(segment)))
    assert segments.fault(again, RUN.uid, 0, None) is None
    assert segments.continues(again, events_of(inputs))


def test_a_segment_is_a_valid_object() -> None:
    first = segments.build(RUN, 0, events_of([1, 2]), None)
    second = segments.build(RUN, 1, events_of([3], 3), first["spec"]["hash"])
    for segment in (first, second):
        spec = HistorySegment.parse(segment).spec.dump()
        assert segment["spec"].items() <= spec.items()
    assert (second["spec"]["firstEventId"], second["spec"]["lastEventId"]) == (3, 3)


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=12), st.data())
def test_a_sealed_history_is_read_completely_and_any_change_is_detected(sizes: list[int], data: st.DataObject) -> None:
    events = events_of(["x" * size for size in sizes])
    sealed, history = segments.chain(RUN, events)
    assert (sealed, history) == segments.chain(RUN, events)
    assert all(
        segments.size_of(s["spec"]["events"]) <= segments.MAX_TAIL_BYTES or len(s["spec"]["events"]) == 1
        for s in sealed
    )
    run = {"metadata": {"name": RUN.name, "uid": RUN.uid}, "status": {"history": history}}
    shuffled = data.draw(st.permutations(sealed))
    assert segments.gather(run, shuffled) == segments.AssembledHistory(events, ())
    if not sealed:
        return
    victim = data.draw(st.integers(0, len(sealed) - 1))
    name = sealed[victim]["metadata"]["name"]
    lost = segments.gather(run, [s for s in sealed if s["metadata"]["name"] != name])
    assert [(d.reason, name in d.message) for d in lost.damage] == [(ConditionReason.SEGMENT_MISSING, True)]
    tampered = copy.deepcopy(sealed)
    tampered[victim]["spec"]["events"][0]["details"] += "!"
    (reported,) = segments.gather(run, tampered).damage
    assert (reported.reason, name in reported.message) == (ConditionReason.SEGMENT_CHANGED, True)
    # Changing the hash, too, breaks the chain after it.
    spec = tampered[victim]["spec"]
    spec["hash"] = segments.digest(spec.get("previousHash"), spec["events"])
    assert segments.gather(run, tampered).damage


@given(st.integers(1, 30), st.lists(st.integers(1, 10), max_size=8))
def test_no_event_is_lost_when_sealing_operators_crash(start: int, growth: list[int]) -> None:
    """Operators seal the tail they know, and are killed before the commit or after it; the tail grows in between."""
    there: dict[str, Json] = {}
    tail, index, previous, count = events_of([0] * start), 0, None, start
    for turn, more in enumerate(growth):
        segment = segments.build(RUN, index, tail, previous)
        found = there.setdefault(segment["metadata"]["name"], segment)
        assert segments.fault(found, RUN.uid, index, previous) is None
        assert segments.continues(found, tail)
        if turn % 3 != 1:  # the others are killed here
            tail = tail[len(found["spec"]["events"]) :]
            index, previous = index + 1, found["spec"]["hash"]
        tail += events_of([turn] * more, count + 1)
        count += more
    history: Json = {"events": tail, "segments": index}
    if previous:
        history["lastSegmentHash"] = previous
    run = {"metadata": {"name": RUN.name, "uid": RUN.uid}, "status": {"history": history}}
    past = segments.gather(run, there.values())
    assert not past.damage
    assert [event["eventId"] for event in past.events] == list(range(1, count + 1))


def _stranger(segment: Json) -> None:
    segment["metadata"]["ownerReferences"][0]["uid"] = "another"


def _other_run(segment: Json) -> None:
    segment["spec"]["workflowRun"]["runId"] = "another"


def _other_number(segment: Json) -> None:
    segment["spec"]["index"] = 7


def _other_chain(segment: Json) -> None:
    segment["spec"]["previousHash"] = "sha256:" + "0" * 64


def _other_events(segment: Json) -> None:
    segment["spec"]["events"][0]["details"] = "other"


def _too_deep(segment: Json) -> None:
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]
    segment["spec"]["events"][0]["details"] = deep


@pytest.mark.parametrize(
    "change", [_stranger, _other_run, _other_number, _other_chain, _other_events, _too_deep], ids=lambda f: f.__name__
)
def test_a_changed_segment_is_detected(change: Any) -> None:
    segment = segments.build(RUN, 0, events_of([1, 2]), None)
    assert segments.fault(segment, RUN.uid, 0, None) is None
    change(segment)
    assert segments.fault(segment, RUN.uid, 0, None)


def test_a_shorter_or_different_tail_is_not_continued() -> None:
    segment = segments.build(RUN, 0, events_of([1, 2]), None)
    assert segments.continues(segment, events_of([1, 2, 3]))
    assert not segments.continues(segment, events_of([1]))
    assert not segments.continues(segment, events_of([1, 3, 3]))


@given(st.integers(0, 99_999), st.integers(0, 99_999))
def test_segments_of_different_runs_never_share_a_name(one: int, other: int) -> None:
    names = {segment_name(run, uid, n) for run in ("a", "a-0001") for uid in ("u1", "u2") for n in (one, other)}
    assert len(names) == 4 * len({one, other})
    assert len(segment_name("r" * 253, "u", one)) <= 253
