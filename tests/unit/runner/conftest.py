"""An attempt of an activity that the runner performs."""

from collections.abc import Iterator

import pytest

from perdure import activity
from perdure.activity._context import Context, entered
from perdure.runner.expressions import DeferredExpressions
from unit.runner.attempt import ENVIRONMENT


@pytest.fixture
def later() -> Iterator[DeferredExpressions]:
    """The expressions of the attempt, whose input is `{"id": 7}`."""
    with entered(Context(ENVIRONMENT)):
        yield DeferredExpressions({"id": 7}, activity.info())
