"""An attempt of an activity that the runner performs."""

from collections.abc import Iterator

import pytest

from perdure import activity
from perdure.activity._context import Context, entered
from perdure.runner.expressions import DeferredExpressions

ENVIRONMENT = {
    "PERDURE_RUN": "order-1",
    "PERDURE_RUN_ID": "uid-1",
    "PERDURE_NAMESPACE": "shop",
    "PERDURE_WORKFLOW_ID": "order",
    "PERDURE_ACTIVITY": "work",
    "PERDURE_ACTIVITY_ID": "step",
    "PERDURE_ATTEMPT": "2",
}


@pytest.fixture
def later() -> Iterator[DeferredExpressions]:
    """The expressions of the attempt, whose input is `{"id": 7}`."""
    with entered(Context(ENVIRONMENT)):
        yield DeferredExpressions({"id": 7}, activity.info())
