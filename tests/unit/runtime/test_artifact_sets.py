"""Runs that need the artifacts of another one, and reports of pods that deleted some."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.runtime.artifact_sets import build_deletion_pod, build_set, deletion_report, uploaders_in
from perdure.runtime.attempts import PodSettings

_ONE, _TWO = "5b1f0e1c-0000-4000-8000-000000000001", "5b1f0e1c-0000-4000-8000-000000000002"
_NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ({"report": {"store": "s", "key": f"shop/{_ONE}/5-1/report"}}, {_ONE}),
        ([f"shop/{_ONE}/5-1/report", f"shop/{_TWO}/12-3/log.tar.gz"], {_ONE, _TWO}),
        (json.dumps({"key": f"shop/{_ONE}/5-1/report"}), {_ONE}),
        (f"s3://bucket/prefix/shop/{_ONE}/5-1/report", {_ONE}),
        ({"key": f"stop/{_ONE}/5-1/report"}, set()),
        ({"key": f"workshop/{_ONE}/5-1/report"}, set()),
        ({"key": f"shop/kept/{_ONE}/5-1/report"}, set()),
        ({"key": "shop/../x/5-1/report"}, set()),
        ({"key": f"shop/{_ONE}/report"}, set()),
    ],
)
def test_references_are_found_at_any_depth(text: Any, found: set[str]) -> None:
    assert uploaders_in(json.dumps(text).encode(), "shop") == found


def sets(make: Any, *run_ids: str) -> list[dict[str, Any]]:
    return [
        build_set(make.run, "perdure-artifacts", "perdure:x")
        | {"metadata": {"name": f"artifacts-{run_id}", "uid": run_id}, "spec": {"runId": run_id}}
        for run_id in run_ids
    ]


def test_a_pod_deletes_the_folders_with_the_credentials_of_the_secret(make: Any) -> None:
    pod = build_deletion_pod(
        "shop",
        "perdure-artifacts",
        sets(make, _ONE, _TWO),
        PodSettings(sidecar_image="perdure:x", pull_secrets=("pull",)),
        unique="7",
    )
    (container,) = pod["spec"]["containers"]
    variables = {each["name"]: each for each in container["env"]}
    assert json.loads(variables["PERDURE_FOLDERS"]["value"]) == [f"shop/{_ONE}", f"shop/{_TWO}"]
    secret = {"name": "perdure-artifacts", "key": "bucket"}
    assert variables["PERDURE_STORE_BUCKET"]["valueFrom"]["secretKeyRef"] == secret
    assert container["image"] == "perdure:x"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert "perdure.dev/run-id" not in pod["metadata"]["labels"], "it is not the pod of an attempt"


def ended(make: Any, message: str = "", phase: str = "Failed", **status: Any) -> dict[str, Any]:
    pod = build_deletion_pod("shop", "perdure-artifacts", sets(make, _ONE, _TWO), PodSettings(), unique="7")
    end = {"finishedAt": "2026-01-01T23:59:00Z", "message": message}
    pod["metadata"]["creationTimestamp"] = "2026-01-01T23:50:00Z"
    pod["status"] = {"phase": phase, "containerStatuses": [{"state": {"terminated": end}}], **status}
    return pod


@pytest.mark.parametrize(
    ("message", "status", "deleted", "error"),
    [
        ("{}", {"phase": "Succeeded"}, {_ONE, _TWO}, ""),
        ('{"failed": [1], "error": "denied"}', {}, {_ONE}, "denied"),
        ('{"failed": [0, 1], "error": "down"}', {}, set(), "down"),
        ("Traceback: …", {}, set(), "Traceback: …"),
        ("", {"reason": "DeadlineExceeded", "containerStatuses": []}, set(), "DeadlineExceeded"),
    ],
)
def test_only_folders_that_a_pod_reports_as_deleted_count(
    make: Any, message: str, status: dict[str, Any], deleted: set[str], error: str
) -> None:
    report = deletion_report(ended(make, message, **status), _NOW)
    assert report is not None
    assert report.deleted == {f"artifacts-{run_id}" for run_id in deleted}
    assert report.error == error


def test_a_pod_that_never_starts_has_failed_after_a_while(make: Any) -> None:
    waiting = {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}}}
    pod = ended(make, phase="Pending", containerStatuses=[waiting])
    assert deletion_report(pod, _NOW - timedelta(minutes=5)) is None
    report = deletion_report(pod, _NOW + timedelta(minutes=5))
    assert report is not None
    assert (report.deleted, report.error) == (
        frozenset(),
        "pod `" + pod["metadata"]["name"] + '`: secret "x" not found',
    )
