"""`perdure trace`: when each attempt waited, started its pod, and ran."""

import json
from datetime import timedelta
from typing import Any

import pytest
from click.testing import Result

from perdure.engine.inputs import AttemptCompleted
from perdure.view.page import ASCII
from perdure.view.runs.timeline import spans, timeline_lines
from support.apiserver import ApiServer, items
from support.cli import perdure
from support.view.flow import T0, Flow, at, charged_after_two_refusals, golden, plain

RUN = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns/order-42"
PODS = "/api/v1/namespaces/shop/pods"


def pod(
    event: int, attempt: int, created: float, start: float | None = None, end: float | None = None
) -> dict[str, Any]:
    """A pod that was created, began to run, and ended at some second; the first attempt of a step fails."""
    state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
    if start is not None:
        state = {"running": {"startedAt": at(start).isoformat()}}
    if start is not None and end is not None:
        times = {"startedAt": at(start).isoformat(), "finishedAt": at(end).isoformat()}
        state = {"terminated": {"exitCode": int(attempt == 1), **times}}
    return {
        "metadata": {
            "name": f"order-42-{event}-{attempt}",
            "creationTimestamp": at(created).isoformat(),
            "annotations": {"perdure.dev/scheduled-event-id": str(event), "perdure.dev/attempt": str(attempt)},
        },
        "spec": {"containers": [{"name": "activity", "env": [{"name": "PERDURE_ACTIVITY_ID", "value": "any"}]}]},
        "status": {"containerStatuses": [{"name": "activity", "state": state}]},
    }


def shown(flow: Flow, *pods: dict[str, Any], offset: float, width: int = 89) -> str:
    page = flow.page(offset, width=width, glyphs=ASCII)
    return plain(list(timeline_lines(spans(flow.run(offset), pods), T0, at(offset), page)))


def trace(*options: str) -> Result:
    return perdure("trace", "order-42", *options)


def test_an_attempt_with_a_cached_result_has_only_a_wait() -> None:
    flow = Flow().at(5, AttemptCompleted(scheduled_event_id=2, attempt=1, result="R-1", cached="reserve-habc"))
    (first, *_) = spans(flow.run(), [])
    (attempt,) = first.attempts
    assert (attempt.number, attempt.result, attempt.pod) == (1, "Cached", "")
    ((_, phases),) = first.phases(at(9))
    assert phases == {"wait": (at(0), at(5))}


HOOKED = """
activities:
- {name: prepare, startToCloseTimeout: 1m, container: {image: shop}}
- {name: book, startToCloseTimeout: 1m, container: {image: shop}}
steps:
- {name: hotel, activity: {name: book}, onStart: {block: ready}, onEnd: {block: ready}}
blocks:
- {name: ready, steps: [{name: check, activity: {name: prepare}}]}
"""


def test_the_blocks_of_a_step_do_not_count_as_the_time_of_its_activity() -> None:
    flow = Flow(HOOKED).started(1).completed(2).started(3).completed(4).started(5)
    (hotel,) = (each for each in spans(flow.run(6), []) if each.path == "hotel")
    assert (hotel.start, hotel.end) == (at(0), None)
    ((_, phases),) = hotel.phases(at(6))
    assert phases == {"wait": (at(2), at(3)), "run": (at(3), at(4))}


def test_attempts_show_wait_start_and_run_times() -> None:
    flow = charged_after_two_refusals()
    text = shown(flow, pod(2, 2, 3, 5, 10), pod(5, 3, 22, 24, 26), pod(5, 1, 10, 11, 12), offset=30)
    assert text == golden(
        """
        STEP            ATTEMPT  PHASE      START  WAIT  POD  RUN  TIMELINE
        reserve         #2       Succeeded  +0s    3s    2s   5s   ---==#####....................
        charge          #1       Failed     +10s   0s    1s   1s   ..........=#..................
        -               #3       Succeeded  +12s   10s   2s   2s   ............----------==##....
        change-of-mind  -        Waiting    +26s   -     -    4s   ..........................####
        - wait  = pod start  # run
        """
    )


