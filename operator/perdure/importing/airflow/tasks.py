"""Converts the tasks of a DAG of Airflow to tasks of a DAG of Argo, and their KubernetesPodOperators to templates.

Airflow's serialized form has only the templated fields of an operator. What it leaves out is named in a note for each task.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.importing.airflow.jinja import RESULT, Templates
from perdure.importing.airflow.shapes import OF_TASK, check, seconds
from perdure.importing.reader import Fields, Object, as_text, format_value
from perdure.importing.writer import Names

_POD: Final = "KubernetesPodOperator"
_EMPTY: Final = "EmptyOperator"
_XCOM: Final = "/airflow/xcom"
_OF_ATTEMPTS: Final = ("retries", "retry_delay", "retry_exponential_backoff", "max_retry_delay", "execution_timeout")
"""Fields without an effect on a task that does nothing."""
_RETRY_DELAY: Final = 300
"""The default of `retry_delay`, in seconds."""
_NOT_SERIALIZED: Final = (
    "Airflow does not serialize `service_account_name`, `tolerations`, `affinity`, `security_context`, "
    "`container_security_context`, `secrets`, `init_containers`, `image_pull_policy`, `image_pull_secrets`, `full_pod_spec`, "
    "`hostnetwork`, `dnspolicy`, `schedulername`, `skip_on_exit_code`, and callbacks: if a task has one, set it in its activity"
)
_IGNORED: Final = (
    *("template_fields", "template_fields_renderers", "template_ext", "params", "_task_module", "_needs_expansion"),
    *(
        "_is_mapped",
        "_expand_input_attr",
        "_disallow_kwargs_override",
        "_log_config_logger_name",
        "ui_color",
        "ui_fgcolor",
    ),
    *("owner", "start_date", "end_date", "doc", "doc_md", "doc_json", "doc_yaml", "doc_rst", "operator_extra_links"),
    *("_operator_extra_links", "_operator_name", "name", "labels_", "base_container_name", "start_from_trigger"),
    *(
        "start_trigger_args",
        "trigger_kwargs",
        "weight_rule",
        "has_retry_policy",
        "_is_empty",
        "is_setup",
        "is_teardown",
    ),
    *("on_failure_fail_dagrun", "downstream_task_ids", "_downstream_task_ids", "label", "_can_skip_downstream"),
    *("_is_sensor", "subdag", "_task_display_property_value", "task_display_name", "_task_display_name", "queue"),
    *("executor", "executor_config", "resources", "run_as_user", "allow_nested_operators", "multiple_outputs"),
    *("_logger_name", "_pre_execute_hook", "_post_execute_hook", "inlets", "outlets", "render_template_as_native_obj"),
    *("depends_on_past", "wait_for_downstream", "pool", "pool_slots", "priority_weight", "email", "email_on_failure"),
    *("email_on_retry", "sla", "max_active_tis_per_dag", "ignore_first_depends_on_past"),
    *("wait_for_past_depends_before_skipping", "kubernetes_conn_id", "config_file", "cluster_context", "namespace"),
    *("pod_template_file", "pod_template_dict", "hostname", "has_on_execute_callback", "has_on_failure_callback"),
    *("has_on_success_callback", "has_on_retry_callback", "has_on_skipped_callback"),
)
_DEFAULTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "pool": ("default_pool",),
    "pool_slots": (1,),
    "priority_weight": (1,),
    "email_on_failure": (True,),
    "email_on_retry": (True,),
    "kubernetes_conn_id": ("kubernetes_default",),
    "queue": ("default",),
}
"""Values that have no effect."""
_WITH_EFFECT: Final = {
    "depends_on_past": "let the runs wait for each other; see docs/workflow-limits.md",
    "wait_for_downstream": "let the runs wait for each other; see docs/workflow-limits.md",
    "pool": "write a WorkflowLimit, and `limits` of the activity; see docs/workflow-limits.md",
    "pool_slots": "a use of a WorkflowLimit is one of its capacity",
    "priority_weight": "set the `priority` of the run",
    "sla": "write an alert; see docs/alerts.md",
    "email": "write an alert, or a handler that sends the message",
    "max_active_tis_per_dag": "write a WorkflowLimit, and `limits` of the activity",
    "executor_config": "set it in the `podTemplate` of the activity",
    "kubernetes_conn_id": "pods run in the cluster and the namespace of the run",
    "config_file": "pods run in the cluster and the namespace of the run",
    "cluster_context": "pods run in the cluster and the namespace of the run",
    "namespace": "pods run in the namespace of the run",
    "pod_template_file": "write its content into the `podTemplate` of the activity",
    "pod_template_dict": "write it into the `podTemplate` of the activity",
    "hostname": "set it in the `podTemplate` of the activity",
    "is_setup": "write it as the first step",
    "is_teardown": "write it into `finally`; see docs/flows.md",
    "has_on_execute_callback": "write it as `onStart` of the step; see docs/flows.md",
    "has_on_failure_callback": "write it as a `catch` of the step; see docs/flows.md",
    "has_on_success_callback": "write it as `onEnd` of the step; see docs/flows.md",
    "has_on_retry_callback": "write an alert; see docs/alerts.md",
    "has_on_skipped_callback": "write a step with `when`",
    "outlets": "send a signal, or call a Webhook, from the container",
    "inlets": "pass what the task reads in its input",
}
"""Fields with an effect that have no counterpart, and what to do instead."""
_ENDS: Final = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted")
_SNAKE: Final = re.compile(r"_([a-z])")
_EXPANDED: Final = ("arguments", "cmds", "env_vars", "image")
"""The fields over which a task can be expanded."""
_MARK: Final = "\x02"
"""Stands around the name of an item in a text: its tag would be read as a template."""
_MARKED: Final = re.compile(f"{_MARK}([-a-z0-9]+){_MARK}")


@dataclass
class Task:
    """A task, as one of Argo."""

    path: str
    template: Object
    """Its template."""
    call: Object
    """The task in the DAG."""
    templates: Templates
    id: str
    pushes: bool = False
    """Whether it has an XCom, if another task reads it."""
    is_imported: bool = True
    """Whether its template has something to run. Otherwise it becomes a step that fails."""
    concurrency: int | None = None
    """How many of its mapped tasks run at the same time, if that is limited."""
    source: Fields = field(kw_only=True)

    def returns(self, pulled: set[str]) -> None:
        """Let the task return its XCom, if others read it."""
        if self.id not in pulled:
            return
        if not self.is_imported:
            self.template["outputs"] = {"parameters": [{"name": RESULT}]}
            return
        if not self.pushes:
            self.source.gap("do_xcom_push", "is false, but another task reads the XCom; let the container write it")
            return
        if not self.template["container"].get("command"):
            self.source.gap("cmds", "must be set, because a shell starts the command and returns the XCom")
        value = {"path": f"{_XCOM}/return.json", "default": ""}
        self.template["outputs"] = {"parameters": [{"name": RESULT, "valueFrom": value}]}


def tasks_of(dag: Fields, id_: str, times: Object) -> list[Task]:
    """Take the tasks of a DAG.

    Args:
        dag: The DAG.
        id_: Its ID.
        times: Its `start_date` and `end_date`; a task with others runs in a part of the runs.
    """
    sources = []
    for i, each in enumerate(_list(dag.take("tasks", []))):
        data = each.get("__var", each) if isinstance(each, dict) else each
        if isinstance(data, dict) and isinstance(data.get("task_id"), str) and data["task_id"]:
            sources.append(Fields(data, dag.at(f"tasks[{i}]"), dag.report))
            check(sources[-1], OF_TASK)
        else:
            dag.gap(f"tasks[{i}]", f"must be a task with a `task_id`, not {format_value(data)}")
    names = Names()
    ids = {str(each.data.get("task_id")): names.of(str(each.data.get("task_id"))) for each in sources}
    upstream: dict[str, list[str]] = {each: [] for each in ids}
    for each in sources:
        below = each.data.get("downstream_task_ids") or each.data.get("_downstream_task_ids") or []
        for other in below:
            upstream.setdefault(str(other), []).append(str(each.data.get("task_id")))
    rules = {str(each.data.get("task_id")): _rule(each) for each in sources}
    for each in sources:
        for name, of_dag in times.items():
            if each.take(name, of_dag) != of_dag:
                each.gap(name, "is not that of the DAG; write a `when` about the time of the run")
    dag.note("tasks", _NOT_SERIALIZED)
    return [_Builder(each, id_, ids, upstream, rules).task for each in sources]


def _rule(task: Fields) -> str:
    """Return the trigger rule of a task."""
    data = task.data.get("partial_kwargs") or {}
    return str(task.data.get("trigger_rule") or data.get("trigger_rule") or "all_success")


class _Builder:
    """Converts one task."""

    def __init__(
        self,
        source: Fields,
        dag: str,
        ids: Mapping[str, str],
        upstream: Mapping[str, list[str]],
        rules: Mapping[str, str],
    ) -> None:
        self._source = source
        self._id = source.text("task_id") or ""
        self._upstream = upstream
        self._ids = ids
        self._rules = rules
        self._templates = Templates(
            dag, self._id, dict(ids), lambda path, message: source.report.gap(source.at(path), message)
        )
        partial = source.part("partial_kwargs")
        source.data = {**{key: _plain(each) for key, each in partial.data.items()}, **source.data}
        check(source, OF_TASK)
        kind = source.text("task_type") or source.text("_task_type") or ""
        source.drop("task_type", "_task_type")
        name = ids[self._id]
        call: Object = {"name": name, "template": name}
        depends = self._depends()
        if depends:
            call["depends"] = depends
        source.drop("trigger_rule")
        mapped = "expand_input" in source
        inputs = self._loop(call)
        lost = mapped and "withItems" not in call
        template: Object = {"name": name}
        pushes = False
        if lost:
            source.data = {}
        elif kind == _POD:
            pushes = bool(source.take("do_xcom_push", True))
            template |= self._pod(pushes=pushes)
        elif kind == _EMPTY:
            template |= {"suspend": {"duration": "0s"}}
            source.drop(*_OF_ATTEMPTS)
        else:
            source.gap("task_type", f"`{kind}` is not imported: only a {_POD} is; write the task as a container")
            source.data = {}
        template = {**_with_items(template), **inputs}
        limit = source.take("max_active_tis_per_dagrun")
        for each, advice in _WITH_EFFECT.items():
            value = source.data.get(each)
            if value not in (None, False, [], {}, "", *_DEFAULTS.get(each, ())):
                source.gap(each, f"has no counterpart; {advice}")
        source.drop(*_IGNORED)
        source.done({})
        self.task = Task(
            source.path,
            template,
            call,
            self._templates,
            self._id,
            pushes,
            is_imported=kind in {_POD, _EMPTY} and not lost,
            concurrency=limit if isinstance(limit, int) and "withItems" in call else None,
            source=source,
        )

    # When it runs

    def _depends(self) -> str:
        """Return the condition of the task on those before it."""
        before, rule = self._upstream.get(self._id, []), self._rules[self._id]
        if not before:
            return ""
        names = [self._ids[each] for each in before]
        either = [" || ".join(f"{name}.{end}" for end in _ENDS) for name in names]
        all_done = " && ".join(f"({each})" for each in either)
        match rule:
            case "all_success":
                if len(before) > 1:  # whether a skip or a failure comes first decides in Airflow
                    self._without_skips(before)
                return " && ".join(names)
            case "all_done" | "always":
                if rule == "always":
                    self._source.note(
                        "trigger_rule", "the task starts when all tasks before it have ended, not immediately"
                    )
                return all_done
            case "none_failed":
                self._without_skips(before)
                return " && ".join(names)
            case "one_failed":
                self._without_skips(before)
                self._source.note(
                    "trigger_rule", "the task starts when all tasks before it have ended, not with the first failure"
                )
                failed = " || ".join(f"{name}.{end}" for name in names for end in ("Failed", "Errored", "Omitted"))
                return f"({failed}) && {all_done}"
        self._source.gap("trigger_rule", f"`{rule}` has no counterpart; see docs/from-airflow.md#trigger-rules")
        return " && ".join(names)

    def _without_skips(self, before: list[str]) -> None:
        """Report tasks before this one that may be skipped, which Argo does not tell from those that a failure prevents."""
        seen: set[str] = set()
        queue = list(before)
        while queue:
            each = queue.pop()
            if each not in seen:
                seen.add(each)
                queue += self._upstream.get(each, [])
        skipped = sorted(each for each in seen if self._rules[each] == "one_failed")
        if skipped:
            self._source.gap(
                "trigger_rule", f"a task before it, `{skipped[0]}`, may be skipped; write the condition as `when`"
            )

    # What it runs

    def _pod(self, *, pushes: bool) -> Object:
        source, texts = self._source, self._templates
        container: Object = {"image": texts.of(source.text("image") or "", "image")}
        command, args = (
            texts.of(_list(source.take("cmds")), "cmds"),
            texts.of(_list(source.take("arguments")), "arguments"),
        )
        container |= {key: each for key, each in (("command", command), ("args", args)) if each}
        variables = texts.of(_variables(_parsed(source.take("env_vars"))), "env_vars")
        sources = [_camel(_parsed(each)) for each in _list(_parsed(source.take("env_from")))]
        sources += [{"configMapRef": {"name": each}} for each in _list(source.take("configmaps"))]
        resources = _camel(_parsed(source.take("container_resources")))
        mounts = [_camel(each) for each in _list(_parsed(source.take("volume_mounts")))]
        volumes = [_camel(each) for each in _list(_parsed(source.take("volumes")))]
        if pushes:
            mounts.append({"name": "airflow-xcom", "mountPath": _XCOM})
            volumes.append({"name": "airflow-xcom", "emptyDir": {}})
        parts = {"env": variables, "envFrom": sources, "resources": resources, "volumeMounts": mounts}
        container |= {key: each for key, each in parts.items() if each}
        metadata = {key: texts.of(source.take(key, {}), key) for key in ("labels", "annotations")}
        metadata = {key: each for key, each in metadata.items() if each}
        selector = texts.of(source.take("node_selector", {}), "node_selector")
        limit = source.take("execution_timeout")
        return {
            "container": container,
            **({"volumes": volumes} if volumes else {}),
            **({"metadata": metadata} if metadata else {}),
            **({"nodeSelector": selector} if selector else {}),
            **({"timeout": f"{_seconds(limit)}s"} if limit is not None else {}),
            **self._retries(),
        }

    def _retries(self) -> Object:
        source = self._source
        retries, delay = source.take("retries", 0), source.take("retry_delay")
        exponential, longest = source.take("retry_exponential_backoff", False), source.take("max_retry_delay")
        if not isinstance(retries, int) or retries < 1:
            return {}
        backoff: Object = {"duration": f"{_RETRY_DELAY if delay is None else _seconds(delay)}s"}
        if exponential:
            factor = exponential if not isinstance(exponential, bool) and exponential > 1 else 2
            backoff["factor"] = as_text(factor)
            source.note("retry_exponential_backoff", "the delays have no random part")
        if longest is not None:
            backoff["cap"] = f"{_seconds(longest)}s"
        return {"retryStrategy": {"limit": str(retries), "retryPolicy": "Always", "backoff": backoff}}

    # Mapped tasks

    def _loop(self, call: Object) -> Object:
        """Take what a mapped task is expanded over, and let it run for each item; return the inputs of its template."""
        given = self._source.take("expand_input")
        if given is None:
            return {}
        value = given.get("value")
        fields = value.get("__var", value) if isinstance(value, dict) else None
        if given.get("type") != "dict-of-lists" or not isinstance(fields, dict) or len(fields) != 1:
            self._source.gap("expand_input", "only `expand` with one field is imported; write a `forEach`")
            return {}
        ((name, values),) = fields.items()
        items = [_plain(each) for each in values] if isinstance(values, list) else None
        if items is None:
            message = (
                "only values that are written out are imported; write a `forEach` over the output of the other task"
            )
            self._source.gap(f"expand_input.{name}", message)
            return {}
        forms = {tuple(path for path, _ in _leaves(each, ())) for each in items}
        if name not in _EXPANDED or len(forms) != 1:
            self._source.gap(
                f"expand_input.{name}", f"must have values of one form for {', '.join(_EXPANDED)}; write a `forEach`"
            )
            return {}
        names = {path: f"item-{i}" for i, path in enumerate(forms.pop())}
        call["withItems"] = [
            {names[path]: self._templates.of(leaf, f"expand_input.{name}") for path, leaf in _leaves(each, ())}
            for each in items
        ]
        self._source.data[name] = _placed(items[0], (), names)
        passed = [{"name": each, "value": "{{item." + each + "}}"} for each in names.values()]
        call["arguments"] = {"parameters": passed}
        return {"inputs": {"parameters": [{"name": each} for each in names.values()]}}


def _with_items(value: Any) -> Any:
    """Return a template with tags in place of the marks of items."""
    if isinstance(value, list):
        return [_with_items(each) for each in value]
    if isinstance(value, dict):
        return {key: _with_items(each) for key, each in value.items()}
    return _MARKED.sub(r"{{inputs.parameters.\1}}", value) if isinstance(value, str) else value


def _leaves(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the texts in a value, with their paths."""
    if isinstance(value, list):
        for i, each in enumerate(value):
            yield from _leaves(each, (*path, i))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, (*path, key))
    else:
        yield path, value


