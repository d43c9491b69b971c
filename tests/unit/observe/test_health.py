"""The endpoints for the kubelet and Prometheus."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from perdure.observe import health, metrics


def well() -> None:
    return None


def served(
    *, live: health.Check, ready: health.Check, measure: Callable[[], None] = well
) -> AbstractAsyncContextManager[int]:
    return health.serve(0, live=live, ready=ready, measure=measure, host="127.0.0.1")


async def ask(port: int, path: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text(), response.headers["Content-Type"]


@pytest.mark.parametrize(
    ("live", "ready", "want"),
    [
        (None, None, {"/livez": (200, "ok"), "/readyz": (200, "ok")}),
        (None, "not yet", {"/livez": (200, "ok"), "/readyz": (503, "not yet")}),
        ("stuck", None, {"/livez": (503, "stuck"), "/readyz": (200, "ok")}),
    ],
    ids=["all is well", "not ready", "not alive"],
)
async def test_a_failed_probe_reports_the_problem(
    live: str | None, ready: str | None, want: dict[str, tuple[int, str]]
) -> None:
    async with served(live=lambda: live, ready=lambda: ready) as port:
        got = {path: (await ask(port, path))[:2] for path in want}
    assert got == want


async def test_a_probe_reports_the_current_state() -> None:
    trouble: list[str] = []
    async with served(live=well, ready=lambda: trouble[0] if trouble else None) as port:
        assert (await ask(port, "/readyz"))[0] == 200
        trouble.append("the watches have stopped")
        assert (await ask(port, "/readyz"))[:2] == (503, "the watches have stopped")


async def test_a_check_that_raises_fails_the_probe() -> None:
    def broken() -> str | None:
        raise RuntimeError("no idea")

    async with served(live=broken, ready=well) as port:
        assert (await ask(port, "/livez"))[0] == 500
        assert (await ask(port, "/readyz"))[0] == 200


async def test_metrics_have_the_prometheus_format() -> None:
    metrics.COMMITS.inc()
    metrics.count_closed_run("metrics", "order", "Completed", seconds=None)
    async with served(live=well, ready=well) as port:
        status, text, kind = await ask(port, "/metrics")
    assert status == 200
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["perdure_commits"].samples[0].value >= 1
    found = {s.name: s for s in families["perdure_workflow_runs"].samples if s.labels["namespace"] == "metrics"}
    assert found["perdure_workflow_runs_total"].labels == {
        "namespace": "metrics",
        "workflow": "order",
        "outcome": "Completed",
    }


async def test_some_metrics_are_measured_when_they_are_read() -> None:
    def measure() -> None:
        metrics.show_open_runs({("metrics", "order"): 3}, {"metrics": 1})

    async with served(live=well, ready=well, measure=measure) as port:
        _, text, _ = await ask(port, "/metrics")
    assert 'perdure_open_runs{namespace="metrics",workflow="order"} 3.0' in text
    assert 'perdure_runs_near_limit{namespace="metrics"} 1.0' in text


def value_of(name: str, **labels: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(name, labels)


def test_a_namespace_with_many_workflows_takes_no_series_from_another() -> None:
    busy = {("busy", f"workflow-{number}"): number + 1 for number in range(metrics.MAX_NAMES + 5)}
    metrics.show_open_runs({**busy, ("calm", "order"): 1}, {})
    assert value_of("perdure_open_runs", namespace="calm", workflow="order") == 1
    assert value_of("perdure_open_runs", namespace="busy", workflow="workflow-54") == 55
    assert value_of("perdure_open_runs", namespace="busy", workflow="workflow-0") is None
    assert value_of("perdure_open_runs", namespace="busy", workflow=metrics.OTHERS) == 1 + 2 + 3 + 4 + 5
    for number in range(metrics.MAX_NAMES + 5):
        metrics.count_closed_run("busy", f"closed-{number}", "Failed", seconds=1)
    assert value_of("perdure_workflow_runs_total", namespace="busy", workflow=metrics.OTHERS, outcome="Failed") == 5
    metrics.show_open_runs({}, {})
    assert value_of("perdure_open_runs", namespace="calm", workflow="order") is None


def test_the_task_queues_that_have_waited_longest_have_series_of_their_own() -> None:
    loads = [
        metrics.TaskQueueLoad(namespace="busy", name=f"queue-{number}", kind="activity", backlog=2, age=float(number))
        for number in range(metrics.MAX_NAMES + 2)
    ]
    metrics.show_task_queues([*loads, metrics.TaskQueueLoad(namespace="calm", name="q", kind="workflow", pollers=1)])
    assert value_of("perdure_task_queue_pollers", namespace="calm", task_queue="q", kind="workflow") == 1
    rest = {"namespace": "busy", "task_queue": metrics.OTHERS, "kind": "activity"}
    assert value_of("perdure_task_queue_backlog", **rest) == 4
    assert value_of("perdure_task_queue_backlog_age_seconds", **rest) == 1
    metrics.show_task_queues([])


async def test_every_metric_has_the_prefix_and_a_description() -> None:
    families = [f for f in metrics.REGISTRY.collect() if not f.name.endswith("_created")]
    families = [f for f in families if not f.name.startswith("process_")]  # those of any process
    assert {
        "perdure_activity_attempts",
        "perdure_nexus_operations",
        "perdure_pass_duration_seconds",
        "perdure_queue_depth",
        "perdure_timers",
    } <= {family.name for family in families}
    for family in families:
        assert family.name.startswith("perdure_")
        assert family.documentation.endswith(".")


async def test_other_paths_are_not_found_and_the_server_ends_with_its_block() -> None:
    async with served(live=well, ready=well) as port:
        assert (await ask(port, "/"))[0] == 404
    with pytest.raises(aiohttp.ClientConnectionError):
        await ask(port, "/livez")
