"""Checks the options of a run, in the template of a Schedule, or in the defaults of a namespace, beyond the schema."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import pydantic

from perdure.api.kinds.schedule import TemplateMetadata
from perdure.api.kinds.workflow import PodTemplateMetadata
from perdure.api.kinds.workflowdefaults import WorkflowDefaultsSpec
from perdure.api.kinds.workflowrun import RunOptions, WorkflowRunSpec
from perdure.api.models import ObjectMeta, mistakes_by_path
from perdure.api.names import is_label_value, is_qualified_name
from perdure.api.search_attributes import unfit
from perdure.language.checks.shapes import SCHEDULE, Path, reads_of
from perdure.language.checks.templates import guards_of, of_template
from perdure.language.checks.texts import in_data
from perdure.language.coercion import format_value
from perdure.language.expressions import ExpressionError
from perdure.language.program import Finding, Severity
from perdure.language.schedule_input import input_template, is_evaluated, sample_input

_OF_KUBECTL: Final = "kubectl.kubernetes.io/"
"""The prefix of annotations with the whole manifest."""
_QUALIFIED = (
    "must be a name of at most 63 letters, digits, `-`, `_` or `.`, with a letter or digit first and last, optionally "
    "after a DNS domain and a `/`, such as `example.com/team`"
)


def options(spec: WorkflowRunSpec, path: str = "spec") -> Iterator[Finding]:
    """Check the options of a run; `path` is the path of its spec."""
    yield from search_attributes(f"{path}.searchAttributes", spec.search_attributes)


def deadlines(spec: WorkflowRunSpec | WorkflowDefaultsSpec, path: str = "spec") -> Iterator[Finding]:
    """Warn about a `stepsTimeout` after which no handler runs, because the run has ended before.

    Args:
        spec: The spec of a run, or the defaults of a namespace.
        path: Its path.
    """
    run = spec if isinstance(spec, WorkflowRunSpec) else None
    limits = {"runTimeout": spec.run_timeout, "executionTimeout": run and run.execution_timeout}
    inline = run and run.inline
    place, steps = "stepsTimeout", spec.steps_timeout
    if steps is None and inline is not None and isinstance(inline.steps_timeout, timedelta):
        place, steps = "inline.stepsTimeout", inline.steps_timeout
    for name, limit in limits.items():
        if steps is not None and limit and limit <= steps:
            message = f"is not shorter than `{name}`, which ends the run without its handlers; make it shorter"
            yield Finding(f"{path}.{place}", message, Severity.WARNING)


def labels(metadata: TemplateMetadata | PodTemplateMetadata | None, path: str) -> Iterator[Finding]:
    """Check the labels and annotations of a template; `path` is the path of its metadata.

    The rules are Kubernetes' own (k8s.io/apimachinery/pkg/util/validation): the API server checks them only when a run is
    created.
    """
    if metadata is None:
        return
    for name, value in metadata.labels.items():
        if not is_qualified_name(name):
            yield Finding(f"{path}.labels", f"`{name}` {_QUALIFIED}")
        if not is_label_value(value):
            message = (
                f"the value of `{name}`, {format_value(value)}, must have at most 63 letters, digits, `-`, `_` or `.`, with a "
                "letter or digit first and last"
            )
            yield Finding(f"{path}.labels", message)
    for name in metadata.annotations:
        if not is_qualified_name(name.lower()):
            yield Finding(f"{path}.annotations", f"`{name}` {_QUALIFIED}")


def scheduled_input(spec: WorkflowRunSpec, path: str, zone: str) -> Iterator[Finding]:
    """Check the expressions in the input of the template of a Schedule.

    Args:
        spec: The spec in the template.
        path: The path of that spec.
        zone: The time zone of the Schedule.
    """
    try:
        template = input_template(spec, f"{path}.input")
    except ExpressionError as error:
        yield Finding(error.path, f"`{error.expression}`: {error.message}; {_remedy(error)}")
        return
    if template is None:
        return
    found = [*of_template(f"{path}.input", template, {"schedule": SCHEDULE}, guards_of([template]))]
    yield from found
    if any(each.severity is Severity.ERROR for each in found):
        return
    try:
        sample_input(spec, zone)
    except ExpressionError as error:
        if not any(_is_unknown(each) for each in reads_of(error.expression).paths):
            message = f"`{error.expression}` had no value at any of the times that were tried: {error.message}"
            yield Finding(f"{path}.{error.path}", message, Severity.WARNING)


def _is_unknown(path: Path) -> bool:
    """Whether a path reads the outcome of the previous run."""
    return path == ("schedule",) or path[:2] in {("schedule", "lastCompletionResult"), ("schedule", "lastFailure")}


def _remedy(error: ExpressionError) -> str:
    if error.message.startswith("unknown name"):
        return "the input of a Schedule can read only `schedule`; for a literal `${`, write `$${`"
    return "for a literal `${`, write `$${`"


def unevaluated(spec: RunOptions, path: str = "spec", *, evaluates_input: bool = False) -> Iterator[Finding]:
    """Find expressions in the options of a run, which are used unchanged.

    Args:
        spec: The spec of the run.
        path: Its path.
        evaluates_input: Whether the input of a Workflow in YAML is evaluated, as in the template of a Schedule.
    """
    run = spec if isinstance(spec, WorkflowRunSpec) else None
    is_yaml = is_evaluated(spec)
    fix = "write the expression in a step of the Workflow" if is_yaml else "compute the value in the code"
    for field, value in (
        ("workflowId", run and run.workflow_id),
        ("input", spec.input),
        ("searchAttributes", spec.search_attributes),
    ):
        if field == "input" and is_yaml and evaluates_input:
            continue
        yield from in_data(f"{path}.{field}", value, f"the run gets this text; {fix}")


def annotations(metadata: ObjectMeta | TemplateMetadata | None, path: str) -> Iterator[Finding]:
    """Warn about expressions in the annotations of a run, which are used unchanged. They may be for another program.

    Args:
        metadata: The metadata of the run.
        path: Its path.
    """
    found = metadata.annotations.items() if metadata is not None else ()
    own = {name: value for name, value in found if not name.startswith(_OF_KUBECTL)}
    message = "the run gets this text; write the value itself"
    yield from in_data(f"{path}.annotations", own, message, Severity.WARNING)


def search_attributes(path: str, attributes: Mapping[str, Any]) -> Iterator[Finding]:
    """Check search attributes; `path` is their path."""
    for name, message in unfit(attributes).items():
        yield Finding(f"{path}.{name}", message)


def default_mistakes(defaults: Mapping[str, Any]) -> list[Finding]:
    """What is wrong with WorkflowDefaults on their own, which the API server has not found.

    Args:
        defaults: Their spec.
    """
    try:
        spec = WorkflowDefaultsSpec.parse(defaults)
    except pydantic.ValidationError as error:
        return [Finding(f"spec.{path}", message) for path, message in mistakes_by_path(error)]
    template = spec.activities.pod_template if spec.activities is not None else None
    pods = template.metadata if template is not None else None
    return [*labels(spec.run_metadata, "spec.runMetadata"), *labels(pods, "spec.activities.podTemplate.metadata")]
