"""The input in the template of a Schedule: expressions about the scheduled time, evaluated when the Schedule creates a run.

The run gets the values, so a rerun, a reset, or a retry has the same ones. Only the input of a Workflow in YAML is evaluated.
That of code is data of Temporal's clients, which may contain any text.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from perdure.api.kinds.workflowrun import RunOptions, WorkflowRunSpec
from perdure.language.expressions import ExpressionError, Template, compile_template

_NAMES: Final = ("schedule",)
_HOURS: Final = 733
"""The distance of the sample times: they have all hours, days of the week and of the month, and months."""


def _samples(zone: str) -> Iterator[dict[str, Any]]:
    """Values that `schedule` could have in a run, in a time zone."""
    for time in (datetime(2026, 1, 1, tzinfo=UTC) + n * timedelta(hours=_HOURS) for n in range(36)):
        yield {
            "name": "sample",
            "scheduledTime": time,
            "timeZone": zone,
            "utcOffset": "+00:00",
            "localTime": time.isoformat(),
            "localDate": time.date().isoformat(),
            "previousTime": time - timedelta(days=1),
            "nextTime": time + timedelta(days=1),
            "lastCompletionResult": None,
            "lastFailure": None,
        }


def is_evaluated(spec: RunOptions) -> bool:
    """Whether the input in the template of a Schedule is evaluated: it starts a Workflow in YAML."""
    inline = isinstance(spec, WorkflowRunSpec) and spec.inline is not None
    return inline or (spec.workflow is not None and spec.workflow.name is not None)


def input_template(spec: WorkflowRunSpec, path: str) -> Template | None:
    """Compile the input in the template of a Schedule; None if it has no expressions, or is not evaluated.

    Args:
        spec: The spec in the template.
        path: The path of the input, for errors.

    Raises:
        ExpressionError: An expression is not valid.
    """
    if not is_evaluated(spec) or not _has_expressions(spec.input):
        return None
    return compile_template(spec.input, path=path, names=_NAMES)


def evaluated_input(spec: WorkflowRunSpec, schedule: Mapping[str, Any]) -> Any:
    """Return the input of a run.

    Args:
        spec: The spec in the template of the Schedule.
        schedule: The value of `schedule`.

    Raises:
        ExpressionError: An expression is not valid, or has no value.
    """
    template = input_template(spec, "input")
    return spec.input if template is None else template.evaluate({"schedule": schedule})


def sample_input(spec: WorkflowRunSpec, zone: str) -> Any:
    """Return an input as a run could have it, for checks by its schema.

    Args:
        spec: The spec in the template of the Schedule.
        zone: The time zone of the Schedule.

    Raises:
        ExpressionError: It has no value at any of several times. It may depend on the result of the previous run.
    """
    template = input_template(spec, "input")
    if template is None:
        return spec.input
    failures = []
    for sample in _samples(zone):
        try:
            return template.evaluate({"schedule": sample})
        except ExpressionError as error:
            failures.append(error)
    raise failures[0]


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
