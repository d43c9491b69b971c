"""Converts DAGs of Airflow, from their serialized JSON, whose tasks are KubernetesPodOperators.

A DAG becomes a workflow of Argo, because both have the same tasks, conditions on the ends of others, and end as their last tasks
do; the import of Argo, which is compared with its controller, converts that. Its schedule becomes a Schedule.
"""

from typing import Any, Final

from perdure.api.labels import API_VERSION
from perdure.importing.airflow.jinja import LOGICAL_DATE
from perdure.importing.airflow.schedule import schedule
from perdure.importing.airflow.shapes import OF_DAG, check, seconds
from perdure.importing.airflow.tasks import Task, tasks_of
from perdure.importing.argo import manifests as argo
from perdure.importing.reader import ConvertedObject, Fields, Object, as_text, format_value
from perdure.importing.writer import valid_name

KINDS: Final = ("serialized DAGs",)
_VERSIONS: Final = frozenset({1, 2, 3})
_ENTRY: Final = "dag"
_DEFAULT_RUNS: Final = 16
"""How many runs of a DAG are active at the same time, and how many of its tasks, if it does not say so."""
_IGNORED: Final = (
    *("fileloc", "relative_fileloc", "task_group", "_task_group", "tags", "edge_info", "dag_dependencies", "timezone"),
    *("default_args", "_processor_dags_folder", "description", "doc_md", "owner_links", "default_view", "orientation"),
    *("dag_display_name", "_dag_display_property_value", "disable_bundle_versioning", "allowed_run_types"),
    *("rerun_with_latest_version", "access_control", "template_searchpath", "jinja_environment_kwargs"),
    *("max_consecutive_failed_dag_runs", "deadline", "has_on_success_callback", "fail_fast", "fail_stop"),
)
_WITH_EFFECT: Final = {
    "max_consecutive_failed_dag_runs": "set `pauseOnFailure` of the Schedule, which pauses after the first failure",
    "deadline": "write an alert; see docs/alerts.md",
    "has_on_success_callback": "write a last step, or `finally`; see docs/flows.md",
    "has_on_failure_callback": "write `onFailure`; see docs/flows.md",
    "fail_fast": "set `failurePolicy: CancelRunning` of the Workflow",
    "fail_stop": "set `failurePolicy: CancelRunning` of the Workflow",
    "template_searchpath": "write the text of the file into the field",
    "render_template_as_native_obj": "values have the types of JSON",
    "access_control": "set permissions with RBAC; see docs/permissions.md",
}
"""Fields with an effect that have no counterpart, and what to do instead."""


def is_dag(data: Any) -> bool:
    """Whether a document is a serialized DAG."""
    return isinstance(data, dict) and isinstance(data.get("dag"), dict)


def convert(documents: list[Object]) -> list[ConvertedObject]:
    """Convert all DAGs in some documents.

    Args:
        documents: Serialized DAGs, as `SerializedDAG.to_dict` of Airflow returns them.
    """
    converted = []
    for each in documents:
        data = each["dag"]
        of = ConvertedObject(f"DAG/{data.get('dag_id') or data.get('_dag_id') or '(no name)'}")
        version = each.get("__version")
        if not isinstance(version, int) or version not in _VERSIONS:
            of.report.gap(
                "__version", f"must be 1, 2, or 3, the versions of Airflow 2 and 3, not {format_value(version)}"
            )
        with of.conversion():
            _Conversion(Fields(data, "dag", of.report), of)
        converted.append(of)
    return converted


