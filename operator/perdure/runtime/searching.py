"""Search attributes: how a run carries what it can be found by. Pure."""

from collections.abc import Mapping
from typing import Any

from perdure.api.labels import SEARCH_PREFIX
from perdure.api.names import label_value
from perdure.api.searching import text_of, unfit


def search_marks(attributes: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels where the value fits into one, annotations where not; of what is no text, its JSON.

    Attributes that a run cannot store as labels are left out, so that the others still find it.
    """
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    wrong = unfit(attributes)
    for name, value in attributes.items():
        text = text_of(value)
        if name not in wrong and text is not None:
            (labels if label_value(text) == text else annotations)[f"{SEARCH_PREFIX}{name}"] = text
    return labels, annotations
