"""Nothing is dropped silently: each field of the foreign schemas changes the result, or is reported, or has a reason."""

from functools import cache

import pytest

from support.manuals import REPOSITORY
from unit.importing.silence import FEEDS, Feed, Feeder

_FEW: dict[str, int] = {"CronJob: schedule import": 40}
"""How many fields are fed at least, where they are few."""


@cache
def fed(feed: Feed) -> tuple[Feeder, tuple[str, ...]]:
    """The figures of a feed, and the fields that are silent without a reason."""
    feeder, silent = feed.run()
    return feeder, tuple(silent)


@pytest.mark.parametrize("feed", FEEDS, ids=lambda feed: feed.name)
def test_no_field_is_dropped_silently(feed: Feed) -> None:
    """argo-workflows#972: `mode` was dropped silently, also with `--strict`."""
    feeder, silent = fed(feed)
    assert silent == ()
    assert feeder.fed >= _FEW.get(feed.name, 100)
    assert feeder.imported
    assert feeder.reported


@pytest.mark.parametrize("system", ["argo", "tekton"])
def test_the_documentation_has_the_figures(system: str) -> None:
    feeders = [fed(each)[0] for each in FEEDS if each.system == system]
    all_, imported, reported = (
        sum(getattr(each, name) for each in feeders) for name in ("fed", "imported", "reported")
    )
    page = " ".join((REPOSITORY / "docs" / f"from-{system}.md").read_text(encoding="utf-8").split())
    print(f"{system}: {all_} fields fed, {imported} imported, {reported} reported")
    assert f"of {all_:,} fields" in page
    want = f"{imported:,} change the result, {reported:,} are reported, and {all_ - imported - reported:,} are silent"
    assert want in page, want
