"""The form of SDK payloads for YAML and users can always be written as JSON."""

import base64
from typing import Any

import orjson
import pytest

from perdure.engine.payloads import plain


def payloads(*texts: str) -> dict[str, Any]:
    wrapped = [
        {"metadata": {"encoding": "json/plain"}, "data": base64.b64encode(text.encode()).decode()} for text in texts
    ]
    return {"payloads": wrapped}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9007199254740993", 9007199254740993),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2.0**64),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", -(2.0**63)),
        ('{"a": [123456789012345678901234567890]}', {"a": [1.2345678901234568e29]}),
        ("[" * 200 + "]" * 200, orjson.loads("[" * 200 + "]" * 200)),
    ],
)
def test_json_is_unchanged_except_that_large_numbers_become_floating_point(text: str, value: Any) -> None:
    found = plain(payloads(text))
    assert found == value
    assert type(found) is type(value)
    orjson.dumps(found)


@pytest.mark.parametrize(
    "text",
    ["not JSON", "9" * 400, "9" * 5_000, "[" * 202 + "]" * 202, "[" * 300 + "]" * 300, "[" * 100_000 + "]" * 100_000],
    ids=len,
)
def test_a_value_that_cannot_be_written_stays_wrapped(text: str) -> None:
    input_ = payloads(text, "1")
    assert plain(input_) == [input_["payloads"][0], 1]
    orjson.dumps(plain(input_))
