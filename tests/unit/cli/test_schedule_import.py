import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from perdure.cli.app import build

CRON_JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "report", "namespace": "shop"},
    "spec": {
        "schedule": "30 2 * * 1-5",
        "timeZone": "Europe/Berlin",
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 200,
        "suspend": True,
        "successfulJobsHistoryLimit": 5,
        "jobTemplate": {
            "spec": {
                "backoffLimit": 2,
                "activeDeadlineSeconds": 600,
                "template": {
                    "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main", "image": "report:1"}]},
                },
            }
        },
    },
}
CRON_WORKFLOW: dict[str, Any] = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "CronWorkflow",
    "metadata": {"name": "sync"},
    "spec": {
        "schedules": ["*/5 * * * *", "0 3 * * *"],
        "timezone": "America/New_York",
        "concurrencyPolicy": "Replace",
        "workflowSpec": {
            "workflowTemplateRef": {"name": "sync"},
            "arguments": {"parameters": [{"name": "depth", "value": "3"}]},
        },
    },
}
TEMPORAL: dict[str, Any] = {
    "scheduleId": "Nightly_Report",
    "schedule": {
        "spec": {
            "structuredCalendar": [
                {
                    "second": [{}],
                    "minute": [{"start": 30}],
                    "hour": [{"start": 2}],
                    "dayOfMonth": [{"start": 1, "end": 31, "step": 1}],
                    "month": [{"start": 1, "end": 12, "step": 1}],
                    "dayOfWeek": [{"start": 1, "end": 5}],
                }
            ],
            "interval": [{"interval": "3600s", "phase": "300s"}],
            "timezoneName": "Europe/Berlin",
            "jitter": "60s",
        },
        "action": {
            "startWorkflow": {
                "workflowId": "report",
                "workflowType": {"name": "Report"},
                "taskQueue": {"name": "reports", "kind": "TASK_QUEUE_KIND_NORMAL"},
                "input": {"payloads": [{"metadata": {"encoding": "anNvbi9wbGFpbg=="}, "data": "eyJhIjogMX0="}]},
            }
        },
        "policies": {"overlapPolicy": "SCHEDULE_OVERLAP_POLICY_BUFFER_ONE", "catchupWindow": "31536000s"},
        "state": {"notes": "by night", "limitedActions": True, "remainingActions": "7"},
    },
    "info": {"actionCount": "3"},
}


def run(manifest: dict[str, Any]) -> tuple[int, list[dict[str, Any]], str]:
    result = CliRunner().invoke(
        build("perdure", ["schedule"]), ["schedule", "import", "-f", "-"], input=json.dumps(manifest)
    )
    return result.exit_code, list(yaml.safe_load_all(result.stdout)), result.stderr


def changed(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(manifest))
    at = copy
    *parents, last = path.split(".")
    for name in parents:
        at = at.setdefault(name, {})
    at[last] = value
    return copy


def test_a_cron_job_becomes_a_workflow_and_a_schedule() -> None:
    code, (workflow, schedule), error = run(CRON_JOB)
    assert code == 0, error
    (activity,) = workflow["spec"]["activities"]
    assert activity["podTemplate"]["spec"] == {"containers": [{"name": "main", "image": "report:1"}]}
    assert activity["retryPolicy"]["exponential"]["maximumAttempts"] == 3
    assert schedule["metadata"] == {"name": "report", "namespace": "shop"}
    assert schedule["spec"] == {
        "cron": ["30 2 * * 1-5"],
        "timeZone": "Europe/Berlin",
        "overlapPolicy": "Skip",
        "paused": True,
        "successfulRunsHistoryLimit": 5,
        "failedRunsHistoryLimit": 1,
        "catchupWindow": "0h200s",
        "workflowRunTemplate": {"spec": {"workflow": {"name": "report"}}},
    }


def test_a_cron_workflow_becomes_a_schedule() -> None:
    code, (schedule,), error = run(CRON_WORKFLOW)
    assert code == 0, error
    assert schedule["spec"]["cron"] == ["*/5 * * * *", "0 3 * * *"]
    assert schedule["spec"]["overlapPolicy"] == "TerminateOther"
    assert schedule["spec"]["catchupWindow"] == "0h10s"
    assert schedule["spec"]["workflowRunTemplate"]["spec"] == {"workflow": {"name": "sync"}, "input": {"depth": "3"}}


def test_a_schedule_of_temporal_becomes_one_of_ours() -> None:
    code, (schedule,), error = run(TEMPORAL)
    assert code == 0, error
    spec = schedule["spec"]
    assert schedule["metadata"]["name"] == "nightly-report"
    assert spec["calendars"] == [
        {"dayOfMonth": "*", "month": "*", "dayOfWeek": "1-5", "hour": "2", "minute": "30", "second": "0"}
    ]
    assert spec["intervals"] == [{"every": "1h0s", "offset": "0h300s"}]
    assert spec["daylightSaving"] == {"skipped": "Skip", "repeated": "Both"}
    assert (spec["overlapPolicy"], spec["catchupWindow"], spec["remainingActions"]) == ("BufferOne", "365d", 7)
    assert spec["workflowRunTemplate"]["spec"] == {
        "workflow": {"type": "Report", "taskQueue": "reports"},
        "workflowId": "report",
        "input": {"a": 1},
    }


@pytest.mark.parametrize(
    ("manifest", "path", "value", "want"),
    [
        (CRON_JOB, "spec.schedule", "0 0 13 * 5", "Split it into `0 0 13 * *` and `0 0 * * 5`"),
        (CRON_JOB, "spec.schedule", "0 25 * * *", "-: spec.cron[0]: `0 25 * * *`: `hour` is `25`"),
        (CRON_JOB, "spec.jobTemplate.spec.parallelism", 4, "spec.jobTemplate.spec.parallelism"),
        (CRON_JOB, "spec.jobTemplate.spec.podFailurePolicy", {"rules": [1]}, "podFailurePolicy: has no equivalent"),
        (CRON_JOB, "spec.concurrencyPolicy", "Maybe", "must be Allow, Forbid or Replace"),
        (CRON_JOB, "kind", "Job", "must be a CronJob, a CronWorkflow"),
        (CRON_WORKFLOW, "spec.when", "{{=true}}", "put the condition into the workflow"),
        (CRON_WORKFLOW, "spec.stopStrategy", {"expression": "x"}, "stopStrategy: has no equivalent"),
        (CRON_WORKFLOW, "spec.workflowSpec", {"templates": []}, "steps of Argo are not translated"),
        (TEMPORAL, "schedule.policies.overlapPolicy", "NEW", "is none that is known"),
        (TEMPORAL, "schedule.action.startWorkflow.memo", {"fields": {"a": 1}}, "memo: has no equivalent"),
        (TEMPORAL, "schedule.action", {}, "must be there"),
    ],
)
def test_what_has_no_equivalent_is_refused_by_name(manifest: dict[str, Any], path: str, value: Any, want: str) -> None:
    code, _, error = run(changed(manifest, path, value))
    assert code == 2
    assert want in " ".join(error.split())


def test_a_list_is_taken_apart(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [CRON_JOB, CRON_WORKFLOW]}))
    result = CliRunner().invoke(build("perdure", ["schedule"]), ["schedule", "import", "-f", str(file)])
    assert [each["kind"] for each in yaml.safe_load_all(result.stdout)] == ["Workflow", "Schedule", "Schedule"]
