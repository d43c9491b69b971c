"""The columns of `kubectl get`: with typical values, a row fits into a terminal of 80 characters."""

import pytest

from perdure.api.crdgen import KINDS
from perdure.api.models import Resource

TYPICAL = {
    "Name": "order-42",
    "Phase": "Completed",
    "Progress": "12/20",
    "Reason": "NoWorker",
    "Awaits": "approved",
    "Spec": "30 2 * * *",
    "Next": "2026-11-22T01:30:00Z",
    "Ready": "False",
    "Paused": "False",
    "Circuit": "HalfOpen",
    "Waits": "1s, 2s, 4s, 8s, …",
    "Run": "order-12345678",
    "Step": "book-hotel",
    "Verb": "terminate",
    "Workflow-ID": "order-42",
    "Redriven": "Unknown",
    "Path": "/webhooks/orders/payments",
    "Last": "10h",
    "Completed": "10h",
    "Age": "10d",
}
"""A value for each column whose values are longer than a number."""
GAP = 3
"""The characters between two columns."""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_columns_fit_into_80_characters(kind: type[Resource]) -> None:
    titles = [*(column.name for column in kind.info.columns if not column.wide), "Age"]
    widths = [len("order-12345678"), *(max(len(title), len(TYPICAL.get(title, "1000"))) for title in titles)]
    assert sum(widths) + GAP * (len(widths) - 1) <= 80, widths
