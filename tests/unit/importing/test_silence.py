"""Nothing is dropped silently: each field of the foreign schemas changes the result, or is reported, or has a reason."""

import pytest

from unit.importing.silence import FEEDS, Feed

_FEW: dict[str, int] = {"CronJob: schedule import": 40}
"""How many fields are fed at least, where they are few."""


@pytest.mark.parametrize("feed", FEEDS, ids=lambda feed: feed.name)
def test_no_field_is_dropped_silently(feed: Feed) -> None:
    """argo-workflows#4275: `mode` was dropped silently, also with `--strict`."""
    feeder, silent = feed.run()
    assert silent == []
    assert feeder.fed >= _FEW.get(feed.name, 100)
    assert feeder.imported
    assert feeder.reported