def test_without_pods_only_the_last_attempt_is_shown() -> None:
    text = shown(charged_after_two_refusals(), offset=30)
    assert [line.split()[:7] for line in text.splitlines()[1:3]] == [
        ["reserve", "#2", "Succeeded", "+0s", "5s", "-", "5s"],
        ["charge", "#3", "Succeeded", "+10s", "14s", "-", "2s"],
    ]


@pytest.mark.parametrize(
    ("flow", "pods", "want"),
    [
        (Flow(), (), ["reserve", "#1", "Waiting", "+0s", "8s", "-", "-"]),
        (Flow(), (pod(2, 1, 2),), ["reserve", "#1", "Waiting", "+0s", "2s", "6s", "-"]),
        (Flow().started(5), (pod(2, 1, 2, 5),), ["reserve", "#1", "Running", "+0s", "2s", "3s", "3s"]),
        (Flow().started(5), (), ["reserve", "#1", "Running", "+0s", "5s", "-", "3s"]),
        (Flow().started(1).lost(3), (), ["reserve", "#2", "Waiting", "+0s", "8s", "-", "-"]),
    ],
    ids=["no pod yet", "its pod starts", "running", "running, without its pod", "second attempt"],
)
def test_an_open_attempt_is_shown(flow: Flow, pods: tuple[dict[str, Any], ...], want: list[str]) -> None:
    assert shown(flow, *pods, offset=8).splitlines()[1].split()[:7] == want


def test_times_of_pods_are_adjusted_to_follow_their_cause() -> None:
    flow = charged_after_two_refusals()
    text = shown(flow, pod(2, 2, -0.4, -0.2, 10), pod(5, 3, 9, 9, 26), offset=30)
    rows = [line.split()[:7] for line in text.splitlines()[1:3]]
    assert rows[0] == ["reserve", "#2", "Succeeded", "+0s", "0s", "0s", "10s"]
    assert (rows[1][3], rows[1][4], rows[1][5]) == ("+10s", "0s", "0s")


def test_the_command_shows_the_trace(server: ApiServer) -> None:
    server.answers |= {RUN: charged_after_two_refusals().object, PODS: items(pod(5, 3, 22, 24, 26))}
    done = trace()
    assert done.exit_code == 0, done.output
    assert "░ wait  ▒ pod start  █ run" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[1:4]] == ["reserve", "charge", "change-of-mind"]


def test_without_permission_for_pods_the_history_is_shown(server: ApiServer) -> None:
    refusal = (403, {"kind": "Status", "reason": "Forbidden", "message": "pods is forbidden"})
    server.answers |= {RUN: charged_after_two_refusals().object, PODS: refusal}
    done = trace()
    assert done.exit_code == 0
    assert "only the history is shown, because the pods cannot be read: pods is forbidden" in done.stderr
    assert "#3" in done.stdout


def test_a_run_without_steps_is_reported(server: ApiServer) -> None:
    run = charged_after_two_refusals().object
    server.answers |= {RUN: {**run, "status": {}}, PODS: items()}
    done = trace()
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "No step of the run `order-42` has started.\n")


def test_json_is_a_chrome_trace(server: ApiServer) -> None:
    server.answers |= {RUN: charged_after_two_refusals().object, PODS: items(pod(5, 3, 22, 24, 26))}
    found = json.loads(trace("-o", "json").stdout)["traceEvents"]
    names = {each["tid"]: each["args"]["name"] for each in found if each["name"] == "thread_name"}
    assert names == {1: "reserve", 2: "charge", 3: "change-of-mind"}
    slices = {each["name"]: each for each in found if each["ph"] == "X" and each["tid"] == 2}
    assert list(slices) == ["charge", "#3 wait", "#3 pod start", "#3 run"]
    step, ran = slices["charge"], slices["#3 run"]
    assert (ran["ts"], ran["dur"]) == (round(at(24).timestamp() * 1e6), 2_000_000)
    assert (step["ts"], step["dur"]) == (round(at(10).timestamp() * 1e6), 16_000_000)
    assert ran["args"] == {"attempt": 3, "result": "Succeeded", "pod": "order-42-5-3"}


