"""The two ends of an attempt understand each other, though the helper imports nothing of the operator's."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure.activity import ApplicationError, CancelledError, _heartbeats
from perdure.activity._context import Context
from perdure.activity._payloads import error_document
from perdure.activity._run import execute
from perdure.api import labels
from perdure.api.kinds.workflow import Activity
from perdure.api.times import read_kubernetes_time
from perdure.engine.failures import FailureKind
from perdure.engine.inputs import AttemptCompleted, AttemptFailed
from perdure.runtime.attempt_outcomes import outcome
from perdure.runtime.attempts import Attempt, PodSettings, RunRef
from perdure.runtime.pods.builder import build_pod

RUN = RunRef(namespace="shop", name="order-42", uid="uid-42", workflow_id="order")
DEFINITION = Activity.parse({"name": "charge", "startToCloseTimeout": "5m", "container": {"image": "a"}})


def make_attempt(**fields: Any) -> Attempt:
    base: dict[str, Any] = {"scheduled_event_id": 5, "attempt": 2, "activity_id": "a$(5)", "activity_type": "charge"}
    return Attempt(**base | fields)


def inside(pod: dict[str, Any], folder: Path) -> dict[str, str]:
    """The environment and files that a kubelet would make of a pod."""
    annotations = pod["metadata"]["annotations"]

    def value_at(path: str) -> str:
        return str(annotations[path.removeprefix("metadata.annotations['").removesuffix("']")])

    for item in pod["spec"]["volumes"][0]["downwardAPI"]["items"]:
        (folder / item["path"]).write_text(value_at(item["fieldRef"]["fieldPath"]))
    environ = {}
    for variable in pod["spec"]["containers"][0]["env"]:
        if "value" in variable:
            environ[variable["name"]] = variable["value"].replace("$$", "$").replace("/perdure/", f"{folder}/")
        else:
            environ[variable["name"]] = value_at(variable["valueFrom"]["fieldRef"]["fieldPath"])
    environ["PERDURE_TERMINATION_LOG"] = str(folder / "termination-log")
    return environ


def ended(pod: dict[str, Any], code: int, message: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}}
    return {**pod, "status": {"phase": "Running", "containerStatuses": [{"name": "activity", "state": state}]}}


def test_annotation_names_match_those_of_the_operator() -> None:
    assert _heartbeats.DETAILS_ANNOTATION == labels.HEARTBEAT_DETAILS_ANNOTATION
    assert _heartbeats.RESULT_ANNOTATION == labels.RESULT_ANNOTATION
    assert _heartbeats.CANCEL_ANNOTATION == labels.CANCEL_REQUESTED_ANNOTATION


def test_the_operator_parses_times_written_by_the_pod() -> None:
    time = read_kubernetes_time(_heartbeats.micro_time(1_769_860_800_000_000_000 + 250_000_000))
    assert time is not None
    assert time.isoformat() == "2026-01-31T12:00:00.250000+00:00"


@pytest.mark.parametrize("size", [pytest.param(10, id="as a variable"), pytest.param(50_000, id="as a file")])
def test_the_pod_reads_everything_the_operator_passes(tmp_path: Path, size: int) -> None:
    attempt = make_attempt(
        input={"text": "é" * size},
        last_heartbeat_details=["$(HOME)" * size],
        start_to_close=timedelta(minutes=5),
        heartbeat_timeout=timedelta(seconds=1.5),
    )
    if size > 1000:
        attempt = make_attempt(input={"text": "é" * size}, last_heartbeat_details=["x" * size])
    context = Context(inside(build_pod(RUN, attempt, DEFINITION, PodSettings()), tmp_path))
    assert context.payload("PERDURE_INPUT") == attempt.input
    assert context.payload("PERDURE_LAST_HEARTBEAT_DETAILS") == attempt.last_heartbeat_details
    assert context.info._asdict() == {
        "namespace": "shop",
        "run": "order-42",
        "run_id": "uid-42",
        "workflow_id": "order",
        "activity": "charge",
        "activity_id": "a$(5)",
        "attempt": 2,
        "start_to_close_timeout": attempt.start_to_close,
        "heartbeat_timeout": attempt.heartbeat_timeout,
    }


@pytest.mark.parametrize("containers", [1, 3, 6])
def test_the_operator_accepts_the_largest_result_of_the_helper(tmp_path: Path, containers: int, make_now: Any) -> None:
    spec = {
        "containers": [
            {"name": "activity", "image": "a"},
            *[{"name": f"s{n}", "image": "b"} for n in range(1, containers)],
        ]
    }
    definition = Activity.parse({"name": "charge", "startToCloseTimeout": "5m", "podTemplate": {"spec": spec}})
    pod = build_pod(RUN, make_attempt(), definition, PodSettings())
    context = Context(inside(pod, tmp_path))
    result = "x" * (context.message_limit - 2)
    assert execute(lambda: result, context) == 0
    reported = outcome(
        make_attempt(), definition, ended(pod, 0, (tmp_path / "termination-log").read_text()), now=make_now
    )
    assert isinstance(reported, AttemptCompleted)
    assert reported.result == result


@pytest.mark.parametrize(
    ("error", "want"),
    [
        pytest.param(
            ApplicationError("m", type="T", details={"a": 1}, non_retryable=True, next_retry_delay=3.5),
            {
                "kind": FailureKind.APPLICATION,
                "type": "T",
                "message": "m",
                "details": {"a": 1},
                "non_retryable": True,
                "next_retry_delay": timedelta(seconds=3.5),
            },
            id="an application error",
        ),
        pytest.param(
            ApplicationError("m", next_retry_delay=timedelta(days=400)),
            {"next_retry_delay": timedelta(days=400)},
            id="a very long delay",
        ),
        pytest.param(
            CancelledError("by ann"), {"kind": FailureKind.CANCELLED, "message": "by ann"}, id="a cancellation"
        ),
        pytest.param(
            ValueError("x\ny"), {"type": "ValueError", "message": "x\ny", "non_retryable": False}, id="any other"
        ),
    ],
)
def test_the_operator_reads_the_failure_that_was_raised(
    error: BaseException, want: dict[str, Any], make_now: Any
) -> None:
    pod = ended(build_pod(RUN, make_attempt(), DEFINITION, PodSettings()), 1, error_document(error, 4095))
    reported = outcome(make_attempt(), DEFINITION, pod, now=make_now)
    assert isinstance(reported, AttemptFailed)
    assert {name: getattr(reported.failure, name) for name in want} == want


def test_an_error_document_is_json() -> None:
    assert json.loads(error_document(ValueError("é"), 4095))["error"]["message"] == "é"
