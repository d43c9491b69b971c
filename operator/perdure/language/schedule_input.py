"""The input in the template of a Schedule: expressions about the scheduled time, evaluated when the Schedule creates a run.

The run gets the values, so a rerun, a reset, or a retry has the same ones. Only the input of a Workflow in YAML is evaluated.
That of code is data of Temporal's clients, which may contain any text.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from perdure.api.kinds.workflowrun import RunOptions, WorkflowRunSpec
from perdure.language.expressions import ExpressionError, compile_template
from perdure.language.program import Finding

_NAMES: Final = ("schedule",)
_SAMPLE_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SAMPLE: Final = {
    "name": "sample",
    "scheduledTime": _SAMPLE_TIME,
    "timeZone": "UTC",
    "utcOffset": "+00:00",
    "localTime": "2026-01-01T00:00:00+00:00",
    "localDate": "2026-01-01",
    "previousTime": _SAMPLE_TIME,
    "nextTime": _SAMPLE_TIME,
    "lastCompletionResult": None,
    "lastFailure": None,
}


def is_evaluated(spec: RunOptions) -> bool:
    """Whether the input in the template of a Schedule is evaluated: it starts a Workflow in YAML."""
    inline = isinstance(spec, WorkflowRunSpec) and spec.inline is not None
    return inline or (spec.workflow is not None and spec.workflow.name is not None)


def input_mistakes(spec: WorkflowRunSpec, path: str) -> Iterator[Finding]:
    """Find the invalid expressions in the input of a template; `path` is the path of its spec."""
    if not is_evaluated(spec) or not _has_expressions(spec.input):
        return
    try:
        compile_template(spec.input, path=f"{path}.input", names=_NAMES)
    except ExpressionError as error:
        yield Finding(error.path, f"`{error.expression}`: {error.message}; {_remedy(error)}")


def _remedy(error: ExpressionError) -> str:
    if error.message.startswith("unknown name"):
        return "the input of a Schedule can read only `schedule`; for a literal `${`, write `$${`"
    return "for a literal `${`, write `$${`"


def evaluated_input(spec: WorkflowRunSpec, schedule: Mapping[str, Any]) -> Any:
    """Return the input of a run.

    Args:
        spec: The spec in the template of the Schedule.
        schedule: The value of `schedule`.

    Raises:
        ExpressionError: An expression is not valid, or has no value.
    """
    if not is_evaluated(spec) or not _has_expressions(spec.input):
        return spec.input
    return compile_template(spec.input, path="input", names=_NAMES).evaluate({"schedule": schedule})


def sample_input(spec: WorkflowRunSpec) -> tuple[bool, Any]:
    """Return an input as a run could have it, for checks by its schema, and whether there is one.

    There is none if it depends on the result of the previous run.
    """
    try:
        return True, evaluated_input(spec, _SAMPLE)
    except ExpressionError:
        return False, None


def _has_expressions(value: Any) -> bool:
    match value:
        case str():
            return "${" in value
        case dict():
            return any("${" in key or _has_expressions(entry) for key, entry in value.items())
        case list():
            return any(map(_has_expressions, value))
        case _:
            return False
