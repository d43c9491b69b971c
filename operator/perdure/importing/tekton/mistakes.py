"""Mistakes in objects that Tekton's webhook rejects, although its CRDs permit them: most of them lose a part silently.

The rules are those of the files `pkg/apis/pipeline/v1/*_validation.go` in tektoncd/pipeline.
"""

import re
from typing import Any, Final

from perdure.importing.mistakes import items_of, maps_in, report_names
from perdure.importing.reader import ConversionReport, Object

_LISTS: Final = ("params", "results", "workspaces")
"""The lists whose items have names."""
_TASK: Final = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""The name of a task in a pipeline: a label of the DNS."""
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
            for name in ("steps", "sidecars", "volumes"):
                report_names(items_of(each, name, where), report, optional=True)
        if isinstance(each.get("taskRunSpecs"), list):
            report_names(items_of(each, "taskRunSpecs", where), report, key="pipelineTaskName")


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
