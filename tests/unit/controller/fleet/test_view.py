"""A member's view of its fleet, and when it is active. Times are seconds of a monotonic clock."""

import pytest

from perdure.controller.fleet.membership import LONGEST_SECONDS, FleetView, MemberLease, read_lease


def lease(member: str, version: int, *members: str, seconds: float = 6) -> MemberLease:
    return MemberLease(
        member=member,
        holder=member,
        uid=f"uid-{member}",
        version=str(version),
        seconds=seconds,
        members=frozenset(members),
    )


def joined(*others: MemberLease, at: float = 0) -> FleetView:
    """A member `a` with a new Lease that has listed others."""
    view = FleetView("a", 6)
    view.unknown(at)
    view.renewed(at, at)
    view.listed([lease("a", 1), *others], at, at)
    return view


def test_a_member_that_has_not_joined_owns_nothing() -> None:
    view = FleetView("a", 6)
    view.listed([lease("b", 1)], 0, 0)
    assert view.members == frozenset()
    assert not view.is_active(0)


def test_the_first_member_decides_immediately() -> None:
    view = joined()
    assert view.members == {"a"}
    assert view.is_active(0)


def test_a_list_from_before_the_own_lease_is_ignored() -> None:
    view = FleetView("a", 6)
    view.renewed(1, 2)
    view.listed([], 1.5, 2.5)
    assert not view.is_active(2.5)


def test_a_joining_member_waits_until_the_others_acknowledge_it() -> None:
    view = joined(lease("b", 1, "b"))
    assert view.members == {"a", "b"}
    assert not view.is_active(0.5)
    view.renewed(1, 1)
    view.listed([lease("a", 2), lease("b", 2, "a", "b")], 1, 1)
    assert view.is_active(1)


def test_a_joining_member_waits_for_the_lease_of_a_silent_member_to_expire() -> None:
    view = joined(lease("b", 1, "b"))
    for time in (2, 4, 5.9):
        view.renewed(time, time)
        view.listed([lease("a", int(time) + 2), lease("b", 1, "b")], time, time)
        assert not view.is_active(time)
    assert view.is_active(6)


def test_a_joining_member_waits_for_the_longest_lease() -> None:
    view = joined(lease("b", 1, "b", seconds=15))
    for time in range(2, 15, 2):
        view.renewed(time, time)
        view.listed([lease("b", 1, "b", seconds=15)], time, time)
        assert not view.is_active(time)
    assert view.is_active(15)


def test_a_member_stops_before_others_can_take_over() -> None:
    view = joined()
    assert view.is_active(4.9)
    assert not view.is_active(5)


def test_a_member_that_cannot_list_the_others_stops() -> None:
    view = joined()
    view.renewed(4, 4)
    assert not view.is_active(5)
    view.listed([], 6, 6)
    assert view.is_active(6)


def test_the_shards_of_a_silent_member_are_taken_over_when_its_lease_has_expired() -> None:
    view = joined(lease("b", 1, "a", "b"))
    view.listed([lease("b", 2, "a", "b")], 2, 2)
    view.listed([lease("b", 2, "a", "b")], 7.9, 7.95)
    assert view.members == {"a", "b"}
    assert [each.member for each in view.listed([lease("b", 2, "a", "b")], 8, 8.05)] == ["b"]
    assert view.members == {"a"}
    assert view.listed([lease("b", 2, "a", "b")], 10, 10) == [], "once"


def test_a_member_that_renewed_just_before_does_not_count_as_expired() -> None:
    """The list was sent too early to prove an expiration, although its response is late."""
    view = joined(lease("b", 1, "a", "b"))
    view.listed([lease("b", 1, "a", "b")], 5.9, 7)
    assert view.members == {"a", "b"}


def test_shards_of_a_member_that_deleted_its_lease_are_taken_over_immediately() -> None:
    view = joined(lease("b", 1, "a", "b"))
    view.listed([], 0.5, 0.5)
    assert view.members == {"a"}
    assert view.is_active(0.5)


