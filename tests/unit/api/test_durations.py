from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from perdure.api.times import (
    DURATION_MAX_LENGTH,
    LONGEST,
    DecimalDuration,
    Duration,
    DurationShape,
    PositiveDuration,
    format_decimal_duration,
    format_duration,
    parse_decimal_duration,
    parse_duration,
)

durations = st.timedeltas(min_value=timedelta(0), max_value=LONGEST)
parts = st.lists(st.tuples(st.integers(0, 99_999), st.sampled_from(["h", "m", "s", "ms"])), min_size=1, max_size=4)


class Model(BaseModel):
    any: Duration = timedelta(0)
    positive: PositiveDuration = timedelta(1)
    decimal: DecimalDuration = timedelta(0)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0h", timedelta(0)),
        ("0s", timedelta(0)),
        ("0h0m0s", timedelta(0)),
        ("1h", timedelta(hours=1)),
        ("30m", timedelta(minutes=30)),
        ("10s", timedelta(seconds=10)),
        ("500ms", timedelta(milliseconds=500)),
        ("2h30m", timedelta(hours=2, minutes=30)),
        ("150m", timedelta(minutes=150)),
        ("7230s", timedelta(seconds=7230)),
        ("1h30m10s", timedelta(hours=1, minutes=30, seconds=10)),
        ("10s30m1h", timedelta(hours=1, minutes=30, seconds=10)),
        ("100ms200ms300ms", timedelta(milliseconds=600)),
        ("30d", timedelta(days=30)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("99999d99999h", LONGEST),
    ],
)
def test_parse_accepts_gep_2257_and_days(text: str, want: timedelta) -> None:
    assert parse_duration(text) == want


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "-1h", "+1h", "1.5h", "1h 30m", " 1h", "1h\n", "h", "1H", "1w", "1us", "999999h"),
        *("1h30m10s20ms50h", "1h1d", "1d1d", "10 minutes", "PT1H", "\u0661h", "1h1h1h1h1h"),
    ],
)
def test_parse_rejects_other_forms_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a duration such as .* `1h30m`"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["123456d", "999999h", "1000000000000s", "1h1d", "1h1h1h1h1h"])
def test_parse_says_what_is_too_long_or_in_the_wrong_order(text: str) -> None:
    for parse in (parse_duration, parse_decimal_duration):
        with pytest.raises(ValueError, match="with days first, at most four other parts, and at most 5 digits of days"):
            parse(text)


@pytest.mark.parametrize("text", ["1.5h", "1w", "1h 30m", ""])
def test_parse_says_nothing_about_sizes_if_the_form_is_another_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"`30d`$"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (timedelta(0), "0s"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=30), "30d"),
        (timedelta(hours=36), "1d12h"),
        (timedelta(seconds=1, microseconds=400), "1s"),
        (timedelta(milliseconds=999, microseconds=600), "1s"),
        (timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5), "1d2h3m4s5ms"),
    ],
)
def test_format_is_canonical(value: timedelta, want: str) -> None:
    assert format_duration(value) == want


@pytest.mark.parametrize("value", [timedelta(seconds=-1), LONGEST + timedelta(days=1), timedelta.max])
def test_format_rejects_values_out_of_range(value: timedelta) -> None:
    with pytest.raises(ValueError, match="must be between 0s and 99999d"):
        format_duration(value)


@given(durations)
def test_durations_survive_format_and_parse(value: timedelta) -> None:
    rounded = timedelta(milliseconds=value // timedelta(milliseconds=1))
    text = format_duration(rounded)
    assert parse_duration(text) == rounded
    assert len(text) <= DURATION_MAX_LENGTH


@given(parts, st.none() | st.integers(0, 99_999))
def test_every_valid_form_has_one_canonical_form(numbers: list[tuple[int, str]], days: int | None) -> None:
    text = ("" if days is None else f"{days}d") + "".join(f"{number}{unit}" for number, unit in numbers)
    value = parse_duration(text)
    assert format_duration(value) == format_duration(parse_duration(format_duration(value)))
    assert len(text) <= DURATION_MAX_LENGTH


@given(durations)
def test_decimal_durations_keep_microseconds(value: timedelta) -> None:
    assert parse_decimal_duration(format_decimal_duration(value)) == value


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("3.5s", timedelta(seconds=3, milliseconds=500)),
        ("0.000000001s", timedelta(0)),
        ("1.123456789s", timedelta(seconds=1, microseconds=123456)),
        ("1h", timedelta(hours=1)),
        ("999999999.0s", timedelta(seconds=999999999)),
    ],
)
def test_decimal_durations_accept_the_google_format(text: str, want: timedelta) -> None:
    assert parse_decimal_duration(text) == want


@pytest.mark.parametrize("text", ["", "3.s", ".5s", "3.5m", "3.1234567890s", "1e3s", "3.5"])
def test_decimal_durations_reject_other_forms(text: str) -> None:
    with pytest.raises(ValueError, match="or decimal seconds"):
        parse_decimal_duration(text)


def test_a_field_is_a_timedelta_in_python_and_canonical_text_in_json() -> None:
    model = Model.model_validate({"any": "90m", "positive": "1ms", "decimal": "3.25s"})
    assert model.any == timedelta(minutes=90)
    assert model.model_dump(mode="json") == {"any": "1h30m", "positive": "1ms", "decimal": "3s250ms"}
    assert model.model_dump()["any"] == timedelta(minutes=90)


@pytest.mark.parametrize("value", [5, 1.5, None, [], True, "soon"])
def test_a_field_rejects_an_invalid_duration(value: object) -> None:
    with pytest.raises(ValidationError, match="must be a duration"):
        Model.model_validate({"any": value})


def test_a_field_rejects_a_too_short_duration() -> None:
    with pytest.raises(ValidationError, match="must be longer than `0s`"):
        Model(positive=timedelta(0))
    with pytest.raises(ValueError, match="must be at least `10s`"):
        DurationShape(at_least=timedelta(seconds=10)).read("9s999ms")
