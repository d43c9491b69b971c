"""Numbers and texts: the same characters arrive (argo-workflows#3990)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.activity._payloads import decode_output
from perdure.api.json_values import exact_integer, exact_number
from perdure.cli.inputs import json_or_text
from perdure.language.cel.values import format_double
from perdure.runtime.pods.payloads import decode, encode

_NUMBERS = [
    ("3", 3),
    ("0", 0),
    ("-7", -7),
    ("0.5", 0.5),
    ("-1.25", -1.25),
    ("20200219", 20200219),
    ("9223372036854775807", 2**63 - 1),
]
_TEXTS = [
    "1.10",
    "1.0",
    "1e3",
    "1e-07",
    "1E5",
    "-0",
    "-0.0",
    "007",
    "+1",
    "0x10",
    "1_000",
    "0.00001",
    "9223372036854775808",
]
_TEXTS += ["12345678901234567890", "0.1000000000000000055511151231257827", "1" * 400, "NaN", "-Infinity", "٣"]


@pytest.mark.parametrize(("text", "number"), _NUMBERS)
def test_a_number_that_json_writes_in_the_same_way_is_a_number(text: str, number: float) -> None:
    for found in (decode(text)[0], decode(f"{text}\n")[0], decode_output(text), json_or_text(text)):
        assert (type(found), found) == (type(number), number)


@pytest.mark.parametrize("text", _TEXTS)
def test_any_other_number_remains_text(text: str) -> None:
    assert decode(text) == (text, False)
    assert decode(f"{text}\n") == (text, False)
    assert decode(encode(decode_output(f"{text}\n")))[0] == text
    assert json_or_text(text) == text


@given(st.one_of(st.from_regex(r"-?[0-9]{1,22}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True), st.text()))
def test_the_same_characters_arrive(text: str) -> None:
    number = exact_number(text)
    if number is not None:
        assert json.dumps(number) == encode(number) == text
        if isinstance(number, float):
            assert format_double(number) == text


@given(st.integers(-(2**70), 2**70))
def test_integers_keep_their_digits(number: int) -> None:
    assert str(exact_integer(str(number))) == str(number)
    found: Any = decode(json.dumps({"id": [number]}))[0]
    assert str(found["id"][0]) == str(number)
