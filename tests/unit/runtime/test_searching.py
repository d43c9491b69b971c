"""Search attributes: valid and invalid values of a run."""

from typing import Any

import pytest

from perdure.api.search_attributes import MAX_VALUE, search_marks, unfit

DEEP: Any = []
for _ in range(100_000):
    DEEP = [DEEP]


def test_search_attributes_are_labels_or_annotations_if_they_do_not_fit() -> None:
    labels, annotations = search_marks({"customer": "ada", "note": "to be called back", "amount": 12, "tags": ["a"]})
    assert labels == {"search.perdure.dev/customer": "ada", "search.perdure.dev/amount": "12"}
    assert annotations == {"search.perdure.dev/note": "to be called back", "search.perdure.dev/tags": '["a"]'}


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("bad name!", "x", "must be 1 to 63 letters"),
        ("n" * 64, "x", "must be 1 to 63 letters"),
        ("large", "é" * MAX_VALUE, "more than 2,048 bytes"),
        ("deep", DEEP, "nested too deeply"),
    ],
)
def test_invalid_search_attributes_are_reported(name: str, value: Any, why: str) -> None:
    attributes = {"customer": "ada", name: value}
    assert list(unfit(attributes)) == [name]
    assert why in unfit(attributes)[name]
    assert search_marks(attributes) == ({"search.perdure.dev/customer": "ada"}, {})


def test_the_total_size_of_search_attributes_is_limited() -> None:
    wrong = unfit({f"name-{n:02}": "x" * 2_000 for n in range(30)})
    assert list(wrong) == [f"name-{n}" for n in range(20, 30)]
    assert "40,960" in wrong["name-20"]
