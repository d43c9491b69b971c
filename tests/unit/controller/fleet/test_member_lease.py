"""The Lease of a member as it is created."""

from datetime import UTC, datetime

from perdure.controller.fleet.membership import MemberSettings, lease

NOW = datetime(2027, 1, 1, tzinfo=UTC)


def test_the_pod_of_a_member_owns_its_lease() -> None:
    made = lease(MemberSettings(fleet="perdure", name="perdure-0", pod_uid="1234"), "perdure-0_1", NOW)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "perdure-0", "uid": "1234"}
    assert made["metadata"]["ownerReferences"] == [owner]


def test_without_a_pod_nothing_owns_the_lease() -> None:
    made = lease(MemberSettings(fleet="perdure", name="perdure-0"), "perdure-0_1", NOW)
    assert "ownerReferences" not in made["metadata"]
