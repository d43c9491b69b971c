"""Payloads and failures as Nexus has them in HTTP."""

import base64
import json
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import NexusHandlerErrorRetryBehavior
from temporalio.api.failure.v1 import Failure
from temporalio.api.nexus.v1 import Failure as NexusFailure

from perdure.frontend.nexus import protocol
from perdure.frontend.nexus.protocol import from_payload, to_payload


@pytest.mark.parametrize(
    ("headers", "content", "metadata"),
    [
        ({}, b"", {"encoding": b"binary/null"}),
        ({"Type": "application/json"}, b"[1]", {"encoding": b"json/plain"}),
        ({"Type": "application/octet-stream"}, b"\x00", {"encoding": b"binary/plain"}),
        (
            {"Type": 'application/json; format=protobuf; message-type="shop.Order"'},
            b"{}",
            {"encoding": b"json/protobuf", "messageType": b"shop.Order"},
        ),
        (
            {"Type": 'application/x-protobuf; message-type="shop.Order"'},
            b"\x08\x01",
            {"encoding": b"binary/protobuf", "messageType": b"shop.Order"},
        ),
        ({"type": "text/plain"}, b"x", {"encoding": b"unknown/nexus-content", "type": b"text/plain"}),
        (
            {"type": "application/json; charset=utf-8"},
            b"1",
            {"encoding": b"unknown/nexus-content", "type": b"application/json; charset=utf-8"},
        ),
        (
            {"type": "application/json", "language": "en"},
            b"1",
            {"encoding": b"unknown/nexus-content", "type": b"application/json", "language": b"en"},
        ),
        ({}, b"x", {"encoding": b"unknown/nexus-content"}),
    ],
)
def test_content_survives_conversion_to_a_payload(
    headers: dict[str, str], content: bytes, metadata: dict[str, bytes]
) -> None:
    lower = {name.lower(): value for name, value in headers.items()}
    payload = to_payload({**lower, "length": str(len(content)), "encoding": "identity"}, content)
    assert payload == Payload(metadata=metadata, data=content)
    assert from_payload(payload) == (headers, content)


@pytest.mark.parametrize(
    "payload",
    [
        Payload(metadata={"encoding": b"binary/encrypted", "key": b"k"}, data=b"\x00"),
        Payload(metadata={"encoding": b"json/plain", "type": b"Keyword"}, data=b"1"),
        Payload(data=b"x"),
        Payload(metadata={"encoding": b"unknown/nexus-content", "length": b"0"}, data=b"HTTP/1.1 200 OK"),
        Payload(metadata={"encoding": b"unknown/nexus-content", "Encoding": b"gzip"}, data=b"x"),
        Payload(metadata={"encoding": b"unknown/nexus-content", "a b": b"c"}, data=b"x"),
        Payload(metadata={"encoding": b"unknown/nexus-content", "type": b"a\r\nX: y"}, data=b"x"),
        Payload(metadata={"encoding": b"json/protobuf", "messageType": b"a\nb"}, data=b"x"),
    ],
)
def test_a_payload_without_a_content_type_is_sent_completely(payload: Payload) -> None:
    headers, content = from_payload(payload)
    assert headers == {"Type": "application/x-temporal-payload"}
    assert to_payload({"type": headers["Type"]}, content) == payload


def test_failures_of_nexus_keep_their_details_and_causes() -> None:
    failure = NexusFailure(message="m", stack_trace="s", metadata={"type": "t"}, details=b'{"a": 1}')
    failure.cause.CopyFrom(NexusFailure(message="c", details=b"no JSON"))
    expected: dict[str, Any] = {
        "message": "m",
        "stackTrace": "s",
        "metadata": {"type": "t"},
        "details": {"a": 1},
        "cause": {"message": "c"},
    }
    assert protocol.of_nexus(failure) == expected


def test_failures_of_temporal_are_in_the_details() -> None:
    failure = Failure(message="m", source="PythonSDK", stack_trace="s")
    failure.application_failure_info.type = "Unfit"
    failure.cause.message = "c"
    found = protocol.of_temporal(failure)
    assert (found["message"], found["stackTrace"]) == ("m", "s")
    assert found["metadata"] == {"type": "temporal.api.failure.v1.Failure"}
    assert found["details"]["source"] == "PythonSDK"
    assert found["details"]["applicationFailureInfo"] == {"type": "Unfit"}
    assert "message" not in found["details"]
    assert found["cause"]["message"] == "c"


def test_errors_of_handlers_keep_their_type_retry_behavior_and_attributes() -> None:
    behavior = NexusHandlerErrorRetryBehavior.NEXUS_HANDLER_ERROR_RETRY_BEHAVIOR_NON_RETRYABLE
    failure = Failure(message="m")
    failure.nexus_handler_failure_info.type = "INTERNAL"
    failure.nexus_handler_failure_info.retry_behavior = behavior
    failure.encoded_attributes.data = b"x"
    details = protocol.of_temporal(failure)["details"]
    attributes = base64.urlsafe_b64decode(details.pop("encodedAttributes") + "==")
    assert json.loads(attributes) == {"data": "eA=="}
    assert details == {"type": "INTERNAL", "retryableOverride": False}
