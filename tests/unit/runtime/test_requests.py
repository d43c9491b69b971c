"""Operations as requests to the engine."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.api import labels
from perdure.api.kinds.operation import Operation
from perdure.engine import inputs as inp
from perdure.runtime.chains import created_by
from perdure.runtime.operation_requests import (
    MAX_DEPTH,
    MAX_PAYLOAD,
    request_of,
    run_to_start,
    start_signal_of,
    too_much,
)

RUN = {"kind": "WorkflowRun", "name": "order"}
WHO = "operation/ask-1"
_ANSWER = {"completeActivity": {"step": "charge", "result": {"output": 7}}}


def operation(target: dict[str, Any], **spec: Any) -> dict[str, Any]:
    meta = {"name": "ask-1", "namespace": "shop", "uid": "uid-1"}
    return {
        "apiVersion": labels.API_VERSION,
        "kind": "Operation",
        "metadata": meta,
        "spec": {"target": target, **spec},
    }


def asked(**spec: Any) -> Any:
    return request_of(Operation.parse(operation(RUN, **spec)).spec, "uid-1", WHO)


@pytest.mark.parametrize(
    ("spec", "request_"),
    [
        (
            {"signal": {"name": "go", "input": {"n": 1}}},
            inp.SignalRequested(request_id="uid-1", signal_name="go", input={"n": 1}, identity=WHO),
        ),
        ({"cancel": {"reason": "why"}}, inp.CancelRequested(request_id="uid-1", reason="why", identity=WHO)),
        (
            {"terminate": {"reason": "why", "details": [1]}},
            inp.TerminateRequested(request_id="uid-1", reason="why", details=[1], identity=WHO),
        ),
        ({"pause": {}}, inp.PauseRequested(request_id="uid-1", identity=WHO)),
        (
            {"pause": {"step": "rooms[3]", "reason": "why"}},
            inp.PauseRequested(request_id="uid-1", activity_id="rooms[3]", reason="why", identity=WHO),
        ),
        (
            {"unpause": {"step": "rooms[3]"}},
            inp.UnpauseRequested(request_id="uid-1", activity_id="rooms[3]", identity=WHO),
        ),
        (
            {"completeActivity": {"step": "charge", "result": {"output": 7}}},
            inp.ActivityAnswered(request_id="uid-1", activity_id="charge", result=7),
        ),
        (
            {"completeActivity": {"step": "charge", "cancelled": {"details": "half"}}},
            inp.ActivityAnswered(request_id="uid-1", activity_id="charge", result="half", cancelled=True),
        ),
        (
            {"resetActivity": {"step": "rooms[3]", "resetHeartbeat": True}},
            inp.ActivityReset(request_id="uid-1", activity_id="rooms[3]", heartbeat=True),
        ),
        (
            {"resetActivity": {"step": "charge", "keepPaused": True}},
            inp.ActivityReset(request_id="uid-1", activity_id="charge", keep_paused=True),
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_an_operation_becomes_its_request(spec: dict[str, Any], request_: inp.Request) -> None:
    assert asked(**spec) == request_


def test_a_failure_given_by_an_operation_is_an_application_failure() -> None:
    reported = {"type": "Declined", "message": "no", "details": {"by": "phone"}, "nonRetryable": True}
    failure = asked(completeActivity={"step": "charge", "failure": reported}).failure
    assert (failure.kind, failure.type, failure.message) == ("Application", "Declined", "no")
    assert (failure.details, failure.non_retryable) == ({"by": "phone"}, True)


@pytest.mark.parametrize(
    "spec",
    [{"signal": {"name": "go"}}, {"cancel": {}}, {"terminate": {}}, {"pause": {}}, {"unpause": {}}, _ANSWER],
    ids=str,
)
def test_a_request_has_the_creator_of_the_operation(spec: dict[str, Any]) -> None:
    obj = operation(RUN, **spec)
    obj["metadata"]["annotations"] = {labels.CREATED_BY_ANNOTATION: "alice"}
    request: Any = request_of(Operation.parse(obj).spec, "uid-1", WHO, created_by(obj))
    assert request.principal == "alice"
    assert asked(**spec).principal == ""


def test_a_reset_is_not_a_request_to_the_engine() -> None:
    with pytest.raises(ValueError, match="reset"):
        asked(reset={"eventId": 3})


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("payload", "wrong"),
    [
        ("x" * (MAX_PAYLOAD - 2), None),
        ("x" * (MAX_PAYLOAD - 1), "128 KiB"),
        (nested(MAX_DEPTH), None),
        (nested(MAX_DEPTH + 1), "100 levels"),
        (nested(50_000), "100 levels"),
    ],
    ids=["fits", "too large", "deep", "too deep", "very deep"],
)
def test_payloads_of_requests_are_limited_in_size_and_depth(payload: Any, wrong: str | None) -> None:
    reported = too_much(inp.SignalRequested(request_id="1", signal_name="go", input=payload))
    assert reported is None if wrong is None else wrong in (reported or "")


def test_a_request_without_a_payload_is_never_too_large() -> None:
    assert too_much(inp.CancelRequested(request_id="1", reason="x" * 200_000)) is None


@given(st.text(min_size=1, max_size=1_000), st.uuids())
def test_a_run_for_signal_with_start_has_a_unique_name_and_its_signal(workflow_id: str, uid: Any) -> None:
    target = {"kind": "WorkflowRun", "workflowId": workflow_id}
    start = {"workflow": {"name": "cart"}, "input": [1]}
    obj = operation(target, signalWithStart={"name": "add", "input": {"n": 1}, "start": start})
    obj["metadata"]["uid"] = str(uid)
    signal = inp.SignalRequested(
        request_id=str(uid), signal_name="add", input={"n": 1}, identity=WHO, principal="alice"
    )
    run = run_to_start(obj, signal)
    name = run["metadata"]["name"]
    assert len(name) <= 63
    assert name.replace("-", "a").isalnum()
    assert name == name.lower()
    assert run_to_start(obj, signal)["metadata"]["name"] == name
    assert run["spec"] == {**start, "workflowId": workflow_id}
    carried = start_signal_of(run)
    assert carried is not None
    assert carried.request == signal
    assert created_by(run) == "alice"


def test_an_invalid_start_signal_annotation_is_ignored() -> None:
    for text in ("", "{", "{}", '{"requestId": 1}'):
        assert start_signal_of({"metadata": {"annotations": {labels.START_SIGNAL_ANNOTATION: text}}}) is None
