"""The sidecar of a container without a library and a token, on a real cluster."""

from itertools import count

import pytest

from support.cluster.namespace import IMAGE, Cluster, Json, one_step
from support.cluster.operations import answer, ask, operation

pytestmark = pytest.mark.cluster

ONCE = {"exponential": {"maximumAttempts": 1}}


def work(script: str, **options: object) -> Json:
    container = {"image": IMAGE, "command": ["sh", "-c", script]}
    return {
        "name": "work",
        "startToCloseTimeout": "3m",
        "sidecar": {},
        "retryPolicy": ONCE,
        "container": container,
        **options,
    }


def has_heartbeat(namespace: Cluster) -> bool:
    leases = namespace.list("leases")
    return any("perdure.dev/heartbeat-details" in (x["metadata"].get("annotations") or {}) for x in leases)


def test_heartbeats_results_and_input_are_files(namespace: Cluster) -> None:
    script = (
        "[ ! -e /var/run/secrets/kubernetes.io/serviceaccount/token ] || exit 9\n"
        'for n in 1 2 3 4; do echo "{\\"done\\": $n}" > $PERDURE_FILES/heartbeat; sleep 1; done\n'
        'printf \'{"got": %s}\' "$(cat /perdure/input.json)" > $PERDURE_FILES/result'
    )
    namespace.start("files", one_step(work(script, heartbeatTimeout="20s"), input={"a": 1}))
    namespace.wait("a heartbeat", lambda: has_heartbeat(namespace))
    status = namespace.closed("files")
    assert status["output"] == {"got": {"a": 1}}, status.get("failure")


def test_a_large_result_is_returned_as_a_file(namespace: Cluster) -> None:
    script = "python -c \"print('x' * 100000, end='')\" > $PERDURE_FILES/result"
    namespace.start("large", one_step(work(script)))
    assert namespace.closed("large")["output"] == "x" * 100_000


def test_only_an_activity_without_heartbeats_times_out(namespace: Cluster) -> None:
    namespace.start("silent", one_step(work("sleep 300", heartbeatTimeout="5s")))
    beats = work("sleep 30", heartbeatTimeout="20s", sidecar={"autoHeartbeat": True})
    namespace.start("beating", one_step(beats))
    assert namespace.closed("silent")["failure"]["cause"]["timeoutType"] == "Heartbeat"
    assert namespace.closed("beating")["phase"] == "Completed"


def test_a_cancelled_activity_gets_a_file(namespace: Cluster) -> None:
    script = (
        "while [ ! -e $PERDURE_FILES/cancelled ]; do echo 1 > $PERDURE_FILES/heartbeat; sleep 0.5; done\n"
        'echo \'{"error": {"cancelled": true, "details": "tidied up"}}\' > /dev/termination-log; exit 1'
    )
    activity = work(script, heartbeatTimeout="60s")
    call = {"name": "work", "cancellationType": "WaitCancellationCompleted"}
    spec = {
        "inline": {
            "activities": [activity],
            "blocks": [
                {"name": "slow", "steps": [{"name": "stays", "activity": call}]},
                {"name": "quick", "steps": [{"name": "over", "waitForSignal": {"name": "over"}}]},
            ],
            "steps": [
                {
                    "name": "race",
                    "parallel": {
                        "wait": "Any",
                        "branches": [{"name": "slow", "block": "slow"}, {"name": "quick", "block": "quick"}],
                    },
                }
            ],
        }
    }
    namespace.start("raced", spec)
    namespace.wait("its first heartbeat", lambda: has_heartbeat(namespace))
    pokes = count()

    def is_known_to_run() -> bool:
        """The status of the pod comes after the heartbeat, and each commit shows what the operator has seen of it."""
        namespace.create(operation(poke := f"poke-{next(pokes)}", "raced", signal={"name": "poke"}))
        answer(namespace, poke)
        (pending,) = (namespace.get("workflowrun", "raced") or {})["status"]["pendingActivities"]
        return bool(pending["state"] == "Started")

    # What has not started is cancelled immediately, without an answer.
    namespace.wait("the operator to see that it runs", is_known_to_run)
    ask(namespace, "over", "raced", signal={"name": "over"})
    assert namespace.closed("raced")["phase"] == "Completed"
    run = namespace.get("workflowrun", "raced")
    assert run is not None
    events = [event for event in run["status"]["history"]["events"] if event["eventType"] == "ActivityTaskCanceled"]
    assert [event.get("details") for event in events] == ["tidied up"], run["status"]
    namespace.wait("its pod to be gone", lambda: not namespace.list("pods"))
