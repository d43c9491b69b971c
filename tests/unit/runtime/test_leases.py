"""From an attempt to its Lease, and back to its heartbeats; whose a Pod or a Lease is."""

import itertools
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.api.times import read_kubernetes_time, write_micro_time
from perdure.engine.inputs import HeartbeatRead
from perdure.runtime.attempts import Attempt, lease_conflict, owns, owns_lease, pod_conflict
from perdure.runtime.leases import TOO_LARGE_KEY, Pulse, build_lease, heartbeat
from perdure.runtime.pods.payloads import HEARTBEAT_DETAILS_LIMIT

NOW = datetime(2026, 1, 31, 12, 2, tzinfo=UTC)


def test_the_lease_belongs_to_the_pod_and_has_not_been_renewed(make: Any) -> None:
    lease = build_lease(make.run, make.with_attempt(heartbeat_timeout=timedelta(seconds=30)), make.pod_uid)
    assert lease == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "order-42-5-2",
            "namespace": "shop",
            "labels": {
                "perdure.dev/run": "order-42",
                "perdure.dev/run-id": make.run.uid,
                "perdure.dev/activity": "charge",
            },
            "annotations": {
                "perdure.dev/run": "order-42",
                "perdure.dev/scheduled-event-id": "5",
                "perdure.dev/attempt": "2",
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": "order-42-5-2",
                    "uid": make.pod_uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {"holderIdentity": "order-42-5-2", "leaseTransitions": 2, "leaseDurationSeconds": 30},
    }


@pytest.mark.parametrize(
    ("timeout", "want"),
    [
        pytest.param(None, None, id="none without a heartbeat timeout"),
        pytest.param(timedelta(milliseconds=1), 1, id="at least a second"),
        pytest.param(timedelta(seconds=1.2), 2, id="rounded up"),
        pytest.param(timedelta(days=99_999), 2**31 - 1, id="at most the maximum of Kubernetes"),
    ],
)
def test_the_duration_is_the_heartbeat_timeout(make: Any, timeout: timedelta | None, want: int | None) -> None:
    lease = build_lease(make.run, make.with_attempt(heartbeat_timeout=timeout, large_result=True), make.pod_uid)
    assert lease["spec"].get("leaseDurationSeconds") == want


def read(make: Any, lease: dict[str, Any] | None) -> HeartbeatRead:
    return heartbeat(make.attempt, lease, Pulse.begin(NOW).read(make.attempt, lease, NOW, NOW))


def renewed(make: Any, time: str | None, **annotations: str) -> dict[str, Any]:
    lease: dict[str, Any] = make.lease(**annotations)
    lease["spec"]["renewTime"] = time
    return lease


@pytest.mark.parametrize(
    "time",
    [
        pytest.param("2026-01-31T12:01:59.250000Z", id="a clock that is right"),
        pytest.param("2027-01-01T00:00:00Z", id="one that is ahead"),
        pytest.param("2001-01-01T00:00:00Z", id="one that is behind"),
        pytest.param("soon", id="none at all"),
    ],
)
def test_the_time_of_a_heartbeat_is_when_it_was_first_observed(make: Any, time: str) -> None:
    pulse = Pulse.begin(NOW)
    for second, want in ((1, 1), (2, 1), (9, 1)):
        at = NOW + timedelta(seconds=second)
        pulse = pulse.read(make.attempt, renewed(make, time), at, at)
        got = heartbeat(make.attempt, renewed(make, time), pulse)
        assert got.time == NOW + timedelta(seconds=want)
        assert pulse.lost(timedelta(seconds=8)) == (second == 9)


def test_there_is_no_heartbeat_time_before_the_first_heartbeat(make: Any) -> None:
    assert read(make, renewed(make, None)).time is None


@given(
    timeout=st.floats(0.1, 3600),
    beats=st.lists(st.floats(0, 0.999), max_size=20),
    offsets=st.lists(st.floats(-5, 5), min_size=21, max_size=21),
    ways=st.lists(st.tuples(st.floats(0, 0.125), st.floats(0, 0.125)), min_size=1),
)
def test_a_missing_heartbeat_is_detected_soon_after_the_timeout_with_any_clock(
    timeout: float, beats: list[float], offsets: list[float], ways: list[tuple[float, float]]
) -> None:
    """A pod with a wrong clock that heartbeats within the timeout and then stops.

    Requests and answers take up to an eighth of a second.
    """
    attempt = Attempt(scheduled_event_id=5, attempt=2, activity_id="a", activity_type="a")
    notes = {"perdure.dev/scheduled-event-id": "5", "perdure.dev/attempt": "2"}
    times = list(itertools.accumulate(gap * timeout for gap in beats))
    pulse, length = Pulse.begin(NOW), timedelta(seconds=timeout)
    again = itertools.cycle(ways)
    answered = NOW
    while not pulse.lost(length):
        there, back = (timedelta(seconds=way) for way in next(again))
        asked = max(pulse.next_read(length), answered)
        now = asked + there
        answered = now + back
        received = [n for n, moment in enumerate(times) if NOW + timedelta(seconds=moment) <= now]
        metadata = {"annotations": notes, "labels": {"perdure.dev/run-id": "a run's"}}
        lease: dict[str, Any] = {"metadata": metadata, "spec": {}}
        if received:
            by_its_clock = NOW + timedelta(seconds=times[received[-1]] + offsets[len(received)])
            lease["spec"]["renewTime"] = f"{write_micro_time(by_its_clock)} of beat {len(received)}"
        pulse = pulse.read(attempt, lease, asked, answered)
    silent_since = NOW + timedelta(seconds=times[-1] if times else 0)
    assert silent_since + length <= pulse.read_at <= answered <= silent_since + 1.2 * length + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param('{"done": 3}', {"done": 3}, id="JSON is read"),
        pytest.param("half way", "half way", id="other text is kept"),
        pytest.param("", None, id="nothing is null"),
        pytest.param("x" * HEARTBEAT_DETAILS_LIMIT, "x" * HEARTBEAT_DETAILS_LIMIT, id="as much as fits"),
        pytest.param(
            json.dumps("x" * HEARTBEAT_DETAILS_LIMIT),
            {TOO_LARGE_KEY: HEARTBEAT_DETAILS_LIMIT + 2},
            id="more is neither cut nor kept",
        ),
    ],
)
def test_the_details_of_the_last_heartbeat_are_read(make: Any, text: str, want: Any) -> None:
    assert read(make, renewed(make, "2026-01-31T12:01:00Z", heartbeat_details=text)).details == want


