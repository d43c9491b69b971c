"""Mistakes in workflows that Argo's controller rejects, although its CRDs permit them: most of them lose a part silently.

The rules are those of `workflow/validate/validate.go` in argoproj/argo-workflows.
"""

from collections.abc import Iterator
from typing import Any, Final

from perdure.importing.argo.loops import LOOPS
from perdure.importing.argo.scope import artifact_field, artifact_name, variable
from perdure.importing.mistakes import items_of, report_names
from perdure.importing.reader import ConversionReport, Object

_WORK: Final = ("container", "script", "containerSet", "http", "resource", "data", "plugin", "suspend", "steps", "dag")
"""The kinds of work of a template."""
_CONTAINERS: Final = ("initContainers", "sidecars", "volumes")


def report_mistakes(spec: Object, path: str, report: ConversionReport) -> None:
    """Report the mistakes in the spec of a workflow.

    Args:
        spec: The spec, as its schema permits it.
        path: Its path.
        report: Gets the mistakes.
    """
    report_names(items_of(spec, "templates", path), report)
    _of_arguments(spec.get("arguments") or {}, f"{path}.arguments", report)
    _of_count(spec, path, report)
    _of_globals(spec, path, report)
    for where, each in items_of(spec, "templates", path):
        _of_template(each, where, report)


def _of_globals(spec: Object, path: str, report: ConversionReport) -> None:
    """Report global outputs of different names that become one variable."""
    known: dict[str, str] = {}
    for where, template in items_of(spec, "templates", path):
        for kind in ("parameters", "artifacts"):
            for place, each in items_of(template.get("outputs") or {}, kind, f"{where}.outputs"):
                name = str(each.get("globalName") or "")
                wish = name if kind == "parameters" else artifact_field(name)
                if name and known.setdefault(variable(wish), wish) != wish:
                    report.gap(
                        f"{place}.globalName",
                        f"becomes the variable `{variable(wish)}`, as another one does; rename it",
                    )


def _of_template(template: Object, path: str, report: ConversionReport) -> None:
    for kind in ("inputs", "outputs"):
        _of_arguments(template.get(kind) or {}, f"{path}.{kind}", report)
    work = [each for each in _WORK if template.get(each) is not None]
    if len(work) > 1:
        report.gap(path, f"has {' and '.join(f'`{each}`' for each in work)}; make a template of each")
    for each in _CONTAINERS:
        report_names(items_of(template, each, path), report)
    report_names(items_of(template.get("containerSet") or {}, "containers", f"{path}.containerSet"), report)
    _of_count(template, path, report)
    if template.get("steps") is not None:
        calls = list(_steps(template["steps"], f"{path}.steps"))
        if not calls:
            report.gap(f"{path}.steps", "must have at least one step")
        _of_calls(calls, report)
    if template.get("dag") is not None:
        calls = list(items_of(template["dag"], "tasks", f"{path}.dag"))
        if not calls:
            report.gap(f"{path}.dag.tasks", "must have at least one task")
        _of_calls(calls, report)
        for where, task in calls:
            if task.get("depends") and task.get("dependencies"):
                report.gap(f"{where}.dependencies", "cannot be used next to `depends`; write all of them there")


def _steps(stages: list[Any], path: str) -> Iterator[tuple[str, Object]]:
    for i, stage in enumerate(stages):
        for j, step in enumerate(stage if isinstance(stage, list) else [stage]):
            if isinstance(step, dict):
                yield f"{path}[{i}][{j}]", step


def _of_calls(calls: list[tuple[str, Object]], report: ConversionReport) -> None:
    report_names(calls, report)
    for path, call in calls:
        _of_arguments(call.get("arguments") or {}, f"{path}.arguments", report)
        for name, hook in (call.get("hooks") or {}).items():
            _of_arguments(hook.get("arguments") or {}, f"{path}.hooks.{name}.arguments", report)
        loops = [each for each in LOOPS if call.get(each) is not None]
        if len(loops) > 1:
            report.gap(path, f"has {' and '.join(f'`{each}`' for each in loops)}; a step has one loop")
        sequence = call.get("withSequence") or {}
        if sequence.get("count") is not None and sequence.get("end") is not None:
            report.gap(f"{path}.withSequence.count", "cannot be used next to `end`; remove one of them")
        if isinstance(call.get("inline"), dict):
            _of_template(call["inline"], f"{path}.inline", report)


def _of_arguments(arguments: Object, path: str, report: ConversionReport) -> None:
    for kind in ("parameters", "artifacts"):
        report_names(items_of(arguments, kind, path), report)
    fields = {artifact_field(str(each.get("name"))) for _, each in items_of(arguments, "artifacts", path)}
    for where, each in items_of(arguments, "parameters", path):
        if each.get("name") in fields:
            report.gap(f"{where}.name", "is the field of an artifact in the input; rename the parameter")
    names: dict[str, str] = {}
    for where, each in items_of(arguments, "artifacts", path):
        name = str(each.get("name"))
        if names.setdefault(artifact_name(name), name) != name:
            report.gap(f"{where}.name", f"becomes `{artifact_name(name)}`, as another one does; rename it")


def _of_count(of: Object, path: str, report: ConversionReport) -> None:
    parallelism = of.get("parallelism")
    if isinstance(parallelism, int) and parallelism < 1:
        report.gap(f"{path}.parallelism", "must be at least 1; remove it to run without a limit")
