"""Payloads survive storage in the API server byte by byte."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload

from perdure.engine.payloads import plain
from perdure.frontend.messages import payloads as data
from perdure.runtime.blobs import ROOM, Room, reference_in

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
texts = st.text(max_size=8).map(str.encode)
anything = st.builds(
    lambda encoding, metadata, content, sizes: Payload(
        metadata={"encoding": encoding, **metadata},
        data=content,
        external_payloads=[Payload.ExternalPayloadDetails(size_bytes=size) for size in sizes],
    ),
    st.sampled_from([b"json/plain", b"binary/plain", b"binary/null", b"binary/encrypted"]),
    st.dictionaries(st.text(min_size=1, max_size=5), st.binary(max_size=5), max_size=2),
    st.binary(max_size=20) | texts | values.map(lambda value: json.dumps(value).encode()),
    st.lists(st.integers(0, 2**40), max_size=2),
)


def json_payload(value: Any) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=data.canonical(value))


def stored_by_the_api_server(value: Any) -> Any:
    """Go's JSON: numbers without a fraction become integers, and keys are reordered."""

    def number(text: str) -> Any:
        found = float(text)
        return int(found) if found.is_integer() else found

    return json.loads(json.dumps(value, sort_keys=True), parse_float=number)


@given(st.lists(anything | values.map(json_payload), max_size=3))
def test_payloads_survive_storage_byte_by_byte(sent: list[Payload]) -> None:
    kept = stored_by_the_api_server(data.to_json(sent))
    assert data.from_json(kept) == sent


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"1180591620717411303424", 2.0**70),
        (b"[" * 200 + b"]" * 200, json.loads("[" * 200 + "]" * 200)),
        (b"[" * 202 + b"]" * 202, None),
        (b"[" * 100_000 + b"]" * 100_000, None),
        (b'"\\ud800"', None),
        (b"NaN", None),
    ],
    ids=["large number", "as deep as may be", "deeper", "far deeper", "half a character", "no number"],
)
def test_the_plain_form_of_a_payload_can_be_stored_in_a_status(said: bytes, shown: Any) -> None:
    kept = data.to_json([Payload(metadata={"encoding": b"json/plain"}, data=said)])
    found = plain(kept)
    assert found == (kept["payloads"][0] if shown is None else shown)
    assert len(orjson.dumps({"status": {"output": found}})) > len(said)


@pytest.mark.parametrize("value", [{"orderId": 7}, "text", 3, [1, 2], True, {"payloads": 1}])
def test_plain_json_is_unchanged(value: Any) -> None:
    assert data.to_json([json_payload(value)]) == value


@pytest.mark.parametrize("value", [None, 1.5, 2**60, {"payloads": [1]}, [1.0]])
def test_json_that_would_not_survive_storage_is_wrapped(value: Any) -> None:
    kept = data.to_json([json_payload(value)])
    assert set(kept) == {"payloads"}
    assert plain(kept) == value


def test_payloads_are_stored_in_the_status_while_they_fit() -> None:
    room = Room(ROOM - 3_000)

    def stays(size: int) -> bool:
        payload = Payload(metadata={"encoding": b"binary/plain"}, data=b"x" * size)
        return reference_in(data.to_json([payload], allow_blob=True, room=room)) is None

    assert [stays(size) for size in (2_000, 2_000, 900, 400, 400)] == [True, False, True, True, True]


def test_a_plain_value_is_one_payload() -> None:
    (payload,) = data.from_json({"orderId": 7})
    assert (payload.metadata["encoding"], payload.data) == (b"json/plain", b'{"orderId":7}')
    assert data.from_json(None) == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [("Keyword", "a"), ("Int", 1), ("Bool", True), ("Double", 1.0), ("KeywordList", ["a"]), ("Text", "words")],
)
def test_search_attributes_keep_their_types(kind: str, value: Any) -> None:
    payload = Payload(metadata={"encoding": b"json/plain", "type": kind.encode()}, data=json.dumps(value).encode())
    kept = stored_by_the_api_server(data.attributes_to_json({"A": payload}, {"A": kind}, "orders"))
    back = data.attribute(kept["A"])
    assert back.metadata["type"].decode() == kind
    assert json.loads(back.data) == value


def test_describe_shows_the_sent_type_and_lists_the_registered_one() -> None:
    sent = Payload(metadata={"encoding": b"json/plain", "type": b"Keyword"}, data=b'"words"')
    kept = stored_by_the_api_server(data.attributes_to_json({"A": sent}, {"A": "Text"}, "orders"))
    shown, listed = data.attributes(kept), data.attributes(kept, registered=True)
    assert shown is not None
    assert listed is not None
    assert shown.indexed_fields["A"] == sent
    assert listed.indexed_fields["A"].metadata["type"] == b"Text"
    unknown = Payload(metadata={"encoding": b"json/plain", "type": b"Word"}, data=b'"words"')
    assert data.attributes_to_json({"A": unknown}, {"A": "Keyword"}, "orders") == {"A": "words"}


def test_the_scheduled_start_time_is_a_datetime_attribute() -> None:
    found = data.attributes({"TemporalScheduledStartTime": "2026-11-23T00:00:00Z", "TemporalScheduledById": "nightly"})
    assert found is not None
    kinds = {name: payload.metadata["type"] for name, payload in found.indexed_fields.items()}
    assert kinds == {"TemporalScheduledStartTime": b"Datetime", "TemporalScheduledById": b"Keyword"}


def test_an_empty_attribute_is_removed() -> None:
    for gone in (Payload(metadata={"encoding": b"binary/null"}), Payload(data=b"[]"), Payload()):
        assert data.attributes_to_json({"A": gone}, {"A": "Int"}, "orders", keep_removed=True) == {"A": None}
        assert data.attributes_to_json({"A": gone}, {"A": "Int"}, "orders") == {}
