"""Search attributes, and how they are stored on a run. Pure."""

from collections.abc import Mapping
from typing import Any

from perdure.api.labels import SEARCH_PREFIX
from perdure.api.names import label_value
from perdure.api.searching import text_of, unfit


def search_marks(attributes: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Store a value as a label if it fits, otherwise as an annotation; values other than text as JSON.

    Attributes that a run cannot store as labels are left out, so the run can still be found by the others.
    """
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    wrong = unfit(attributes)
    for name, value in attributes.items():
        text = text_of(value)
        if name not in wrong and text is not None:
            (labels if label_value(text) == text else annotations)[f"{SEARCH_PREFIX}{name}"] = text
    return labels, annotations
