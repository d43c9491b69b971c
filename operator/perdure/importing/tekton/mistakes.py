"""Mistakes in objects that Tekton's webhook rejects, although its CRDs permit them: most of them lose a part silently.

The rules are those of the files `pkg/apis/pipeline/v1/*_validation.go` in tektoncd/pipeline.
"""

import re
from typing import Any, Final

from perdure.importing.mistakes import items_of, maps_in, report_names
from perdure.importing.reader import ConversionReport, Object, walk
from perdure.importing.tekton.variables import VARIABLE, kind_of, path_of

_LISTS: Final = ("params", "results", "workspaces")
"""The lists whose items have names."""
_TASK: Final = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""The name of a task in a pipeline: a label of the DNS."""
_TEXTS: Final = ("image", "workingDir", "script", "command", "args", "env", "volumeMounts")
"""The fields of a step in which Tekton does not permit whole arrays or objects."""
_EITHER: Final = (("taskRef", "taskSpec"), ("pipelineRef", "pipelineSpec"), ("cel", "operator"), ("script", "command"))
"""Fields of which an object has one."""


def report_mistakes(spec: Any, path: str, report: ConversionReport) -> None:
    """Report the mistakes in the spec of an object.

    Args:
        spec: The spec, as its schema permits it.
        path: Its path.
        report: Gets the mistakes.
    """
    for where, each in maps_in(spec, path):
        for name in _LISTS:
            if isinstance(each.get(name), list):
                report_names(items_of(each, name, where), report)
        for one, other in _EITHER:
            if each.get(one) and each.get(other):
                report.gap(f"{where}.{other}", f"cannot be used next to `{one}`; remove one of them")
        if isinstance(each.get("tasks"), list):
            _of_pipeline(each, where, report)
        if isinstance(each.get("steps"), list):
            _of_task(each, where, report)
            for name in ("steps", "sidecars", "volumes"):
                report_names(items_of(each, name, where), report, optional=True)
        if isinstance(each.get("taskRunSpecs"), list):
            report_names(items_of(each, "taskRunSpecs", where), report, key="pipelineTaskName")


def _of_task(task: Object, path: str, report: ConversionReport) -> None:
    """Report references to a whole array or object where only a text can be."""
    kinds = {
        str(each.get("name")).replace(".", "\0"): kind_of(each)
        for _, each in items_of(task, "params", path)
        if isinstance(each, dict) and kind_of(each) in {"array", "object"}
    }
    steps = [step for step in items_of(task, "steps", path) if kinds and isinstance(step[1], dict)]
    for where, step in steps:
        for place, text in walk({name: step.get(name) for name in _TEXTS}, where):
            for found in VARIABLE.finditer(text):
                params, *rest = path_of(found[1])
                kind = kinds.get(rest[0]) if params == "params" and rest[1:] in ([], ["*"]) else None
                is_word = place.startswith((f"{where}.command", f"{where}.args")) and found[0] == text
                if kind == "object" or (kind == "array" and not is_word):
                    advice = "an array can only be a whole word of `command` or `args`"
                    advice = "read one of its keys" if kind == "object" else advice
                    report.gap(place, f"`{found[0]}` is an {kind}; {advice}")


def _of_pipeline(pipeline: Object, path: str, report: ConversionReport) -> None:
    tasks = [each for field in ("tasks", "finally") for each in items_of(pipeline, field, path)]
    report_names(tasks, report)
    if not pipeline["tasks"]:
        report.gap(f"{path}.tasks", "must have at least one task")
    for where, task in tasks:
        name, retries = str(task.get("name") or "a"), task.get("retries")
        if not _TASK.fullmatch(name):
            report.gap(f"{where}.name", f"`{name}` must have lowercase letters, digits, and dashes, at most 63")
        if isinstance(retries, int) and retries < 0:
            report.gap(f"{where}.retries", "must be at least 0")
