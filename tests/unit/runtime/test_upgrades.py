"""When the operators of a release write a new state version."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from perdure.runtime.upgrades import UpgradeRecord, advance, later

NOW = datetime(2027, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def look(
    record: UpgradeRecord | None, *reads: int, after: timedelta = timedelta(0), is_new: bool = False
) -> UpgradeRecord:
    return advance(record, reads, DAY, NOW + after, release="", is_new=is_new)


def test_a_new_installation_writes_the_newest_version_immediately() -> None:
    assert look(None, 3, 3, is_new=True) == UpgradeRecord(writes=3)


def test_without_a_record_stored_objects_are_of_the_first_version() -> None:
    assert look(None, 2) == UpgradeRecord(writes=1, follows=2, until=NOW + DAY)


def test_the_version_rises_after_the_hold_back_and_not_before() -> None:
    record = look(UpgradeRecord(writes=2), 3, 3)
    assert record == UpgradeRecord(writes=2, follows=3, until=NOW + DAY)
    assert look(record, 3, 3, after=DAY - timedelta(seconds=1)) == record
    assert look(record, 3, 3, after=DAY) == UpgradeRecord(writes=3)


def test_while_an_older_operator_is_left_the_version_stays() -> None:
    assert look(UpgradeRecord(writes=2), 2, 3, after=DAY) == UpgradeRecord(writes=2)


def test_the_hold_back_begins_again_when_an_older_operator_was_back() -> None:
    waiting = UpgradeRecord(writes=2, follows=3, until=NOW + DAY)
    back = look(waiting, 2, 3, after=DAY / 2)
    assert back == UpgradeRecord(writes=2)
    again = look(back, 3, 3, after=DAY)
    assert again == UpgradeRecord(writes=2, follows=3, until=NOW + 2 * DAY)


def test_the_hold_back_begins_again_for_a_yet_newer_version() -> None:
    waiting = UpgradeRecord(writes=2, follows=3, until=NOW + DAY)
    assert look(waiting, 4, 4, after=DAY / 2) == UpgradeRecord(writes=2, follows=4, until=NOW + 3 * DAY / 2)


def test_a_rollback_lowers_the_version() -> None:
    assert look(UpgradeRecord(writes=3), 2, 3) == UpgradeRecord(writes=2)
    assert look(UpgradeRecord(writes=3), 2) == UpgradeRecord(writes=2)


def test_an_upgrade_is_finished_on_request() -> None:
    waiting = UpgradeRecord(writes=2, follows=3, until=NOW + DAY, finish=3)
    assert look(waiting, 3, 3) == UpgradeRecord(writes=3)


def test_a_request_does_not_override_an_older_operator() -> None:
    assert look(UpgradeRecord(writes=2, follows=3, until=NOW + DAY, finish=3), 2, 3) == UpgradeRecord(writes=2)


def test_a_request_for_an_earlier_version_does_not_allow_a_later_one() -> None:
    waiting = UpgradeRecord(writes=2, follows=4, until=NOW + DAY)
    assert look(replace(waiting, finish=3), 4, 4) == waiting


def test_a_request_that_was_pending_at_a_rollback_does_not_end_the_hold_back_of_an_earlier_version() -> None:
    pending = UpgradeRecord(writes=2, follows=4, until=NOW + DAY, finish=4)
    rolled_back = look(pending, 3, 3, after=DAY / 2)
    assert rolled_back == UpgradeRecord(writes=2, follows=3, until=NOW + 3 * DAY / 2)
    again = look(rolled_back, 4, 4, after=DAY)
    assert again == UpgradeRecord(writes=2, follows=4, until=NOW + 2 * DAY)


@pytest.mark.parametrize(
    "record",
    [
        UpgradeRecord(),
        UpgradeRecord(writes=3),
        UpgradeRecord(writes=2, follows=3, until=NOW + DAY, finish=3, release="0.2.0"),
    ],
    ids=["first", "finished", "waiting"],
)
def test_a_record_is_read_as_it_was_written(record: UpgradeRecord) -> None:
    assert UpgradeRecord.read(record.config_map("perdure-state-version")) == record


def test_entries_of_a_newer_version_are_kept() -> None:
    stored = UpgradeRecord(writes=2, follows=3, until=NOW + DAY).config_map("perdure-state-version")
    stored["data"]["pausedBy"] = "ops"
    written = UpgradeRecord(writes=3).config_map("perdure-state-version", stored)
    assert written["metadata"] == stored["metadata"]
    assert written["data"] == {"writes": "3", "pausedBy": "ops"}


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"writes": "-1"},
        {"writes": "two", "next": "x", "until": "soon", "finish": "", "release": "soon"},
        {"writes": "²"},
        {"writes": "999999999", "next": "1000", "finish": "1000"},
        dict.fromkeys(("writes", "next", "until", "finish", "release"), "9" * 5000),
    ],
)
def test_an_entry_that_is_not_valid_delays_an_upgrade(data: dict[str, str]) -> None:
    assert UpgradeRecord.read({"data": data}) == UpgradeRecord()


def test_a_shorter_hold_back_applies_to_an_upgrade_that_waits() -> None:
    waiting = UpgradeRecord(writes=2, follows=3, until=NOW + 9 * DAY)
    assert look(waiting, 3) == UpgradeRecord(writes=2, follows=3, until=NOW + DAY)
    assert advance(waiting, [3], timedelta(0), NOW, release="", is_new=False) == UpgradeRecord(writes=3)


@pytest.mark.parametrize(("before", "mine", "after"), [("", "0.2.0", "0.2.0"), ("0.3.0", "0.2.0", "0.3.0")])
@pytest.mark.parametrize("reads", [2, 3, 4], ids=["lower", "as it is", "higher"])
def test_the_record_names_the_latest_release_through_upgrades_and_rollbacks(
    before: str, mine: str, after: str, reads: int
) -> None:
    record = UpgradeRecord(writes=3, release=before)
    assert advance(record, [reads], DAY, NOW, release=mine, is_new=False).release == after


@pytest.mark.parametrize(
    ("earlier", "other"),
    [
        ("0.9.0", "0.10.0"),
        ("0.2.0-dev.g1a2b", "0.2.0"),
        ("0.1.9", "0.2.0-dev"),
        ("soon", "0.0.1"),
        (f"{'9' * 5000}.0.0", "0.0.1"),
        ("1.2", "0.0.1"),
        ("", "0.2.0"),
    ],
)
def test_the_later_of_two_releases(earlier: str, other: str) -> None:
    assert later(earlier, other) == later(other, earlier) == other


def test_builds_of_the_same_release_are_not_later_than_each_other() -> None:
    assert later("0.2.0-dev.g2", "0.2.0-dev.g1") == "0.2.0-dev.g2"
