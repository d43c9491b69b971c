"""The defaults of a namespace: completes a definition with what its WorkflowDefaults has and it does not. Pure.

    definition ─▶ with_handlers ─▶ compose (`from`) ─▶ completed ─▶ a definition to which a run is pinned

A default handler is a block of another Workflow. The definition gets it as if it copied the block itself, so activities and
blocks that the handler calls are copied and pinned as well. Activities, also copied ones, get fields that they do not have.
Nothing behind this module knows defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from perdure.api.json_values import Json, mapping, mappings, text
from perdure.api.kinds.workflow import WORK_KINDS
from perdure.api.kinds.workflowrun import WorkflowRunSpec
from perdure.api.labels import RESERVED_PREFIXES
from perdure.api.names import DEFAULTS_NAME
from perdure.api.pod_patches import patched
from perdure.api.pods import DEFAULT_CONTAINER
from perdure.api.rules import json_name
from perdure.api.times import parse_duration
from perdure.language.program import Finding
from perdure.language.reuse import Composition

HANDLERS: Final[tuple[str, ...]] = ("onFailure", "onCancel", "finally")
"""The handlers of a definition that can have a default."""
_OF_DEFINITIONS: Final[tuple[str, ...]] = ("stepsTimeout", "failurePolicy")
_OF_ACTIVITIES: Final[tuple[str, ...]] = (
    "startToCloseTimeout",
    "scheduleToCloseTimeout",
    "scheduleToStartTimeout",
    "retryPolicy",
)
_BLOCK: Final = "default-{}"
_SUBJECT: Final = f"WorkflowDefaults `{DEFAULTS_NAME}`"


@dataclass(frozen=True, slots=True)
class NamespaceDefaults:
    """The WorkflowDefaults of a namespace."""

    spec: Json = field(default_factory=dict)
    generation: int = 0
    """The `metadata.generation` of the object."""


NO_DEFAULTS: Final = NamespaceDefaults()
"""The defaults of a namespace that has none."""


PROBE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "activities": [{"name": "probe", "scheduleToCloseTimeout": "1m", "http": {"url": "http://localhost"}}],
        "steps": [{"name": "probe", "activity": {"name": "probe"}}],
    }
)
"""A definition that takes all defaults, to check them. The image of its pod, that of the operator, is one that exists."""


_PROBED: Final = (
    ("spec.activities[0].podSpecPatch", "spec.activities.podTemplate.spec"),
    ("spec.activities[0].podMetadata", "spec.activities.podTemplate.metadata"),
    ("spec.activities[0]", "spec.activities"),
)


@dataclass(frozen=True, slots=True)
class HandledDefinition:
    """A definition with the default handlers that it has not replaced by its own."""

    definition: Json
    places: Mapping[str, str]
    """Where what was added comes from, by path in the definition."""


def with_handlers(definition: Json, defaults: Json) -> HandledDefinition:
    """Add the default handlers to a definition that has none of its own.

    Args:
        definition: The definition as JSON, which may be invalid; not modified.
        defaults: The spec of the WorkflowDefaults.
    """
    blocks = definition.get("blocks") or []
    if not isinstance(blocks, list) or not mappings(definition.get("steps")):
        return HandledDefinition(definition, {})
    taken = {text(block.get("name")) for block in mappings(blocks)}
    added: Json = {}
    places: dict[str, str] = {}
    blocks = [*blocks]
    for name in HANDLERS:
        handler = mapping(defaults.get(name))
        if not handler or definition.get(name) is not None:
            continue
        block = _BLOCK.format(name.lower())
        while block in taken:
            block += "-x"
        places[f"spec.blocks[{len(blocks)}].from"] = places[f"spec.{name}"] = f"{_SUBJECT}: spec.{name}"
        blocks.append({"name": block, "from": {"workflow": handler.get("workflow"), "block": handler.get("block")}})
        added[name] = {"block": block, **{key: handler[key] for key in ("input", "timeout") if key in handler}}
    return HandledDefinition({**definition, **added, "blocks": blocks} if added else definition, places)


def completed(composed: Composition, handled: HandledDefinition, defaults: NamespaceDefaults) -> Composition:
    """Add the fields that a definition and its activities do not have.

    Args:
        composed: The definition with the default handlers and the parts that it copies.
        handled: The definition with the default handlers.
        defaults: The defaults.
    """
    composed = replace(composed, places=handled.places)
    definition, fields = _with_fields(composed.definition, defaults.spec)
    handlers = [name for name in HANDLERS if f"spec.{name}" in handled.places]
    taken = {
        key: names for key, names in (("fields", [*handlers, *fields.pop("", [])]), ("activityFields", fields)) if names
    }
    source = {"workflowDefaults": DEFAULTS_NAME, "generation": defaults.generation, **taken}
    return replace(
        composed,
        definition=definition,
        sources=(*composed.sources, source) if taken else composed.sources,
        missing=tuple(replace(each, path=composed.place(each.path)) for each in composed.missing),
        findings=tuple(replace(each, path=composed.place(each.path)) for each in composed.findings),
    )


def of_defaults(finding: Finding) -> Finding:
    """A finding about the WorkflowDefaults, with a path that says so."""
    return replace(finding, path=f"{_SUBJECT}: {finding.path}")


def within(path: str) -> str:
    """The path in the WorkflowDefaults of what is at a path of `PROBE` with them."""
    path = path.removeprefix(f"{_SUBJECT}: ")
    for probed, written in _PROBED:
        if path.startswith(probed):
            return written + path.removeprefix(probed)
    return path


def is_of_defaults(path: str) -> bool:
    """Whether a path is one in the WorkflowDefaults, so that a change of them can fix what is wrong there."""
    return path.startswith(_SUBJECT)


def _with_fields(definition: Json, defaults: Json) -> tuple[Json, dict[str, list[str]]]:
    """A definition with the fields that it did not have, and their names: its own by the empty name, others by activity."""
    ours = {name: defaults[name] for name in _OF_DEFINITIONS if name in defaults and definition.get(name) is None}
    names = {"": [*ours]} if ours else {}
    of_activities, activities = mapping(defaults.get("activities")), definition.get("activities")
    if not of_activities or not isinstance(activities, list):
        return {**definition, **ours}, names
    changed = []
    for each in activities:
        found = _activity(each, of_activities) if isinstance(each, dict) and "from" not in each else each
        changed.append(found)
        if found != each:
            names[text(each.get("name"))] = [name for name in found if found[name] != each.get(name)]
    return {**definition, **ours, "activities": changed}, names


def _activity(activity: Json, defaults: Json) -> Json:
    kind = next((name for name in map(json_name, WORK_KINDS) if activity.get(name) is not None), None)
    fields = {name: defaults[name] for name in _OF_ACTIVITIES if name in defaults}
    if kind == "worker" and "retryPolicy" in fields:
        fields["retryPolicy"] = {
            name: value for name, value in fields["retryPolicy"].items() if name != "maximumLosses"
        }
    if kind != "worker" and "podRetention" in defaults:
        fields["podRetention"] = defaults["podRetention"]
    completed = {**activity, **{name: value for name, value in fields.items() if activity.get(name) is None}}
    template = mapping(defaults.get("podTemplate"))
    if kind in {None, "worker"} or not template:
        return completed
    if kind == "podTemplate":
        return {**completed, "podTemplate": _template(mapping(activity["podTemplate"]), template)}
    if template.get("metadata"):
        completed["podMetadata"] = patched(template["metadata"], mapping(activity.get("podMetadata")))
    return _pod(completed, str(kind), mapping(template.get("spec")))


def _template(template: Json, default: Json) -> Json:
    """A pod template, completed with the default one. Its first container is the activity."""
    found = {**template}
    if default.get("metadata"):
        found["metadata"] = patched(default["metadata"], mapping(template.get("metadata")))
    spec = mapping(default.get("spec"))
    main, others = _containers(spec)
    its_spec = mapping(template.get("spec"))
    if spec and (containers := mappings(its_spec.get("containers"))):
        merged = patched(spec, {name: value for name, value in its_spec.items() if name != "containers"})
        first, *rest = containers
        known = {text(each.get("name")): each for each in others}
        merged["containers"] = [
            patched(main, first),
            *(patched(known.pop(text(each.get("name")), {}), each) for each in rest),
            *known.values(),
        ]
        found["spec"] = merged
    return found


def _pod(activity: Json, kind: str, spec: Json) -> Json:
    """An activity whose container Perdure puts into a pod, with the fields of the default pod that it does not set."""
    if not spec:
        return activity
    main, others = _containers(spec)
    work = mapping(activity[kind])
    patch = {name: value for name, value in spec.items() if name != "containers"}
    found = {**activity}
    if kind in {"container", "script"}:
        found[kind] = patched(main, work)
    else:
        if work.get("resources") is not None:
            main.pop("resources", None)
        if kind == "resource":
            patch.pop("serviceAccountName", None)
        if main:
            others.insert(0, {"name": DEFAULT_CONTAINER, **main})
    if others:
        patch["containers"] = others
    if patch:
        found["podSpecPatch"] = patched(patch, mapping(activity.get("podSpecPatch")))
    return found


def _containers(spec: Mapping[str, Any]) -> tuple[Json, list[Json]]:
    """The fields of the container of the activity, without its name, and the other containers."""
    main: Json = {}
    others: list[Json] = []
    for each in mappings(spec.get("containers")):
        if each.get("name") == DEFAULT_CONTAINER:
            main = {name: value for name, value in each.items() if name != "name"}
        else:
            others.append(each)
    return main, others


# Runs


def with_run_defaults(spec: WorkflowRunSpec, defaults: NamespaceDefaults) -> WorkflowRunSpec:
    """The spec of a run that starts, with the default timeout if the run sets none."""
    timeout = mapping(defaults.spec).get("runTimeout")
    if timeout is None or spec.run_timeout is not None or spec.execution_timeout:
        return spec
    return spec.model_copy(update={"run_timeout": parse_duration(timeout)})


def run_marks(run: Json, defaults: NamespaceDefaults) -> tuple[Json, Json]:
    """The default labels and annotations that a run does not have.

    Args:
        run: The WorkflowRun.
        defaults: The defaults.
    """
    metadata = mapping(defaults.spec.get("runMetadata"))

    def missing(field: str) -> Json:
        own = mapping(run["metadata"].get(field))
        wanted = mapping(metadata.get(field))
        return {
            name: value for name, value in wanted.items() if name not in own and not name.startswith(RESERVED_PREFIXES)
        }

    return missing("labels"), missing("annotations")
