import base64
import functools
import json
import math
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.api.kinds.workflow import Activity
from perdure.api.yaml_text import Loader
from perdure.frontend.schedules import messages
from perdure.importing.reader import UnsupportedScheduleError
from perdure.importing.schedules import convert
from perdure.language import containers
from support.cli import perdure

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

WRITTEN: dict[str, Any] = {
    "schedule_id": "written",
    "schedule": {
        "spec": {
            "calendar": [{"hour": "6", "dayOfWeek": "1-5", "comment": "by day"}],
            "excludeCalendar": [{"month": "12", "year": "2026"}],
            "excludeStructuredCalendar": TEMPORAL["schedule"]["spec"]["structuredCalendar"],
            "cronString": ["0 12 * * *"],
            "startTime": "2026-01-01T00:00:00Z",
        },
        "action": {
            "startWorkflow": {
                "workflowType": {"name": "Report"},
                "taskQueue": {"name": "reports"},
                "workflowRunTimeout": "60s",
                "input": [{"a": 1}],
            }
        },
        "policies": {"overlapPolicy": 6, "pauseOnFailure": True},
    },
}


def run(manifest: dict[str, Any], *options: str) -> tuple[int, list[dict[str, Any]], str]:
    result = perdure("schedule", "import", "-f", "-", *options, stdin=json.dumps(manifest))
    return result.exit_code, list(yaml.safe_load_all(result.stdout)), result.stderr


def changed(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(manifest))
    at = copy
    *parents, last = path.split(".")
    for name in parents:
        at = at.setdefault(name, {})
    at[last] = value
    return copy


def test_shell_variables_of_a_cron_job_are_escaped() -> None:
    container = {
        "name": "main",
        "image": "report:1",
        "command": ["sh", "-c"],
        "args": ["echo ${HOME} $${X} $(NAME)"],
        "env": [{"name": "NAME", "value": "${input}"}],
    }
    manifest = changed(CRON_JOB, "spec.jobTemplate.spec.template.spec.containers", [container])
    code, (workflow, _), error = run(manifest)
    assert code == 0, error
    definition = Activity.parse(workflow["spec"]["activities"][0])
    made = containers.resolve(definition, input=None, run={}, attempt=1).pod_template
    assert made is not None
    assert made.spec.containers == [container]


def test_a_cron_job_becomes_a_workflow_and_a_schedule() -> None:
    code, (workflow, schedule), error = run(CRON_JOB)
    assert code == 0, error
    (activity,) = workflow["spec"]["activities"]
    assert activity["podTemplate"]["spec"] == {
        "containers": [{"name": "main", "image": "report:1"}],
        "automountServiceAccountToken": True,
        "securityContext": {"runAsNonRoot": False},
    }
    assert activity["retryPolicy"]["exponential"]["maximumAttempts"] == 3
    assert schedule["metadata"] == {"name": "report", "namespace": "shop"}
    assert schedule["spec"] == {
        "cron": ["30 2 * * 1-5"],
        "timeZone": "Europe/Berlin",
        "overlapPolicy": "Skip",
        "paused": True,
        "successfulRunsHistoryLimit": 5,
        "failedRunsHistoryLimit": 1,
        "catchupWindow": "3m20s",
        "catchupPolicy": "Latest",
        "workflowRunTemplate": {"spec": {"workflow": {"name": "report"}}},
    }


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"serviceAccountName": "reporter"}, {"securityContext": {"runAsNonRoot": False}}),
        ({"automountServiceAccountToken": False}, {"securityContext": {"runAsNonRoot": False}}),
        ({"securityContext": {"runAsUser": 7}}, {"automountServiceAccountToken": True}),
        (
            {"securityContext": {"fsGroup": 5}},
            {"automountServiceAccountToken": True, "securityContext": {"fsGroup": 5, "runAsNonRoot": False}},
        ),
    ],
)
def test_a_cron_jobs_pod_keeps_its_user_and_its_token(fields: Any, kept: Any) -> None:
    main = {"containers": [{"name": "main", "image": "report:1"}]}
    workflow, _ = convert(changed(CRON_JOB, "spec.jobTemplate.spec.template.spec", {**main, **fields}), "f")
    assert workflow["spec"]["activities"][0]["podTemplate"]["spec"] == {**main, **fields, **kept}


