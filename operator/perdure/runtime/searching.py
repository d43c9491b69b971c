"""Search attributes, and how they are stored on a run. Pure."""

from collections.abc import Mapping
from typing import Any

from perdure.api.labels import SEARCH_PREFIX
from perdure.api.names import label_value
from perdure.api.search_attributes import text_of, unfit


def search_marks(attributes: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return labels and annotations for search attributes: a label if the value fits, otherwise an annotation.

    Values other than text are written as JSON. Invalid attributes are omitted, so searches still find the run by the others.
    """
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    wrong = unfit(attributes)
    for name, value in attributes.items():
        text = text_of(value)
        if name not in wrong and text is not None:
            (labels if label_value(text) == text else annotations)[f"{SEARCH_PREFIX}{name}"] = text
    return labels, annotations
