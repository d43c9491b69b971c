"""The endpoints for the kubelet and Prometheus."""

from contextlib import AbstractAsyncContextManager

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from perdure.observe import health, metrics


def served(*, live: health.Check, ready: health.Check) -> AbstractAsyncContextManager[int]:
    return health.serve(0, live=live, ready=ready, host="127.0.0.1")


async def ask(port: int, path: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text(), response.headers["Content-Type"]


def well() -> None:
    return None


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
    metrics.RUNS.labels(namespace="metrics", outcome="Completed").inc()
    async with served(live=well, ready=well) as port:
        status, text, kind = await ask(port, "/metrics")
    assert status == 200
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["perdure_commits"].samples[0].value >= 1
    found = {s.name: s for s in families["perdure_workflow_runs"].samples if s.labels["namespace"] == "metrics"}
    assert found["perdure_workflow_runs_total"].labels == {"namespace": "metrics", "outcome": "Completed"}


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