class _Conversion:
    """Converts one DAG."""

    def __init__(self, dag: Fields, done: ConvertedObject) -> None:
        self._dag = dag
        self._done = done
        check(dag, OF_DAG)
        id_ = dag.text("dag_id") or dag.text("_dag_id") or ""
        if not id_:
            dag.gap("dag_id", "must be set")
        dag.drop("dag_id", "_dag_id")
        self._name = valid_name(id_ or "imported").lower().replace("_", "-").strip("-")
        self._params = _params(dag.take("params", []))
        times = {name: dag.data.get(name) for name in ("start_date", "end_date")}
        timing = schedule(dag)
        tasks = tasks_of(dag, id_, times)
        self._workflow(tasks)
        for name, advice in _WITH_EFFECT.items():
            if dag.data.pop(name, None) not in (None, False, 0, [], {}, ""):
                dag.gap(name, f"has no counterpart; {advice}")
        dag.drop(*_IGNORED)
        dag.done({})
        if timing is not None:
            self._schedule(timing)

    def _workflow(self, tasks: list[Task]) -> None:
        """Add the Workflow: the DAG as a template of Argo, converted."""
        read = {name for each in tasks for name in each.templates.parameters}
        dated = any(each.templates.dated for each in tasks)
        pulled = {name for each in tasks for name in each.templates.pulled}
        parameters: list[Object] = [
            {"name": name, **({} if value is None else {"value": as_text(value)})}
            for name, value in self._params.items()
        ]
        parameters += [{"name": name} for name in sorted(read - self._params.keys())]
        if dated:
            parameters.append({"name": LOGICAL_DATE, "value": "{{workflow.creationTimestamp.RFC3339}}"})
        for each in tasks:
            each.returns(pulled)
        spec: Object = {
            "entrypoint": _ENTRY,
            "arguments": {"parameters": parameters},
            "parallelism": self._dag.take("max_active_tasks", self._dag.take("_max_active_tasks", _DEFAULT_RUNS)),
            "templates": [each.template for each in tasks],
        }
        spec["templates"].append({"name": _ENTRY, "dag": {"tasks": [each.call for each in tasks]}})
        limit = self._dag.take("dagrun_timeout")
        if limit is not None:
            spec["activeDeadlineSeconds"] = max(1, round(seconds(limit) or 0))
        runs = self._dag.take("max_active_runs", _DEFAULT_RUNS)
        limited = isinstance(runs, int) and runs != _DEFAULT_RUNS and runs > 0
        if limited:
            semaphore = {"configMapKeyRef": {"name": self._name, "key": self._name}}
            spec["synchronization"] = {"semaphores": [semaphore]}
        sizes = {"kind": "ConfigMap", "metadata": {"name": self._name}, "data": {self._name: str(runs)}}
        template = {"kind": "WorkflowTemplate", "metadata": {"name": self._name}, "spec": spec}
        (made,) = [each for each in argo.convert([template, *([sizes] if limited else [])]) if each.manifests]
        for i, task in enumerate(tasks):
            made.report.move(f"spec.templates[{i}]", task.path)
            made.report.move(f"spec.templates[{len(tasks)}].dag.tasks[{i}]", task.path)
        limits = {valid_name(task.call["name"]): task.concurrency for task in tasks if task.concurrency}
        for step in [step for each in made.manifests for step in each["spec"].get("steps", []) if "forEach" in step]:
            loop, limit = step["forEach"], limits.get(step["name"])
            if limit:
                loop["maxConcurrency"] = min(limit, loop.get("maxConcurrency", limit))
        self._done.manifests += made.manifests
        missing = {
            task.path for task in tasks if not task.is_imported
        }  # what they lack is reported in the terms of Airflow
        for gap in made.report.gaps:
            if gap.path not in missing:
                self._done.report.gap(gap.path, gap.message)
        for note in made.report.notes:
            self._done.report.note(note.path, note.message)
        self._dated = dated

    def _schedule(self, timing: Object) -> None:
        """Add the Schedule."""
        moment = timing.pop("moment")
        run: Object = {"workflow": {"name": self._name}}
        if self._dated:
            run["input"] = {LOGICAL_DATE: "${" + moment + "}"}
        spec = {**timing, "workflowRunTemplate": {"spec": run}}
        manifest = {"apiVersion": API_VERSION, "kind": "Schedule", "metadata": {"name": self._name}, "spec": spec}
        self._done.manifests.append(manifest)


def _params(params: Any) -> Object:
    """Return the parameters of a DAG, and their defaults; None for one without."""
    found: Object = {}
    for each in params.items() if isinstance(params, dict) else params:
        name, value = each
        found[str(name)] = value.get("default") if isinstance(value, dict) and "__class" in value else value
    return found
