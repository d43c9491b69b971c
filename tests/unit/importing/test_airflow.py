"""DAGs of Airflow, from their serialized JSON.

`airflow/load-2.11.json` and `airflow/load-3.3.json` are one DAG, as Airflow 2.11 and 3.3 serialize it (`airflow/load.py`). How
trigger rules go is compared with Airflow's own code in fidelity/airflow.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from perdure.cli.files.conversion import convert_files
from perdure.importing.airflow import manifests as airflow
from unit.importing.imported import Json, Result, inputs

FOLDER: Final = Path(__file__).parent / "airflow"
NOT_SERIALIZED: Final = "Airflow does not serialize `service_account_name`"


def imported(folder: Path, dag: Json, version: int = 3) -> Result:
    """Import a DAG; `simulate` plays its Workflow."""
    source, file = folder / "dag.json", folder / "imported.yaml"
    source.write_text(json.dumps({"__version": version, "dag": dag}))
    made = convert_files([str(source)], airflow.KINDS, airflow.convert, accepts=airflow.is_dag)
    manifests = list(yaml.safe_load_all(made.text))
    file.write_text("---\n".join(yaml.safe_dump(each) for each in manifests if each["kind"] != "Schedule"))
    return Result(file, manifests, made.sentences, made.complete)


def pod(name: str, *after: str, **fields: Any) -> tuple[Json, tuple[str, ...]]:
    """A task of Airflow 3 with a pod, and the tasks before it."""
    given = {
        "task_id": name,
        "task_type": "KubernetesPodOperator",
        "image": "etl",
        "cmds": ["work"],
        "do_xcom_push": False,
    }
    return {"__var": {**given, **fields}, "__type": "operator"}, after


def dag(*tasks: tuple[Json, tuple[str, ...]], **fields: Any) -> Json:
    """A DAG of some tasks."""
    for task, _ in tasks:
        name = task["__var"]["task_id"]
        task["__var"]["downstream_task_ids"] = [each["__var"]["task_id"] for each, after in tasks if name in after]
    return {"dag_id": "my_dag", "timetable": {}, "tasks": [each for each, _ in tasks], **fields}


def only_notes(made: Result) -> None:
    assert made.complete, made.sentences
    assert any(NOT_SERIALIZED in each for each in made.sentences)


@pytest.mark.parametrize(("file", "moment"), [("load-2.11", "previous"), ("load-3.3", "scheduled")])
def test_a_dag_of_both_versions(tmp_path: Path, file: str, moment: str) -> None:
    """They differ in the timetable: in Airflow 2, the logical date is where the data interval starts."""
    data = json.loads((FOLDER / f"{file}.json").read_text())
    made = imported(tmp_path, data["dag"], data["__version"])
    only_notes(made)
    limit, workflow, schedule = made.manifests
    assert (limit["kind"], limit["spec"]) == ("WorkflowLimit", {"capacity": 1})
    assert workflow["spec"]["stepsTimeout"] == "4h"
    assert workflow["spec"]["input"]["default"] == {"day": "2026-01-01"}
    spec = schedule["spec"]
    assert (spec["cron"], spec["timeZone"], spec["catchupPolicy"]) == (["30 2 * * *"], "Europe/Berlin", "Latest")
    expression = spec["workflowRunTemplate"]["spec"]["input"]["logical-date"]
    assert ("previousTime" in expression) == (moment == "previous")
    files = made.activity("files")
    (container,) = files["podTemplate"]["spec"]["containers"]
    assert container["env"] == [{"name": "DAY", "value": "${input.day}"}]
    assert container["resources"] == {"requests": {"cpu": "100m"}}
    assert files["startToCloseTimeout"] == "20m"
    assert files["retryPolicy"]["exponential"] == {
        "initialInterval": "30s",
        "backoffCoefficient": "1",
        "maximumAttempts": 3,
    }
    assert [each["name"] for each in files["podTemplate"]["spec"]["volumes"]] == ["d", "airflow-xcom"]
    report = made.simulate({"files": [{"output": ["a.csv"]}]}, input={"logical-date": "2026-03-04T01:30:00Z"})
    assert report["phase"] == "Completed"
    assert [len(report["attempts"][each]) for each in ("files", "load", "g-one", "done")] == [1, 2, 1, 1]
    read = next(each for each in inputs(report) if any("return-value" in key for key in each or {}))
    assert ["a.csv"] in read.values()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("{{ ds }}", "2026-03-04"),
        ("{{ds_nodash}} {{ ts_nodash }}", "20260304 20260304T013000"),
        ("{{ ts }}", "2026-03-04T01:30:00+00:00"),
        ("{{ params.day }}-{{ params['day'] }}-{{ dag_run.conf.get('day') }}", "mon-mon-mon"),
        ("{{ run_id }}", "my-dag"),
        ("{{ dag.dag_id }}/{{ task.task_id }}", "my_dag/a"),
        ("{{ ti.try_number }}", "1"),
        ("no {{ '' }} template", None),
        ("{% if x %}{% endif %}", None),
        ("{{ var.value.x }}", None),
        ("{{ macros.ds_add(ds, 1) }}", None),
        ("{{ ds | upper }}", None),
        ("{{ ti.xcom_pull(task_ids='none') }}", None),
    ],
)
def test_templates(tmp_path: Path, text: str, want: str | None) -> None:
    made = imported(tmp_path, dag(pod("a", arguments=[text]), params=[["day", {"__class": "Param", "default": "mon"}]]))
    if want is None:
        assert any("dag.tasks[0].arguments[0]: `" in each and "has no counterpart" in each for each in made.sentences)
        return
    only_notes(made)
    report = made.simulate(input={"logical-date": "2026-03-04T01:30:00Z"})
    (event,) = [each for each in report["events"] if each["eventType"] == "ActivityTaskScheduled"]
    (container,) = [made.activity("a").get("container") or made.activity("a")["podTemplate"]["spec"]["containers"][0]]
    assert rendered(container["args"][0], event.get("input") or {}) == want


def rendered(template: str, input_: Json) -> str:
    """The value of an argument of a container."""
    from perdure.language.expressions import compile_template  # noqa: PLC0415 - only here

    names = {"input": input_, "run": {"name": "my-dag"}, "attempt": 1}
    return str(compile_template(template, names=frozenset(names)).evaluate(names))


FAILS: Final[Json] = {"exitCode": 1}


@pytest.mark.parametrize(
    ("rule", "failing", "ran", "phase"),
    [
        ("all_success", [], "abc", "Completed"),
        ("all_success", ["a"], "ab", "Failed"),
        ("all_done", ["a"], "abc", "Completed"),
        ("all_done", ["a", "c"], "abc", "Failed"),
        ("one_failed", [], "ab", "Completed"),
        ("one_failed", ["b"], "abc", "Completed"),
        ("none_failed", ["b"], "ab", "Failed"),
        ("always", ["a"], "abc", "Completed"),
    ],
)
def test_trigger_rules(tmp_path: Path, rule: str, failing: list[str], ran: str, phase: str) -> None:
    """A run ends as its last tasks do."""
    made = imported(tmp_path, dag(pod("a"), pod("b"), pod("c", "a", "b", trigger_rule=rule)))
    assert made.complete, made.sentences
    report = made.simulate({name: [FAILS] for name in failing})
    assert "".join(sorted(report["attempts"])) == ran
    assert report["phase"] == phase


def test_a_mapped_task_runs_for_each_item(tmp_path: Path) -> None:
    values = {"type": "dict-of-lists", "value": {"__var": {"env_vars": [{"X": "1"}, {"X": "2"}]}, "__type": "dict"}}
    partial = {"image": "etl", "cmds": ["work"], "retries": 1, "trigger_rule": "all_done"}
    task = {"task_id": "m", "task_type": "KubernetesPodOperator", "_is_mapped": True, "do_xcom_push": False}
    made = imported(
        tmp_path,
        dag(({"__var": {**task, "expand_input": values, "partial_kwargs": partial}, "__type": "operator"}, ())),
    )
    only_notes(made)
    assert made.activity("m")["container"]["env"] == [{"name": "X", "value": "${input['item-0']}"}]
    assert inputs(made.simulate()) == [{"item-0": "1"}, {"item-0": "2"}]


@pytest.mark.parametrize(
    ("timetable", "fields", "want"),
    [
        (
            {"__type": "airflow.timetables.interval.DeltaDataIntervalTimetable", "__var": {"delta": 3600.0}},
            {"start_date": 1767222900.0},
            {"intervals": [{"every": "1h", "offset": "15m"}], "startTime": "2025-12-31T23:15:00Z"},
        ),
        (
            {
                "__type": "airflow.timetables.interval.CronDataIntervalTimetable",
                "__var": {"expression": "0 0 13 * 5", "timezone": "UTC"},
            },
            {"catchup": True, "is_paused_upon_creation": True, "end_date": 1767222000.0},
            {
                "cron": ["0 0 13 * *", "0 0 * * 5"],
                "catchupPolicy": "All",
                "paused": True,
                "endTime": "2025-12-31T23:00:00Z",
            },
        ),
        (
            {
                "__type": "airflow.timetables.trigger.MultipleCronTriggerTimetable",
                "__var": {"expressions": ["0 1 * * *", "0 13 * * *"], "timezone": "Europe/Berlin", "interval": 0.0},
            },
            {},
            {"cron": ["0 1 * * *", "0 13 * * *"], "timeZone": "Europe/Berlin"},
        ),
    ],
)
def test_timetables(tmp_path: Path, timetable: Json, fields: Json, want: Json) -> None:
    made = imported(tmp_path, dag(pod("a"), **fields, timetable=timetable))
    only_notes(made)
    spec = made.manifests[-1]["spec"]
    assert {key: spec[key] for key in want} == want


def test_a_version_of_another_type_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "dag.json"
    file.write_text(json.dumps({"__version": {}, "dag": dag(pod("a"))}))
    made = convert_files([str(file)], airflow.KINDS, airflow.convert, accepts=airflow.is_dag)
    assert any("__version: must be 1, 2, or 3" in each for each in made.sentences)


def test_a_task_that_does_nothing_has_no_attempts(tmp_path: Path) -> None:
    """Though it has the `default_args` of the DAG."""
    fields = {"retries": 3, "retry_delay": 60.0, "retry_exponential_backoff": True, "max_retry_delay": 600.0}
    task: Json = {"task_id": "a", "task_type": "EmptyOperator", "execution_timeout": 60.0, **fields}
    made = imported(tmp_path, dag(({"__var": task, "__type": "operator"}, ())))
    only_notes(made)


def test_a_limit_of_mapped_tasks(tmp_path: Path) -> None:
    values = {"type": "dict-of-lists", "value": {"__var": {"arguments": [["a"], ["b"]]}, "__type": "dict"}}
    task = pod("a", expand_input=values, max_active_tis_per_dagrun=2)
    made = imported(tmp_path, dag(task))
    only_notes(made)
    assert made.step("a")["forEach"]["maxConcurrency"] == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task_type": "BashOperator"}, "task_type: `BashOperator` is not imported: only a KubernetesPodOperator is"),
        ({"expand_input": {"type": "list-of-dicts", "value": []}}, "expand_input: only `expand` with one field"),
        (
            {"expand_input": {"type": "dict-of-lists", "value": {"arguments": {"task_id": "x", "key": "y"}}}},
            "expand_input.arguments: only values that are written out are imported",
        ),
    ],
)
def test_a_task_that_is_not_imported_fails(tmp_path: Path, fields: Json, message: str) -> None:
    """Also one whose XCom another task reads; the tasks after it do not run."""
    read = pod("b", "a", arguments=["{{ ti.xcom_pull(task_ids='a') }}"])
    made = imported(tmp_path, dag(pod("a", **fields), read))
    (reported,) = [each for each in made.sentences if "Not imported" in each]
    assert f"dag.tasks[0].{message}" in reported
    report = made.simulate()
    assert (report["phase"], report["failure"]["type"]) == ("Failed", "NotImported")
    assert report["attempts"] == {}


@pytest.mark.parametrize("kind", ["NullTimetable", "OnceTimetable"])
def test_a_dag_without_times_has_no_schedule(tmp_path: Path, kind: str) -> None:
    made = imported(tmp_path, dag(pod("a"), timetable={"__type": f"airflow.timetables.simple.{kind}", "__var": {}}))
    only_notes(made)
    assert [each["kind"] for each in made.manifests] == ["Workflow"]


@pytest.mark.parametrize(
    ("task", "fields", "path", "message"),
    [
        (pod("a", task_type="BashOperator"), {}, "dag.tasks[0].task_type", "`BashOperator` is not imported"),
        (pod("a", pool="p"), {}, "dag.tasks[0].pool", "write a WorkflowLimit"),
        (pod("a", end_date=2.0), {"end_date": 3.0}, "dag.tasks[0].end_date", "is not that of the DAG"),
        (
            pod("a", retries=1, retry_exponential_backoff="x"),
            {},
            "dag.tasks[0].retry_exponential_backoff",
            "must be true,",
        ),
        (
            pod("a"),
            {"timetable": {"__type": "x.MultipleCronTriggerTimetable", "__var": {"expressions": True}}},
            "dag.timetable",
            "must be a cron line",
        ),
        (pod("a", depends_on_past=True), {}, "dag.tasks[0].depends_on_past", "let the runs wait"),
        (pod("a", namespace="other"), {}, "dag.tasks[0].namespace", "pods run in the namespace of the run"),
        (pod("a", has_on_failure_callback=True), {}, "dag.tasks[0].has_on_failure_callback", "write it as a `catch`"),
        (pod("a", unknown=1), {}, "dag.tasks[0].unknown", "has no counterpart"),
        (pod("a"), {"deadline": [{"x": 1}]}, "dag.deadline", "write an alert"),
        (pod("a"), {"unknown": 1}, "dag.unknown", "has no counterpart"),
        (
            pod("a"),
            {"timetable": {"__type": "x.AssetTriggeredTimetable", "__var": {}}},
            "dag.timetable",
            "write a Schedule",
        ),
    ],
)
def test_what_has_no_counterpart_is_reported(
    tmp_path: Path, task: tuple[Json, tuple[str, ...]], fields: Json, path: str, message: str
) -> None:
    made = imported(tmp_path, dag(task, **fields))
    assert not made.complete
    assert any(f"Not imported: DAG/my_dag: {path}: " in each and message in each for each in made.sentences), (
        made.sentences
    )


def test_trigger_rules_that_argo_does_not_have_are_reported(tmp_path: Path) -> None:
    made = imported(tmp_path, dag(pod("a"), pod("b", "a", trigger_rule="one_success")))
    assert any("dag.tasks[1].trigger_rule: `one_success` has no counterpart" in each for each in made.sentences)
    after_skips = dag(pod("a"), pod("b", "a", trigger_rule="one_failed"), pod("c", "b", trigger_rule="none_failed"))
    made = imported(tmp_path, after_skips)
    assert any("dag.tasks[2].trigger_rule: a task before it, `b`, may be skipped" in each for each in made.sentences)


def test_an_xcom_that_is_read_is_returned(tmp_path: Path) -> None:
    pulls = "{{ ti.xcom_pull(task_ids='a') }}"
    made = imported(tmp_path, dag(pod("a", do_xcom_push=True), pod("b", "a", arguments=[pulls])))
    only_notes(made)
    assert made.simulate({"a": [{"output": "x"}]})["phase"] == "Completed"
    made = imported(tmp_path, dag(pod("a"), pod("b", "a", arguments=[pulls])))
    assert any(
        "dag.tasks[0].do_xcom_push: is false, but another task reads the XCom" in each for each in made.sentences
    )
    made = imported(tmp_path, dag(pod("a", do_xcom_push=True, cmds=[]), pod("b", "a", arguments=[pulls])))
    assert any("dag.tasks[0].cmds: must be set" in each for each in made.sentences)


def test_an_unknown_version_is_reported(tmp_path: Path) -> None:
    made = imported(tmp_path, dag(pod("a")), version=9)
    assert any("__version: must be 1, 2, or 3" in each for each in made.sentences)


@pytest.mark.parametrize(
    ("task", "fields", "path", "message"),
    [
        (pod("a", image=5), {}, "dag.tasks[0].image", "must be a string, not `5`"),
        (pod("a", arguments=[["x"]]), {}, "dag.tasks[0].arguments", "must be a list of strings"),
        (pod("a", retries="x"), {}, "dag.tasks[0].retries", "must be a whole number"),
        (pod("a", execution_timeout=-5), {}, "dag.tasks[0].execution_timeout", "must be a number of seconds, not `-5`"),
        (pod("a", retry_delay=1e300), {}, "dag.tasks[0].retry_delay", "must be a number of seconds"),
        (pod("a", volumes="[__import__('os')]"), {}, "dag.tasks[0].volumes[0]", "must be a map"),
        (pod("a"), {"timetable": [1]}, "dag.timetable", "must be a map, not `[1]`"),
        (pod("a"), {"params": [["a"]]}, "dag.params", "must be a list of names and values"),
        (pod("a"), {"start_date": 1e30}, "dag.start_date", "must be a number of seconds"),
        (pod("a"), {"dagrun_timeout": "4h"}, "dag.dagrun_timeout", "must be a number of seconds"),
        (({"__var": {}, "__type": "operator"}, ()), {}, "dag.tasks[0]", "must be a task with a `task_id`"),
    ],
)
def test_a_field_of_another_form_is_reported(
    tmp_path: Path, task: tuple[Json, tuple[str, ...]], fields: Json, path: str, message: str
) -> None:
    data = dag(pod("b"), **fields)
    data["tasks"].insert(0, task[0])
    made = imported(tmp_path, data)
    assert any(f"Not imported: DAG/my_dag: {path}: {message}" in each for each in made.sentences), made.sentences