def test_labels_and_annotations_of_a_cron_job_are_kept() -> None:
    manifest = changed(CRON_JOB, "metadata.labels", {"team": "a"})
    manifest = changed(
        manifest, "metadata.annotations", {"b": "c", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    )
    manifest = changed(manifest, "metadata.uid", "u")
    manifest = changed(manifest, "spec.jobTemplate.metadata", {"labels": {"of": "job"}, "creationTimestamp": None})
    code, made, error = run(manifest)
    assert code == 0, error
    want = {"name": "report", "namespace": "shop", "labels": {"team": "a"}, "annotations": {"b": "c"}}
    assert [each["metadata"] for each in made] == [want, want]
    assert made[1]["spec"]["workflowRunTemplate"]["metadata"] == {"labels": {"of": "job"}}


def test_a_job_without_a_deadline_has_no_limit() -> None:
    """It had one of a day, for all attempts."""
    code, (workflow, _), error = run(changed(CRON_JOB, "spec.jobTemplate.spec.activeDeadlineSeconds", None))
    assert code == 0, error
    assert workflow["spec"]["activities"][0]["scheduleToCloseTimeout"] == "365d"


def test_labels_and_annotations_of_a_cron_workflow_are_kept() -> None:
    metadata = {"name": "sync", "labels": {"team": "a"}, "annotations": {"b": "c"}}
    code, (schedule,), error = run({**CRON_WORKFLOW, "metadata": metadata})
    assert code == 0, error
    assert schedule["metadata"] == metadata


def test_a_cron_workflow_becomes_a_schedule() -> None:
    code, (schedule,), error = run(CRON_WORKFLOW)
    assert code == 0, error
    assert schedule["spec"]["cron"] == ["*/5 * * * *", "0 3 * * *"]
    assert schedule["spec"]["overlapPolicy"] == "TerminateOther"
    assert schedule["spec"]["catchupWindow"] == "10s"
    assert schedule["spec"]["workflowRunTemplate"]["spec"] == {"workflow": {"name": "sync"}, "input": {"depth": "3"}}


def test_a_schedule_of_temporal_becomes_one_of_ours() -> None:
    code, (schedule,), error = run(TEMPORAL)
    assert code == 0, error
    spec = schedule["spec"]
    assert schedule["metadata"]["name"] == "nightly-report"
    assert spec["calendars"] == [
        {"dayOfMonth": "*", "month": "*", "dayOfWeek": "1-5", "hour": "2", "minute": "30", "second": "0"}
    ]
    assert spec["intervals"] == [{"every": "1h", "offset": "5m"}]
    assert spec["daylightSaving"] == {"skipped": "Skip", "repeated": "Both"}
    assert (spec["overlapPolicy"], spec["catchupWindow"], spec["remainingActions"]) == ("BufferOne", "365d", 7)
    assert spec["workflowRunTemplate"]["spec"] == {
        "workflow": {"type": "Report", "taskQueue": "reports"},
        "workflowId": "report",
        "input": {"a": 1},
    }


def encoded(data: str, **metadata: str) -> dict[str, Any]:
    """A payload in the JSON of protobuf."""
    texts = {"encoding": "json/plain", **metadata}
    return {
        "metadata": {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()},
        "data": base64.b64encode(data.encode()).decode(),
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["A-1", 7, None],  # as `temporal` writes them
        {"payloads": [encoded('"A-1"'), encoded("7"), encoded("null")]},
    ],
)
def test_several_arguments_of_a_temporal_schedule_stay_several(arguments: Any) -> None:
    """Issue 44, C 3: `schedule import` refused them."""
    code, (schedule,), error = run(changed(TEMPORAL, "schedule.action.startWorkflow.input", arguments))
    assert code == 0, error
    want = {"payloads": [{"json": "A-1"}, {"json": 7}, {"json": None}]}
    assert schedule["spec"]["workflowRunTemplate"]["spec"]["input"] == want


