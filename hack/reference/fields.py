"""The pages of the fields of all kinds, from the models in operator/perdure/api; one page for each module."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

from perdure.api import crdgen
from perdure.api.crdgen import member_docs
from perdure.api.models import ApiModel, ObjectMeta, OwnerReference, Resource
from reference.markdown import page, table

_TITLES: Final = {
    "workflow": "Workflow",
    "steps": "Steps",
    "artifact": "Artifacts",
    "workspace": "Workspaces",
    "workflowrun": "WorkflowRun",
    "schedule": "Schedule",
    "retrypolicy": "RetryPolicy",
    "workflowrevision": "WorkflowRevision",
    "workflowlimit": "WorkflowLimit",
    "workflowdefaults": "WorkflowDefaults",
    "webhook": "Webhook",
    "workerdeployment": "WorkerDeployment",
    "operation": "Operation",
    "deadletter": "DeadLetter",
    "historysegment": "HistorySegment",
    "payload": "Payload",
    "artifactset": "ArtifactSet",
    "cachedresult": "CachedResult",
    "status": "Conditions and commits",
}
"""Title of the page of each module, in the order of the index."""

_HEAD: Final = """\
These pages list all fields of Perdure's kinds, as `kubectl explain` shows them. The API server rejects a manifest
that violates the rules and names the field. All kinds have the `apiVersion` `perdure.dev/v1alpha1`."""
_DURATION: Final = "must be a duration"
_OMITTED: Final = (ObjectMeta, OwnerReference)
"""Kubernetes documents these."""


def pages() -> dict[str, str]:
    """Write an index, and a page for each module with models.

    Raises:
        LookupError: A module with models has no title.
    """
    if untitled := {_module(each) for each in models() if each not in _OMITTED} - _TITLES.keys():
        raise LookupError(f"add titles for {', '.join(sorted(untitled))} to _TITLES")
    found = {
        module: [each for each in models() if _module(each) == module and each not in _OMITTED] for module in _TITLES
    }
    modules = {model.__name__: module for module, each in found.items() for model in each}
    rows = [
        (f"[{_TITLES[module]}]({module}.md)", ", ".join(f"`{model.__name__}`" for model in each))
        for module, each in found.items()
    ]
    index = page("Fields", "the models in operator/perdure/api", _HEAD, table(("page", "objects"), rows))
    return {"fields/README.md": index} | {
        f"fields/{module}.md": page(
            _TITLES[module],
            f"operator/perdure/api/kinds/{module}.py",
            *(part for model in each for part in _parts(model, module, modules)),
        )
        for module, each in found.items()
    }


def models() -> list[type[ApiModel]]:
    """Find the models of all kinds, outer ones first."""
    found = dict.fromkeys(each for kind in crdgen.KINDS for each in _walk(kind, set()))
    return [each for each in found if issubclass(each, ApiModel)]


def enums(model: type[ApiModel]) -> dict[str, type[StrEnum]]:
    """Find the enumerations in the fields of a model, by name."""
    return {each.__name__: each for each in _walk(model, set()) if issubclass(each, StrEnum)}


def _walk(annotation: Any, visited: set[type]) -> Iterator[type]:
    """Yield the classes in an annotation, and those in their fields."""
    if annotation in visited:
        return
    if isinstance(annotation, type):
        visited.add(annotation)
        yield annotation
        for field in getattr(annotation, "model_fields", {}).values():
            yield from _walk(field.annotation, visited)
    for argument in getattr(annotation, "__args__", ()):
        yield from _walk(argument, visited)


def _module(model: type) -> str:
    return model.__module__.rpartition(".")[2]


def _summary(model: type[ApiModel]) -> str:
    return (model.__doc__ or "").strip().split("\n\n")[0]


def _parts(model: type[ApiModel], here: str, modules: dict[str, str]) -> list[str]:
    if issubclass(model, Resource):
        return [f"{_summary(model)} Short name for kubectl: `{model.info.short_name}`."]
    return [f"## {model.__name__}", " ".join((model.__doc__ or "").split()), *_Fields(model, here, modules).parts()]


class _Fields:
    """The table of the fields of one model."""

    def __init__(self, model: type[ApiModel], here: str, modules: dict[str, str]) -> None:
        self._schema = model.model_json_schema(by_alias=True)
        self._definitions = self._schema.get("$defs", {})
        self._enums = enums(model)
        self._here = here
        self._modules = modules

    def parts(self) -> Iterator[str]:
        """Yield the table, and the rules about several fields."""
        required = self._schema.get("required", ())
        yield table(
            ("field", "type", "meaning"),
            (
                (f"`{name}`" + ("" if name not in required else ", required"), self._type(each), self._meaning(each))
                for name, each in self._schema.get("properties", {}).items()
            ),
        )
        rules = [f"- {rule['message']}" for rule in self._schema.get("x-kubernetes-validations", ())]
        if rules:
            yield "The API server checks:"
            yield "\n".join(rules)

    def _type(self, schema: dict[str, Any]) -> str:
        """Name the type of a field; that of another model is a link."""
        match schema:
            case {"$ref": reference}:
                return self._named(reference.rpartition("/")[2])
            case {"anyOf": choices}:
                return " or ".join(dict.fromkeys(self._type(each) for each in choices if each.get("type") != "null"))
            case {"type": "array", "items": items}:
                return f"list of {self._type(items)}"
            case {"type": "object", "additionalProperties": dict(values)}:
                return f"map of {self._type(values)}"
            case _:
                return _plain(schema)

    def _named(self, name: str) -> str:
        if name in self._enums:
            return "string"
        if name not in self._modules:
            return name
        page_name = "" if self._modules[name] == self._here else f"{self._modules[name]}.md"
        return f"[{name}]({page_name}#{name.lower()})"

    def _meaning(self, schema: dict[str, Any]) -> str:
        """Return the description of a field, and the values of an enumeration."""
        names = [each.get("$ref", "").rpartition("/")[2] for each in (schema, *schema.get("anyOf", ()))]
        choices = [
            f"`{value}`: {meaning}"
            for name in names
            if name in self._enums
            for value, meaning in member_docs(self._enums[name]).items()
        ]
        description = schema.get("description") or self._definitions[names[0]]["description"]
        return " ".join((description, *choices))


def _plain(schema: dict[str, Any]) -> str:
    """Name the type of a field that is not of other types; strings with a format have the name of the format."""
    match schema:
        case {"format": "date-time"}:
            return "time"
        case {"x-kubernetes-validations": [{"message": str(message)}, *_]} if message.startswith(_DURATION):
            return "duration"
        case _:
            return str(schema.get("type", "any"))
