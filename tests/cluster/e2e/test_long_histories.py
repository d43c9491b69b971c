"""Histories that do not fit into a status are sealed and read completely, and changes of segments are detected."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.cluster.namespace import Cluster, Json, check_history

pytestmark = pytest.mark.cluster


def naps(count: int, **more: object) -> Json:
    """A run of many short steps: each leaves two events, and costs no pod."""
    loop = {"items": f"${{lists.range({count})}}", "maxConcurrency": 10}
    return {"inline": {"steps": [{"name": "naps", "forEach": loop, "sleep": {"duration": "1s"}}], **more}}


def names(segments: list[Json]) -> list[str]:
    return [segment["metadata"]["name"] for segment in segments]


def perdure(namespace: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("perdure"))
    command = [program, *arguments, "-n", namespace.namespace]
    environment = {"KUBECONFIG": str(namespace.kubeconfig), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def test_a_long_history_is_sealed_and_read_completely(namespace: Cluster, tmp_path: Path) -> None:
    spec = naps(250)
    namespace.start("long", spec)
    assert namespace.closed("long", seconds=300)["phase"] == "Completed"
    run = namespace.with_history("long")
    segments = namespace.segments(run)
    assert len(segments) >= 2
    assert run["status"]["history"]["segments"] == len(segments)
    assert len(json.dumps(namespace.get("workflowrun", "long"))) < 256 * 1024
    check_history(run)
    written = perdure(namespace, "history", "long", "-o", "json")
    assert written.returncode == 0, written.stderr
    assert json.loads(written.stdout)["events"] == run["status"]["history"]["events"]
    (tmp_path / "long.json").write_text(written.stdout)
    (tmp_path / "long.yaml").write_text(
        json.dumps({"kind": "Workflow", "metadata": {"name": "long"}, "spec": spec["inline"]})
    )
    replayed = perdure(
        namespace, "replay", "-f", str(tmp_path / "long.json"), "--workflow", str(tmp_path / "long.yaml")
    )
    assert replayed.stdout == f"replays: {len(run['status']['history']['events'])} events\n", replayed.stderr
    # They are immutable, and are deleted with their run.
    refused = namespace.run(
        "patch", "historysegment", names(segments)[0], "--type=merge", "-p", '{"spec":{"events":[{"eventId":1}]}}'
    )
    assert "must not change" in refused.stderr
    namespace.delete("workflowrun", "long")
    namespace.wait("the segments to be gone", lambda: not namespace.list("historysegments"))


@pytest.mark.slow
def test_damaged_segments_are_reported_and_the_run_continues(namespace: Cluster) -> None:
    loop = naps(120)["inline"]["steps"][0]
    parts = [
        [{**loop, "name": f"naps-{n}"}, {"name": f"go-{n}", "waitForSignal": {"name": f"go-{n}"}}] for n in range(3)
    ]
    namespace.start("hurt", {"inline": {"steps": [step for part in parts for step in part]}})

    def sealed(count: int) -> list[Json]:
        """All segments, once the run waits for the next signal and has a number of them."""
        run = namespace.get("workflowrun", "hurt")
        found = namespace.segments(run) if run else []
        return found if len(found) == count else []

    def go(part: int) -> None:
        assert perdure(namespace, "signal", "hurt", "--name", f"go-{part}").returncode == 0

    (first,) = namespace.wait("a segment", lambda: sealed(1))
    namespace("delete", "historysegment", "--all")
    go(0)
    condition = namespace.condition("workflowrun", "hurt", "SegmentMissing")
    assert (condition["type"], condition["status"]) == ("HistoryTruncated", "True")
    assert "was deleted" in condition["message"]
    # A replaced segment is detected, too.
    (other,) = namespace.wait("another segment", lambda: sealed(1))
    forged = {key: other[key] for key in ("apiVersion", "kind", "spec")}
    metadata = {key: other["metadata"][key] for key in ("name", "ownerReferences")}
    forged["spec"]["events"][0]["eventTime"] = "2000-01-01T00:00:00Z"
    namespace.delete("historysegment", other["metadata"]["name"])
    namespace.apply({**forged, "metadata": metadata})
    go(1)
    condition = namespace.condition("workflowrun", "hurt", "SegmentChanged")
    assert other["metadata"]["name"] in condition["message"]
    go(2)
    assert namespace.closed("hurt", seconds=300)["phase"] == "Completed"

    def reported() -> int:
        events = namespace.list("events.v1.events.k8s.io")
        return [e["reason"] for e in events if e["regarding"]["name"] == "hurt"].count("HistoryTruncated")

    namespace.wait("both Events", lambda: reported() >= 2)
    assert reported() == 2
    done = perdure(namespace, "history", "hurt")
    assert done.returncode == 2
    assert first["metadata"]["name"] in done.stderr
    assert perdure(namespace, "describe", "hurt").returncode == 0
