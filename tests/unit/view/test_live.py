"""Live data of attempts from pods and Leases."""

import json
from typing import Any

from perdure.view.runs.open_work import LiveAttempt, LiveChild, attempts_selector, read_live_state
from support.view.flow import UID, Flow, at

NAME = "order-42-2-1"


def pod(status: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": NAME, "uid": "p"}, "spec": {"nodeName": "node-1"}, "status": status}


def test_start_and_heartbeat_are_read_from_pod_and_lease() -> None:
    running = {"name": "activity", "state": {"running": {"startedAt": "2026-01-01T12:00:02Z"}}}
    lease = {
        "metadata": {"name": NAME, "annotations": {"perdure.dev/heartbeat-details": '{"picked": 3}'}},
        "spec": {"renewTime": "2026-01-01T12:00:05.000000Z"},
    }
    live = read_live_state(Flow().object, [pod({"phase": "Running", "containerStatuses": [running]})], [lease])
    assert live.pods == {NAME}
    assert live.attempts == {NAME: LiveAttempt(started=at(2), heartbeat=at(5), details={"picked": 3})}


def test_the_containers_at_work_are_named_if_the_pod_has_several() -> None:
    running = {"name": "activity", "state": {"running": {"startedAt": "2026-01-01T12:00:02Z"}}}
    for others, at_work in (([], ()), ([{"name": "proxy"}], ("activity",))):
        found = {
            **pod({"phase": "Running", "containerStatuses": [running]}),
            "spec": {"containers": [{"name": "activity"}, *others]},
        }
        assert read_live_state(Flow().object, [found], []).attempts[NAME].containers == at_work


def test_a_waiting_pod_has_the_reason() -> None:
    waiting = {"name": "activity", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    live = read_live_state(Flow().object, [pod({"phase": "Pending", "containerStatuses": [waiting]})], [])
    assert live.attempts[NAME].waits_for == "container activity: ImagePullBackOff: no such image"


def test_the_reason_for_a_missing_pod_is_shown_until_it_exists() -> None:
    note = "Step charge: no pod for attempt 1 yet: exceeded quota"
    events = [{"related": {"kind": "Pod", "name": NAME}, "message": note}, {"message": "of an older operator"}]
    assert read_live_state(Flow().object, [], [], events).attempts == {NAME: LiveAttempt(waits_for=note)}
    assert (
        read_live_state(Flow().object, [pod({"phase": "Pending"})], [], events).attempts[NAME].waits_for
        == "ContainerCreating"
    )


def test_only_the_existence_of_pods_of_other_attempts_is_recorded() -> None:
    other = {**pod({}), "metadata": {"name": "order-42-2-9", "uid": "p"}}
    live = read_live_state(Flow().object, [other], [])
    assert live.pods == {"order-42-2-9"}
    assert live.attempts == {}


def test_a_terminating_pod_does_not_count_as_existing() -> None:
    leaving = pod({"phase": "Running"})
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:30Z"
    assert read_live_state(Flow().object, [leaving], []).pods == frozenset()


def test_pods_are_found_by_the_id_of_the_run() -> None:
    assert attempts_selector(Flow().object) == f"perdure.dev/run-id={UID}"


def child(name: str, created: str, *, event: int = 7, **status: str) -> dict[str, Any]:
    tie = {"name": "order-42", "workflowId": "order-42", "runId": UID, "initiatedEventId": event}
    annotations = {"perdure.dev/parent": json.dumps(tie)}
    return {"metadata": {"name": name, "creationTimestamp": created, "annotations": annotations}, "status": status}


def test_the_newest_run_of_the_chain_of_a_child_is_shown() -> None:
    first = child("order-42-7", "2026-01-01T12:00:01Z", phase="ContinuedAsNew", completionTime="2026-01-01T12:00:02Z")
    second = child("order-42-7-2", "2026-01-01T12:00:01Z", phase="Running", progress="1/3")
    other = child("order-42-8", "2026-01-01T12:00:03Z", event=8)
    waiting = {
        "type": "Succeeded",
        "status": "Unknown",
        "reason": "WorkflowNotFound",
        "message": "there is no Workflow `w`",
    }
    other["status"] = {"conditions": [{**waiting, "lastTransitionTime": "2026-01-01T12:00:03Z"}]}
    assert read_live_state(Flow().object, [], [], [], [second, first, other]).children == {
        7: LiveChild(name="order-42-7-2", phase="Running", progress="1/3"),
        8: LiveChild(name="order-42-8", phase="Pending", waits_for="there is no Workflow `w`"),
    }