def test_a_payload_that_is_not_plain_json_keeps_its_bytes() -> None:
    secret = encoded("secret", encoding="binary/encrypted")
    code, (schedule,), error = run(changed(TEMPORAL, "schedule.action.startWorkflow.input", {"payloads": [secret]}))
    assert code == 0, error
    want = {"metadata": {"encoding": "binary/encrypted"}, "data": secret["data"]}
    assert schedule["spec"]["workflowRunTemplate"]["spec"]["input"] == {"payloads": [want]}


@pytest.mark.parametrize("short", [False, True])
def test_the_memo_of_a_temporal_schedule_and_the_options_of_its_runs_are_kept(short: bool) -> None:
    """Issue 44, C 3: `schedule import` refused memos. The frontend and the runs of the Schedule read them again."""
    memo = {"team": "accounts"} if short else {"fields": {"team": encoded('"accounts"')}}
    attributes = {
        "indexedFields": {"Customer": encoded('"C-7"', type="Keyword"), "Rate": encoded("0.5", type="Double")}
    }
    manifest = {**TEMPORAL, "memo": memo}
    manifest = changed(manifest, "schedule.action.startWorkflow.memo", memo)
    manifest = changed(manifest, "schedule.action.startWorkflow.searchAttributes", attributes)
    manifest = changed(manifest, "schedule.action.startWorkflow.userMetadata", {"summary": encoded('"in short"')})
    manifest = changed(manifest, "schedule.action.startWorkflow.priority", {"priorityKey": 2})
    code, (schedule,), error = run(manifest)
    assert code == 0, error
    assert schedule["spec"]["workflowRunTemplate"]["spec"]["searchAttributes"] == {
        "Customer": "C-7",
        "Rate": {"type": "Double", "value": "0.5"},
    }
    described = messages.described({**schedule, "metadata": {"namespace": "default", **schedule["metadata"]}})
    start = described.action.start_workflow
    assert start.memo.fields["team"].data == b'"accounts"'
    assert start.user_metadata.summary.data == b'"in short"'
    assert start.priority.priority_key == 2
    assert start.search_attributes.indexed_fields["Rate"].data == b"0.5"
    kept = messages.memo(schedule)
    assert kept is not None
    assert kept.fields["team"].data == b'"accounts"'


