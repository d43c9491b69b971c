"""Checks the WorkflowLimits that a definition names."""

from collections.abc import Iterator

from perdure.api.kinds.workflow import Activity, WorkflowSpec
from perdure.language.expression_text import ExpressionError
from perdure.language.expressions import Template, compile_template
from perdure.language.limit_keys import NAMES
from perdure.language.program import Finding, Severity


def limits_of(spec: WorkflowSpec) -> Iterator[tuple[str, str]]:
    """The WorkflowLimits that runs of a definition and their activities take: the path, and the name."""
    for i, taken in enumerate(spec.limits):
        yield f"spec.limits[{i}].name", taken.name
    for i, activity in enumerate(spec.activities):
        for k, use in enumerate(activity.limits):
            yield f"spec.activities[{i}].limits[{k}].name", use.name
    yield from _of_steps(spec)


def _of_steps(spec: WorkflowSpec) -> Iterator[tuple[str, str]]:
    lists = [("spec.steps", spec.steps), *((f"spec.blocks[{i}].steps", b.steps) for i, b in enumerate(spec.blocks))]
    for path, steps in lists:
        for i, step in enumerate(steps):
            for k, limit in enumerate(step.limits):
                yield f"{path}[{i}].limits[{k}].name", limit.name


def key_templates(path: str, activity: Activity) -> tuple[list[tuple[str, Template]], list[Finding]]:
    """Return the templates of the keys of an activity's limits, and the errors of those that do not compile.

    Args:
        path: The path of the activity.
        activity: The definition of the activity.
    """
    templates, findings = [], []
    for i, use in enumerate(activity.limits):
        place = f"{path}.limits[{i}].key"
        try:
            templates.append((place, compile_template(use.key, path=place, names=NAMES)))
        except ExpressionError as error:
            findings.append(Finding(place, f"`{error.expression}`: {error.message}"))
    return templates, findings


def taken_twice(spec: WorkflowSpec) -> Iterator[Finding]:
    """Warn about limits that a run holds while its activities or steps wait for them."""
    own = {taken.name for taken in spec.limits}
    for path, name in _of_steps(spec):
        if name in own:
            message = (
                f"the run holds WorkflowLimit `{name}` already (`limits`), so its step can wait for it forever; "
                "take the limit in one place only, or use two"
            )
            yield Finding(path, message, Severity.WARNING, local=True)
    for i, activity in enumerate(spec.activities):
        for k, use in enumerate(activity.limits):
            if use.name in own:
                message = (
                    f"the run holds WorkflowLimit `{use.name}` already (`limits`), so its activity can wait for it forever; "
                    "take the limit in one place only, or use two"
                )
                yield Finding(f"spec.activities[{i}].limits[{k}].name", message, Severity.WARNING, local=True)
