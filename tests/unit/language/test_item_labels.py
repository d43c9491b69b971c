"""The names of the items of loops, by their values."""

from typing import Any

import pytest

from perdure.language.step_tree import item_label


@pytest.mark.parametrize(
    ("value", "index", "label"),
    [
        ("berlin", 0, "berlin"),
        ("two\nlines", 0, "two lines"),
        (3, 0, "3"),
        (3, 3, ""),
        (True, 1, "true"),
        (0.5, 1, "0.5"),
        (None, 0, ""),
        ([1, 2], 0, ""),
        ({"lr": 0.1, "layers": [1], "batch": 32}, 0, "lr=0.1, batch=32"),
        ({"layers": [1]}, 0, ""),
        ({"key": "eu", "value": {"zone": 1}}, 0, "eu"),
        ("x" * 60, 0, "x" * 39 + "…"),
    ],
)
def test_an_item_is_named_by_its_value_unless_that_is_its_index_or_has_no_short_form(
    value: Any, index: int, label: str
) -> None:
    assert item_label(value, index) == label