@pytest.mark.parametrize(
    ("manifest", "path", "value", "want"),
    [
        (CRON_JOB, "spec.schedule", "0 25 * * *", "-: spec.cron[0]: `0 25 * * *`: `hour` is `25`"),
        (CRON_JOB, "spec.jobTemplate.spec.parallelism", 4, "spec.jobTemplate.spec.parallelism"),
        (CRON_JOB, "spec.jobTemplate.spec.podFailurePolicy", {"rules": [1]}, "podFailurePolicy: has no equivalent"),
        (CRON_JOB, "spec.jobTemplate.spec.activeDeadlineSeconds", 0, "ends a Job when it starts; remove it"),
        (CRON_JOB, "spec.jobTemplate.spec.template.spec.securityContext", "root", "securityContext: must be a map"),
        (CRON_JOB, "spec.concurrencyPolicy", "Maybe", "must be Allow, Forbid or Replace"),
        (CRON_JOB, "spec.jobTemplate.spec.completionMode", "Indexed", "the pods of an activity have no index"),
        (CRON_JOB, "spec.jobTemplate.spec.template.spec.restartPolicy", "Always", "must be Never or OnFailure"),
        (CRON_JOB, "spec.jobTemplate.meta", {"a": "b"}, "spec.jobTemplate.meta: has no equivalent"),
        (CRON_JOB, "spec.jobTemplate.metadata.finalizers", ["x"], "jobTemplate.metadata.finalizers: has no equivalent"),
        (CRON_JOB, "specs", {"a": "b"}, "specs: has no equivalent"),
        (CRON_WORKFLOW, "spec.workflowSpec.entrypoint", "x", "spec.workflowSpec.entrypoint: has no equivalent"),
        (CRON_WORKFLOW, "spec.workflowSpec.serviceAccountName", "x", "serviceAccountName: has no equivalent"),
        (CRON_JOB, "kind", "Job", "must be a CronJob, a CronWorkflow"),
        (CRON_WORKFLOW, "spec.when", "{{=true}}", "put the condition into the workflow"),
        (
            CRON_WORKFLOW,
            "spec.stopStrategy",
            {"expression": "failed >= 3"},
            "stopStrategy: `failed >= 3` has no equivalent",
        ),
        (CRON_WORKFLOW, "spec.stopStrategy", {"more": 1}, "stopStrategy.more: has no equivalent"),
        (CRON_WORKFLOW, "spec.workflowSpec", {"templates": []}, "Argo steps are not converted"),
        (TEMPORAL, "schedule.policies.overlapPolicy", "NEW", "is not supported"),
        (TEMPORAL, "schedule.action.startWorkflow.memo", 1, "memo: must be a map with the fields of `memo`"),
        (TEMPORAL, "schedule.action.startWorkflow.versioningOverride", {"autoUpgrade": True}, "has no equivalent"),
        (TEMPORAL, "schedule.action", {}, "must be set"),
        (
            TEMPORAL,
            "schedule.action.startWorkflow",
            "x",
            "schedule.action.startWorkflow: must be a map with the fields",
        ),
        (
            TEMPORAL,
            "schedule.action.startWorkflow.taskQueue",
            None,
            "startWorkflow.taskQueue.name: must be set; name",
        ),
        (TEMPORAL, "schedule.spec.interval", ["1h"], "schedule.spec.interval[0]: must be a map with the fields"),
        (TEMPORAL, "schedule.spec.interval", [{"interval": "soon"}], "interval[0].interval: must be a duration in"),
        (TEMPORAL, "schedule.spec.interval", [{"phase": "1s"}], "interval[0].interval: must be set; write"),
        (TEMPORAL, "schedule.spec.cronString", "0 * * * *", "cronString: must be a list, not `0 * * * *`; write it in"),
        (TEMPORAL, "schedule.state.remainingActions", "many", "remainingActions: must be a whole number from 0"),
        (TEMPORAL, "scheduleId", "???", "scheduleId: `???` has no characters that are valid in a name; use --name"),
        (CRON_JOB, "spec.jobTemplate.spec.backoffLimit", "x", "backoffLimit: must be a whole number from 0 to"),
        (CRON_JOB, "spec.suspend", "yes", "spec.suspend: must be true or false, not `yes`"),
        (CRON_JOB, "spec.timeZone", 1, "spec.timeZone: must be a string, not `1`; write it in quotes"),
        (CRON_JOB, "spec.jobTemplate.spec.template.spec.containers", [], "containers: an activity has one container"),
        (CRON_JOB, "metadata.name", None, "metadata.name: must be set; set it, or use --name"),
        (CRON_JOB, "items", ["x"], "items: has no equivalent"),
        (CRON_WORKFLOW, "spec.schedules", [1], "spec.schedules: must be a list of strings, not `[1]`"),
        (
            CRON_WORKFLOW,
            "spec.workflowSpec.arguments.parameters",
            [{"value": "3"}],
            "arguments.parameters[0].name: must be set; name the parameter",
        ),
        (
            CRON_WORKFLOW,
            "spec.workflowSpec.arguments.parameters",
            [{"name": "a", "valueFrom": {"expression": "1"}}],
            "parameters[0].valueFrom: has no equivalent",
        ),
    ],
)
def test_a_field_without_an_equivalent_is_rejected_by_name(
    manifest: dict[str, Any], path: str, value: Any, want: str
) -> None:
    code, _, error = run(changed(manifest, path, value))
    assert code == 2
    assert want in " ".join(error.split())