def test_a_suspended_member_waits_before_it_becomes_active_again() -> None:
    view = joined(lease("b", 1, "a", "b"))
    assert view.is_active(0)
    view.renewed(30, 30)
    view.listed([lease("a", 2), lease("b", 9, "a", "b")], 30, 30)
    assert view.joins == 2
    assert not view.is_active(30)
    for time in (32, 34):
        view.renewed(time, time)
        view.listed([lease("b", 9 + time, "a", "b")], time, time)
        assert not view.is_active(time)
    view.renewed(35.9, 35.9)
    view.listed([lease("b", 50, "a", "b")], 35.9, 35.9)
    assert view.is_active(36)


def test_a_member_that_returns_waits_only_until_the_others_acknowledge_it_again() -> None:
    view = joined(lease("b", 1, "a", "b"))
    assert not view.is_out(5.9)
    assert view.is_out(6)
    view.listed([lease("b", 8, "b")], 30, 30)
    view.unknown(30)
    assert view.members == frozenset()
    view.renewed(30.1, 30.1)
    view.listed([lease("a", 20), lease("b", 8, "b")], 30.2, 30.2)
    assert not view.is_active(30.2)
    view.listed([lease("a", 20), lease("b", 9, "a", "b")], 31, 31)
    assert view.is_active(31)


def test_all_members_return_after_an_outage_without_a_wait() -> None:
    """Each has ended its earlier membership, so who names another one has seen its new Lease."""
    view = joined(lease("b", 1, "a", "b"))
    view.listed([], 60, 60)
    view.unknown(60)
    view.renewed(60.1, 60.1)
    view.listed([lease("a", 20), lease("b", 2)], 60.2, 60.2)
    assert not view.is_active(60.2)
    view.listed([lease("a", 20), lease("b", 3, "a", "b")], 60.5, 60.5)
    assert view.is_active(60.5)


def test_a_member_whose_new_lease_may_have_expired_waits() -> None:
    """It was created when the request was sent, perhaps: others may have found it expired before the response arrived."""
    view = FleetView("a", 6)
    view.unknown(0)
    view.renewed(6, 6)
    view.listed([lease("a", 1), lease("b", 1, "a", "b")], 6, 6)
    assert not view.is_active(6)


def test_a_renewal_that_no_member_can_have_missed_needs_no_wait() -> None:
    view = joined(lease("b", 1, "a", "b"))
    view.renewed(5.2, 5.9)
    view.listed([lease("b", 2, "a", "b")], 5.9, 5.9)
    assert view.joins == 1
    assert view.is_active(5.9)


def test_a_member_whose_lease_was_deleted_joins_again() -> None:
    view = joined(lease("b", 1, "a", "b"))
    view.lost()
    assert view.members == frozenset()
    assert not view.is_active(1)
    view.renewed(1, 1)
    view.listed([lease("b", 1, "a", "b")], 1, 1)
    assert not view.is_active(1)


def test_a_returning_member_is_included_again() -> None:
    view = joined(lease("b", 1))
    view.listed([lease("b", 1)], 6, 6)
    assert view.members == {"a"}
    view.listed([lease("b", 2)], 7, 7)
    assert view.members == {"a", "b"}


def test_leases_that_expired_a_minute_ago_can_be_deleted() -> None:
    view = joined(lease("b", 1))
    view.listed([lease("b", 1)], 6, 6)
    assert view.outdated(65) == []
    assert view.outdated(66) == [lease("b", 1)]


def test_the_next_change_is_the_earliest_expiration_of_a_lease() -> None:
    view = joined(lease("b", 1, "a", "b"))
    view.listed([lease("b", 1, "a", "b")], 2, 2)
    assert view.next_change(2) == 6


@pytest.mark.parametrize(("duration", "seconds"), [(None, 10), (20, 20), (2**31 - 1, LONGEST_SECONDS)])
def test_no_lease_lasts_longer_than_the_chart_allows(duration: int | None, seconds: float) -> None:
    obj = {
        "metadata": {"name": "b", "uid": "u", "resourceVersion": "1"},
        "spec": {"leaseDurationSeconds": duration},
    }
    assert read_lease(obj, 10).seconds == seconds


def test_a_renewal_or_list_that_comes_too_late_is_counted() -> None:
    view = joined()
    view.renewed(2, 2)
    view.listed([lease("a", 2)], 2, 2)
    assert view.lapses == 0
    view.renewed(5, 5)
    assert not view.is_active(7.5)
    view.listed([lease("a", 3)], 7.5, 7.5)
    assert view.is_active(7.5)
    assert view.lapses == 1
    assert view.joins == 1