def _placed(value: Any, path: tuple[Any, ...], names: Mapping[tuple[Any, ...], str]) -> Any:
    """Return a value with marks in place of its texts, by their paths."""
    if isinstance(value, list):
        return [_placed(each, (*path, i), names) for i, each in enumerate(value)]
    if isinstance(value, dict):
        return {key: _placed(each, (*path, key), names) for key, each in value.items()}
    return f"{_MARK}{names[path]}{_MARK}"


def _plain(value: Any) -> Any:
    """Return a value without the types that Airflow wraps around it."""
    if isinstance(value, dict) and "__var" in value:
        return _plain(value["__var"])
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _parsed(value: Any) -> Any:
    """Return the value of a field; Airflow 2 writes objects of Kubernetes as a text of Python."""
    if isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}:
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return value
    return _plain(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value in (None, "", {}) else [value]


def _variables(value: Any) -> list[Object]:
    """Return environment variables: a map of texts, or a list of variables of Kubernetes."""
    if isinstance(value, dict):
        return [{"name": name, "value": as_text(each)} for name, each in value.items()]
    return [_camel(each) for each in _list(value)]


def _camel(value: Any) -> Any:
    """Return an object of Kubernetes' client for Python as in YAML: names in camel case, and nothing that is not set."""
    if isinstance(value, dict):
        return {
            _SNAKE.sub(lambda found: found[1].upper(), key): _camel(each)
            for key, each in value.items()
            if each is not None
        }
    return [_camel(each) for each in value] if isinstance(value, list) else value


def _seconds(value: Any) -> int:
    """Return a duration in whole seconds, at least one."""
    return max(1, round(seconds(value) or 0))
