"""An attempt of an activity that the runner performs."""

from collections.abc import Iterator

import pytest

from perdure import activity
from perdure.activity._context import Context, entered
from perdure.runner.expressions import Later
from unit.runner.attempt import ENVIRONMENT


@pytest.fixture
def later() -> Iterator[Later]:
    """The expressions of the attempt, whose input is `{"id": 7}`."""
    with entered(Context(ENVIRONMENT)):
        yield Later({"id": 7}, activity.info())
