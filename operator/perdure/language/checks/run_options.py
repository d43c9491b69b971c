"""Checks the options of a run, in the template of a Schedule, or in the defaults of a namespace, beyond the schema."""

from collections.abc import Iterator, Mapping
from typing import Any

import pydantic

from perdure.api.kinds.schedule import TemplateMetadata
from perdure.api.kinds.workflow import PodTemplateMetadata
from perdure.api.kinds.workflowdefaults import WorkflowDefaultsSpec
from perdure.api.kinds.workflowrun import RunOptions, WorkflowRunSpec
from perdure.api.models import mistakes_by_path
from perdure.api.names import is_label_value, is_qualified_name
from perdure.api.search_attributes import unfit
from perdure.language.checks.texts import in_data
from perdure.language.coercion import format_value
from perdure.language.program import Finding
from perdure.language.schedule_input import is_evaluated

_QUALIFIED = (
    "must be a name of at most 63 letters, digits, `-`, `_` or `.`, with a letter or digit first and last, optionally "
    "after a DNS domain and a `/`, such as `example.com/team`"
)


def options(spec: WorkflowRunSpec, path: str = "spec") -> Iterator[Finding]:
    """Check the options of a run; `path` is the path of its spec."""
    yield from search_attributes(f"{path}.searchAttributes", spec.search_attributes)


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
