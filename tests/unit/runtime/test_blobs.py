"""Blobs: references, and their objects."""

from typing import Any

import msgspec
import pytest

from perdure.api.kinds.payload import Payload
from perdure.engine.payloads import referred_to, size_of
from perdure.runtime import blobs
from perdure.runtime.blobs import PART, Reference, refer, reference_in, with_content

OWNER = blobs.owner("order-1", "0b1c")


def reference(content: bytes) -> Reference:
    found = refer(content)["payloads"]
    assert isinstance(found, Reference)
    return found


@pytest.mark.parametrize("size", [1, PART, PART + 1, 2 * 1024 * 1024])
def test_a_blob_is_reassembled_from_its_parts(size: int) -> None:
    content = bytes(number % 253 for number in range(size))
    made = reference(content)
    first = blobs.first_part(made, "shop", OWNER)
    parts = [first, *blobs.further_parts(made, "shop", "first-uid")]
    assert len(parts) == blobs.parts_of(size)
    assert [part["metadata"]["name"] for part in parts] == [blobs.part_name(made.name, n) for n in range(len(parts))]
    assert all(len(msgspec.json.encode(part)) < 1_100_000 for part in parts)
    for part in parts:
        assert Payload.parse(part).spec.dump() == part["spec"]
    assert first["metadata"]["ownerReferences"] == [OWNER]
    assert {part["metadata"]["ownerReferences"][0]["uid"] for part in parts[1:]} <= {"first-uid"}
    assert blobs.joined(parts, made["hash"]) == content
    assert blobs.joined(parts[:-1], made["hash"]) is None
    assert blobs.joined([{**first, "spec": {**first["spec"], "data": "%"}}, *parts[1:]], made["hash"]) is None


def test_a_blob_for_a_future_run_has_a_label_instead_of_an_owner() -> None:
    meta = blobs.first_part(reference(b"x"), "shop", None)["metadata"]
    assert "ownerReferences" not in meta
    assert meta["labels"] == {"perdure.dev/unclaimed": "true"}


def test_references_are_found_in_json_but_not_inside_strings() -> None:
    value = refer(b"12345")
    name = value["payloads"].name
    text = msgspec.json.encode({"events": [{"input": value}]})
    assert referred_to(text) == {name: 5}
    assert size_of(text) == len(text) + 5
    assert referred_to(msgspec.json.encode({"text": text.decode()})) == {}
    assert referred_to(msgspec.json.encode(msgspec.json.decode(text))) == {name: 5}


def test_a_run_refers_to_blobs_in_its_spec_and_annotations() -> None:
    one, two = refer(b"1"), refer(b"22")
    annotations = {"perdure.dev/start-signal": msgspec.json.encode({"input": two}).decode()}
    run = {"metadata": {"name": "a", "annotations": annotations}, "spec": {"input": one}}
    assert blobs.in_manifest(run) == {one["payloads"].name: 1, two["payloads"].name: 2}


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"payloads": [1]},
        {"payloads": {"name": "payload-1"}},
        {"payloads": {"hash": "0", "name": "other", "sizeBytes": 1}},
        {"payloads": {"hash": "0", "name": f"payload-{'0' * 32}", "sizeBytes": "1"}},
        {"payloads": refer(b"1")["payloads"], "more": 1},
    ],
)
def test_other_values_are_not_references(value: Any) -> None:
    assert reference_in(value) is None


def test_only_references_with_content_are_stored() -> None:
    one, two = refer(b"1"), refer(b"2")
    two["payloads"].content = None
    assert list(with_content([{"a": one}, (two,)])) == [one["payloads"]]
    assert list(with_content(msgspec.json.decode(msgspec.json.encode(one)))) == []