def test_a_missing_lease_or_that_of_another_attempt_is_ignored(make: Any) -> None:
    silence = HeartbeatRead(scheduled_event_id=5, attempt=2, time=None)
    other = renewed(make, "2026-01-31T12:01:00Z", heartbeat_details="1")
    other["metadata"]["annotations"]["perdure.dev/attempt"] = "1"
    assert read(make, None) == silence
    assert read(make, other) == silence


def changed(obj: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def test_the_attempts_own_pod_and_lease_are_adopted(make: Any) -> None:
    assert owns(make.pod(), make.run, make.attempt)
    assert pod_conflict(make.pod(), make.run, make.attempt) is None
    assert owns_lease(make.lease(), make.attempt, make.pod_uid)
    assert lease_conflict(make.lease(), make.attempt, make.pod_uid) is None


def test_a_terminating_pod_is_adopted(make: Any) -> None:
    assert pod_conflict(make.pod(deleted_at="2026-01-31T12:00:00Z"), make.run, make.attempt) is None


@pytest.mark.parametrize(
    ("metadata", "want_message", "want_temporary"),
    [
        pytest.param(
            {"ownerReferences": [{"kind": "WorkflowRun", "name": "order-42", "uid": "old"}], "deletionTimestamp": "x"},
            "Pod order-42-5-2 exists and belongs to WorkflowRun order-42 (uid old), not to this attempt of "
            "WorkflowRun order-42",
            True,
            id="of an earlier run of the name, on its way out",
        ),
        pytest.param(
            {"ownerReferences": []},
            "Pod order-42-5-2 exists and belongs to nobody, not to this attempt of WorkflowRun order-42",
            False,
            id="without an owner",
        ),
        pytest.param(
            {
                "labels": {"app": "shop"},
                "ownerReferences": [{"kind": "WorkflowRun", "name": "order-42", "uid": "run-uid"}],
            },
            "Pod order-42-5-2 exists and belongs to WorkflowRun order-42 (uid run-uid), not to this attempt of "
            "WorkflowRun order-42, and was not created by Perdure (it has no label perdure.dev/run-id)",
            False,
            id="created by a client that imitates the operator",
        ),
    ],
)
def test_a_pod_of_another_identity_conflicts(
    make: Any, metadata: dict[str, Any], want_message: str, want_temporary: bool
) -> None:
    conflict = pod_conflict(changed(make.pod(), **metadata), make.run, make.attempt)
    assert conflict is not None
    assert (conflict.kind, conflict.namespace, conflict.name) == ("Pod", "shop", "order-42-5-2")
    assert (conflict.message, conflict.temporary) == (want_message, want_temporary)


def test_a_pod_or_lease_of_another_attempt_or_owner_is_not_adopted(make: Any) -> None:
    for other in (make.with_attempt(attempt=3), make.with_attempt(scheduled_event_id=6)):
        assert not owns(make.pod(), make.run, other)
        assert not owns_lease(make.lease(), other, make.pod_uid)
    assert not owns_lease(make.lease(), make.attempt, "another pod")
    conflict = lease_conflict(make.lease(), make.attempt, "another pod")
    assert conflict is not None
    assert conflict.kind == "Lease"


def test_objects_without_the_label_of_the_operator_are_not_adopted(make: Any) -> None:
    lease = changed(make.lease(), labels={"perdure.dev/run": "order-42"})
    lease["spec"]["renewTime"] = "2026-01-31T12:01:00Z"
    assert not owns(changed(make.pod(), labels={}), make.run, make.attempt)
    assert not owns(changed(make.pod(), labels={"perdure.dev/run-id": "another"}), make.run, make.attempt)
    assert not owns_lease(lease, make.attempt, make.pod_uid)
    assert read(make, lease).time is None


def test_objects_without_metadata_are_not_adopted(make: Any) -> None:
    assert not owns({}, make.run, make.attempt)
    assert not owns({"metadata": {"annotations": None, "ownerReferences": None}}, make.run, make.attempt)


def test_a_renew_time_is_written_with_microseconds_in_utc() -> None:
    time = datetime(2026, 1, 31, 13, 0, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    assert write_micro_time(time) == "2026-01-31T12:00:00.000005Z"
    assert read_kubernetes_time(write_micro_time(time)) == time
