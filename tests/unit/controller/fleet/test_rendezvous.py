"""Which member owns which shard."""

from collections import Counter
from itertools import permutations
from statistics import mean

from hypothesis import given
from hypothesis import strategies as st

from perdure.controller.fleet.shards import SHARDS, owners, shard_of, shards_of

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=20)
fleets = st.sets(names, min_size=1, max_size=6)


def fleet(number: int, size: int) -> list[str]:
    return [f"perdure-7d9c5b6f8-{number:03d}x{member}" for member in range(size)]


@given(fleets)
def test_each_shard_has_one_owner(members: set[str]) -> None:
    owned = [shards_of(member, members) for member in members]
    assert sorted(shard for shards in owned for shard in shards) == list(range(SHARDS))


@given(st.sets(names, min_size=1, max_size=4))
def test_all_members_with_the_same_view_agree_on_owners(members: set[str]) -> None:
    assert len({owners(order) for order in permutations(members)}) == 1


@given(fleets, names)
def test_only_shards_of_the_joining_member_move(members: set[str], joins: str) -> None:
    before, after = owners(members), owners(members | {joins})
    assert all(new in {old, joins} for old, new in zip(before, after, strict=True))


@given(st.sets(names, min_size=2, max_size=6))
def test_only_the_shards_of_a_member_that_leaves_move(members: set[str]) -> None:
    leaves = min(members)
    before, after = owners(members), owners(members - {leaves})
    assert all(old in {leaves, new} for old, new in zip(before, after, strict=True))


def test_twenty_members_share_all_shards() -> None:
    """More than the chart allows. Members without a shard only forward requests."""
    members = fleet(1, 20)
    owned = [shards_of(member, members) for member in members]
    assert sorted(shard for shards in owned for shard in shards) == list(range(SHARDS))


def test_without_members_no_shard_has_an_owner() -> None:
    assert owners(()) == ()
    assert shards_of("a", ()) == frozenset()


def test_members_own_about_the_same_number_of_shards() -> None:
    for size in (2, 3, 5):
        fair = SHARDS / size
        largest = [max(Counter(owners(fleet(number, size))).values()) for number in range(200)]
        assert mean(largest) < 1.5 * fair
        assert max(largest) < 2.2 * fair


def test_workflow_ids_are_spread_over_all_shards() -> None:
    counted = Counter(shard_of("shop", f"order-{number}") for number in range(SHARDS * 200))
    assert set(counted) == set(range(SHARDS))
    assert max(counted.values()) < 2 * min(counted.values())


def test_the_same_workflow_id_of_two_namespaces_can_be_in_two_shards() -> None:
    assert len({shard_of(namespace, "order-1") for namespace in ("shop", "bank", "team-a", "team-b")}) > 1


def test_the_shard_of_a_workflow_id_never_changes() -> None:
    """All versions of the operator must agree, or a rolling update leaves work undone."""
    assert [shard_of("shop", name) for name in ("order-1", "order-2", "")] == [52, 40, 32]