@pytest.mark.parametrize(
    ("ranges", "want"),
    [
        ([{"start": 3, "step": 5}], "3"),
        ([{"start": 3, "end": 1}], "3"),
        ([{"start": 3, "end": 3, "step": 5}], "3"),
        ([{"start": 3, "end": 20, "step": 5}], "3-20/5"),
        ([{}, {"start": 7, "end": 9}], "0,7-9"),
        ([{"end": 23}], "*"),
        ([{"end": 23, "step": 2}], "0-23/2"),
    ],
)
def test_a_range_of_temporal_without_an_end_is_its_start(ranges: list[dict[str, int]], want: str) -> None:
    calendar = {**TEMPORAL["schedule"]["spec"]["structuredCalendar"][0], "hour": ranges}
    _, (schedule,), error = run(changed(TEMPORAL, "schedule.spec.structuredCalendar", [calendar]))
    assert schedule["spec"]["calendars"][0]["hour"] == want, error


@pytest.mark.parametrize("field", ["second", "minute", "hour", "dayOfMonth", "month", "dayOfWeek"])
@pytest.mark.parametrize("empty", [[], None])
def test_an_empty_range_field_is_rejected_because_it_matches_nothing_in_temporal(
    field: str, empty: list[Any] | None
) -> None:
    calendar = {**TEMPORAL["schedule"]["spec"]["structuredCalendar"][0], field: empty}
    for place in ("structuredCalendar", "excludeStructuredCalendar"):
        code, _, error = run(changed(TEMPORAL, f"schedule.spec.{place}", [calendar]))
        assert code == 2
        assert f"schedule.spec.{place}[0].{field}: is empty, which matches nothing" in error


def test_a_string_calendar_has_the_defaults_of_temporal() -> None:
    reported = {"second": "0", "minute": "0", "hour": "0", "dayOfMonth": "*", "month": "*", "dayOfWeek": "*"}
    manifest = changed(TEMPORAL, "schedule.spec.structuredCalendar", [])
    manifest = changed(manifest, "schedule.spec.calendar", [{"hour": "6", "minute": ""}, {}])
    manifest = changed(manifest, "schedule.spec.excludeCalendar", [{"month": "12", "year": "2026", "comment": "c"}])
    _, (schedule,), error = run(manifest)
    assert schedule["spec"]["calendars"] == [reported | {"hour": "6"}, reported], error
    assert schedule["spec"]["exclude"] == [reported | {"month": "12", "year": "2026", "comment": "c"}]


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """All paths in a manifest."""
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in entries:
        yield from places(each, (*path, key))


ODD = st.recursive(
    st.sampled_from([None, True, "", "x", "-1s", "99999999999s", "²", "0", 0, -1, 10**30, 0.5, math.nan, math.inf]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "start", "x"]), inner, max_size=2),
    max_leaves=3,
)  # fmt: skip


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_manifest_is_rejected_with_one_sentence(data: st.DataObject) -> None:
    manifest = json.loads(json.dumps(data.draw(st.sampled_from([CRON_JOB, CRON_WORKFLOW, TEMPORAL, WRITTEN]))))
    for _ in range(data.draw(st.integers(1, 2))):
        *parents, last = data.draw(st.sampled_from(list(places(manifest))[1:]))
        at = functools.reduce(operator.getitem, parents, manifest)
        at[last] = data.draw(ODD)
    reported, made = "", []
    try:
        made = convert(manifest, "f.json")
    except UnsupportedScheduleError as error:
        reported = str(error)
    assert reported.startswith("f.json: ") if reported else list(yaml.safe_load_all(yaml.safe_dump_all(made)))


def test_texts_remain_texts_for_kubectl() -> None:
    """Such as an annotation `y`, which kubectl reads as a boolean, and an argument `1e3`, which it reads as a number."""
    manifest = changed(CRON_JOB, "metadata.annotations", {"wanted": "y"})
    manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"] = [
        "1e3",
        "0o17",
        "no",
        "12:30",
    ]
    result = perdure("schedule", "import", "-f", "-", stdin=json.dumps(manifest))
    workflow, _ = yaml.load_all(result.stdout, Loader=Loader)
    assert workflow["metadata"]["annotations"] == {"wanted": "y"}
    (container,) = workflow["spec"]["activities"][0]["podTemplate"]["spec"]["containers"]
    assert container["args"] == ["1e3", "0o17", "no", "12:30"]


