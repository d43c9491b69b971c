"""Converts lists of steps with retries, and daemons with locks, to separate Workflows.

A child workflow can be retried, and holds its locks until it has ended.
"""

from dataclasses import replace
from typing import Final

from perdure.importing.argo_calls import CallTarget
from perdure.importing.argo_library import Library
from perdure.importing.argo_limits import limits
from perdure.importing.argo_scope import Scope, WorkflowFacts
from perdure.importing.field_reader import Fields, Object, valid_name

_OF_CALLER: Final = {False: ("synchronization",), True: ("synchronization", "retryStrategy")}
"""The fields of a template that the call of a child has, by whether the template is a list of steps."""


ACTIVITY_KINDS: Final = frozenset({"container", "script", "containerSet", "http", "resource"})
"""The fields of templates that become activities."""


def is_list_of_steps(template: Object) -> bool:
    """Whether a template runs steps, not a container."""
    return "steps" in template or "dag" in template


def _repeats(template: Object) -> bool:
    """Whether a template runs a list of steps again if one of them fails."""
    return bool(is_list_of_steps(template) and template.get("retryStrategy"))


def needs_child(template: Object) -> bool:
    """Whether a template becomes a Workflow of its own."""
    return bool((template.get("synchronization") and template.get("daemon")) or _repeats(template))


def child_spec(spec: Object, name: str) -> Object:
    """Return the spec of a workflow that runs only one of its templates, without what its caller does."""
    templates = [
        {**each, **dict.fromkeys(_OF_CALLER[is_list_of_steps(each)])} if each.get("name") == name else each
        for each in spec.get("templates") or []
    ]
    rest = {key: value for key, value in spec.items() if key not in {"onExit", "hooks", "arguments"}}
    return {**rest, "templates": templates, "entrypoint": name}


def child_workflow(workflow: WorkflowFacts, inputs: Object) -> WorkflowFacts:
    """Return the facts about a child. Its input has the inputs of its template and the parameters of the workflow."""
    return replace(workflow, parameters=workflow.parameters | frozenset(inputs))


def child_target(workflow: WorkflowFacts, template: str, inputs: Object, inner: CallTarget) -> CallTarget:
    """Return the call target for a child."""
    passed = {name: ("workflow", "parameters", name) for name in sorted(workflow.parameters - frozenset(inputs))}
    name = f"{workflow.name}-{valid_name(template)}".lower().replace("_", "-").strip("-")
    return CallTarget(name, "child", inner.shape, inputs, captured=passed)


def child_manifests(
    name: str, source: Fields, definition: Object, library: Library, workflow: WorkflowFacts
) -> list[tuple[str, str, Object]]:
    """Yield the kind, name, and spec of the objects of a child: its limits and its Workflow.

    Args:
        name: The name of the child.
        source: The template; takes `synchronization`.
        definition: The definition of the child.
        library: The files.
        workflow: The facts about the child.
    """
    taken, made = limits(source, library, Scope("input", workflow).resolve)
    found = [("WorkflowLimit", limit, spec) for limit, spec in made]
    return [*found, ("Workflow", name, {**({"limits": taken} if taken else {}), **definition})]
