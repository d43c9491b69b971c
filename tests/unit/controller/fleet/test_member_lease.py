"""The Lease of a member as it is created."""

from datetime import UTC, datetime

from perdure.controller.fleet.membership import FleetView, MemberSettings, lease, read_lease
from perdure.controller.state_versions import StateVersions

NOW = datetime(2027, 1, 1, tzinfo=UTC)


def test_the_pod_of_a_member_owns_its_lease() -> None:
    made = lease(
        MemberSettings(fleet="perdure", name="perdure-0", pod_uid="1234"), "perdure-0_1", StateVersions(3, 2), NOW
    )
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "perdure-0", "uid": "1234"}
    assert made["metadata"]["ownerReferences"] == [owner]


def test_without_a_pod_nothing_owns_the_lease() -> None:
    made = lease(MemberSettings(fleet="perdure", name="perdure-0"), "perdure-0_1", StateVersions(3, 2), NOW)
    assert "ownerReferences" not in made["metadata"]


def test_a_member_publishes_the_state_versions_that_it_reads_and_writes() -> None:
    made = lease(MemberSettings(fleet="perdure", name="perdure-0"), "perdure-0_1", StateVersions(3, 2), NOW)
    annotations = made["metadata"]["annotations"]
    assert annotations["perdure.dev/state-versions"] == "1-3"
    assert annotations["perdure.dev/state-version"] == "2"
    made["metadata"] |= {"uid": "1", "resourceVersion": "1"}
    assert read_lease(made, 10).reads == 3


def test_a_member_says_that_it_takes_calls_as_frames_and_one_of_an_earlier_version_gets_them_over_grpc() -> None:
    made = lease(MemberSettings(fleet="perdure", name="perdure-1"), "perdure-1_1", StateVersions(3, 2), NOW)
    made["metadata"] |= {"uid": "1", "resourceVersion": "1"}
    modern = read_lease(made, 10)
    del made["metadata"]["annotations"]["perdure.dev/frames"]
    made["metadata"]["name"] = "perdure-2"
    view = FleetView("perdure-0", 10)
    view.listed([modern, read_lease(made, 10)], 0, 0)
    assert view.others.keys() == {"perdure-1", "perdure-2"}
    assert view.others_over_grpc == {"perdure-2"}


def test_a_member_of_a_version_without_state_versions_reads_the_first_one() -> None:
    made = lease(MemberSettings(fleet="perdure", name="perdure-0"), "perdure-0_1", StateVersions(3, 2), NOW)
    made["metadata"] |= {"uid": "1", "resourceVersion": "1", "annotations": {}}
    assert read_lease(made, 10).reads == 1
