"""Small texts."""

from datetime import timedelta

import pytest

from perdure.view import text


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (-5, "0s"),
        (0.0004, "0s"),
        (0.45, "450ms"),
        (0.9996, "1s"),
        (4.25, "4.2s"),
        (59.94, "59.9s"),
        (59.96, "1m"),
        (125, "2m5s"),
        (3600, "1h"),
        (3605, "1h"),
        (90061, "1d1h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, want: str) -> None:
    assert text.duration(timedelta(seconds=seconds)) == want


def test_remaining_time_is_rounded_up_and_age_down() -> None:
    assert text.countdown(timedelta(seconds=0.1)) == "1s"
    assert text.age(timedelta(seconds=1.9)) == "1s"


@pytest.mark.parametrize(
    ("string", "want"),
    [
        ("a\n\tb", "a b"),
        ("\x1b]0;title\x07x", "?]0;title?x"),
        ("Grüße 日本", "Grüße 日本"),
        ("\ud800", "?"),
    ],
    ids=["white space", "escape sequences", "letters of the world", "half a character"],
)
def test_one_line_escapes_control_characters(string: str, want: str) -> None:
    assert text.one_line(string) == want


@pytest.mark.parametrize(("width", "want"), [(4, "日…"), (5, "日本…"), (6, "日本語")])
def test_wide_characters_take_two_columns(width: int, want: str) -> None:
    assert text.shorten("日本語", width, "…") == want