# --- OpenTelemetry ----------------------------------------------------------------------------------------------------


def otlp(server: ApiServer, flow: Flow, *pods: dict[str, Any], parent: str = "") -> list[dict[str, Any]]:
    """The exported spans of a run."""
    run = flow.object
    run["metadata"]["labels"] = {"perdure.dev/parent-run-id": parent} if parent else {}
    server.answers |= {RUN: run, PODS: items(*pods)}
    done = trace("--otlp")
    assert done.exit_code == 0, done.output
    (resource,) = json.loads(done.stdout)["resourceSpans"]
    assert {"key": "service.name", "value": {"stringValue": "perdure"}} in resource["resource"]["attributes"]
    (scope,) = resource["scopeSpans"]
    spans: list[dict[str, Any]] = scope["spans"]
    return spans


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {each["key"].removeprefix("perdure."): next(iter(each["value"].values())) for each in span["attributes"]}


def nanoseconds(offset: float) -> str:
    return str(round(at(offset).timestamp() * 1e6) * 1000)


def closed() -> Flow:
    return charged_after_two_refusals().at(60)


def test_a_closed_run_is_exported_as_spans_that_form_a_tree(server: ApiServer) -> None:
    found = otlp(server, closed(), pod(5, 1, 10, 11, 12), pod(5, 3, 22, 24, 26))
    assert {span["traceId"] for span in found} == {"11111111222233334444555555555555"}
    assert len({span["spanId"] for span in found}) == len(found)
    root, *others = found
    assert (root["name"], root["spanId"], root["status"]) == (
        "RunWorkflow:order-flow",
        "1111111122223333",
        {"code": 1},
    )
    assert (root["startTimeUnixNano"], root["endTimeUnixNano"]) == (nanoseconds(0), nanoseconds(60))
    assert "parentSpanId" not in root
    assert attributes(root)["phase"] == "Completed"
    steps = {span["name"]: span for span in others if span["parentSpanId"] == root["spanId"]}
    assert list(steps) == ["reserve", "charge", "change-of-mind"]
    charges = [span for span in others if span["parentSpanId"] == steps["charge"]["spanId"]]
    assert [(attributes(span)["attempt"], attributes(span)["result"]) for span in charges] == [
        ("1", "Failed"),
        ("3", "Succeeded"),
    ]
    assert [span.get("status") for span in charges] == [{"code": 2}, None]
    assert {span["name"] for span in charges} == {"RunActivity:charge-card"}
    assert charges[1]["events"] == [
        {"name": name, "timeUnixNano": nanoseconds(offset)}
        for name, offset in (("wait", 12), ("pod start", 22), ("run", 24))
    ]


def test_an_export_repeats_its_ids_and_links_to_the_parent(server: ApiServer) -> None:
    pods = (pod(5, 3, 22, 24, 26), pod(5, 1, 10, 11, 12))
    first = otlp(server, closed(), *pods)
    second = otlp(server, closed(), pods[0], parent="aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
    deleted = next(span for span in first if attributes(span).get("pod") == "order-42-5-1")
    assert [span["spanId"] for span in first if span != deleted] == [span["spanId"] for span in second]
    assert "links" not in first[0]
    assert second[0]["links"] == [{"traceId": "aaaaaaaabbbbccccddddeeeeeeeeeeee", "spanId": "aaaaaaaabbbbcccc"}]


def test_open_work_is_stopped_when_the_run_ends(server: ApiServer) -> None:
    flow = Flow(timeout=timedelta(seconds=20)).started(5).at(20)
    root, step, attempt = otlp(server, flow)
    assert root["status"] == {"code": 2, "message": "TimedOut"}
    for span in (step, attempt):
        assert attributes(span)["result"] == "Stopped"
        assert span["endTimeUnixNano"] == nanoseconds(20)


def test_an_open_run_is_not_exported(server: ApiServer) -> None:
    server.answers |= {RUN: charged_after_two_refusals().object, PODS: items()}
    done = trace("--otlp")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the run `order-42` has not ended" in done.stderr
    assert trace("--otlp", "-o", "json").exit_code == 2