def test_each_object_of_a_list_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [CRON_JOB, CRON_WORKFLOW]}))
    result = perdure("schedule", "import", "-f", str(file))
    assert [each["kind"] for each in yaml.safe_load_all(result.stdout)] == ["Workflow", "Schedule", "Schedule"]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("0 0 13 * 5", ["0 0 13 * *", "0 0 * * 5"]),
        ("TZ=Asia/Tokyo 0 0 1,15 * Mon", ["TZ=Asia/Tokyo 0 0 1,15 * *", "TZ=Asia/Tokyo 0 0 * * Mon"]),
        ("0 0 */2 * 1-5", ["0 0 */2 * *", "0 0 * * 1-5"]),
        ("0 0 13 * *", ["0 0 13 * *"]),
        ("0 0 ? * 5", ["0 0 ? * 5"]),
        ("0 0 1,* * 5", ["0 0 1,* * 5"]),
        ("@daily", ["@daily"]),
    ],
)
def test_a_cron_line_with_both_day_fields_becomes_two_lines(line: str, want: list[str]) -> None:
    manifest = changed(CRON_JOB, "spec.schedule", line)
    del manifest["spec"]["timeZone"]
    code, made, error = run(manifest)
    assert code == 0, error
    assert made[-1]["spec"]["cron"] == want
    code, (schedule,), error = run(changed(changed(CRON_WORKFLOW, "spec.schedules", [line]), "spec.timezone", None))
    assert code == 0, error
    assert schedule["spec"]["cron"] == want


def test_a_stop_strategy_of_argo_becomes_pause_on_failure() -> None:
    _, (schedule,), error = run(changed(CRON_WORKFLOW, "spec.stopStrategy", {"expression": "cronworkflow.failed >= 1"}))
    assert schedule["spec"]["pauseOnFailure"] is True, error


@pytest.mark.parametrize(("number", "want"), [(600, "10m"), (3600, "1h"), (90_061, "1d1h1m1s"), (5, "10s")])
def test_durations_use_the_largest_units(number: int, want: str) -> None:
    _, made, error = run(changed(CRON_JOB, "spec.startingDeadlineSeconds", number))
    assert made[-1]["spec"]["catchupWindow"] == want, error


def test_zero_jitter_is_omitted() -> None:
    _, (schedule,), error = run(changed(TEMPORAL, "schedule.spec.jitter", "0s"))
    assert "jitter" not in schedule["spec"], error


def test_the_schedule_id_becomes_the_name_unless_another_is_given() -> None:
    assert run(changed(TEMPORAL, "scheduleId", "Reports/By Night_1"))[1][0]["metadata"]["name"] == "reports-by-night-1"
    without = changed(TEMPORAL, "scheduleId", None)
    _, (schedule,), error = run(without, "--name", "nightly")
    assert (schedule["metadata"]["name"], error) == ("nightly", "")
    del without["schedule"]["action"]["startWorkflow"]["workflowId"]
    code, made, error = run(without)
    assert (code, made) == (2, [])
    assert error.startswith("Error: -: scheduleId: must be set")
    assert error.endswith("set the name of the Schedule with --name\n")
    workflow, schedule = run(CRON_JOB, "--name", "other")[1]
    assert (workflow["metadata"]["name"], schedule["metadata"]["name"]) == ("other", "other")
    assert schedule["spec"]["workflowRunTemplate"]["spec"]["workflow"]["name"] == "other"


def test_one_name_for_several_schedules_is_rejected() -> None:
    code, _, error = run({"apiVersion": "v1", "kind": "List", "items": [CRON_JOB, CRON_WORKFLOW]}, "--name", "a")
    assert (code, "the same name" in error) == (2, True)


def test_a_missing_file_is_reported_without_mentioning_scenarios() -> None:
    result = perdure("schedule", "import", "-f", "nope.yaml")
    assert result.exit_code == 2
    assert "scenario" not in result.stderr
