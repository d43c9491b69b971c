"""Base of all kinds: base models, metadata, and the messages about invalid manifests.

A message about an unknown field, or about a plain value in place of an object, suggests what was meant.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_serializer, model_validator

from perdure.api.labels import API_VERSION, API_VERSIONS
from perdure.api.rules import Rule, json_name
from perdure.api.state_versions import NEWEST, unreadable, version_of
from perdure.api.times import TIME_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic import GetJsonSchemaHandler, SerializerFunctionWrapHandler
    from pydantic.fields import FieldInfo
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import ErrorDetails, core_schema

CATEGORY = "perdure"
"""`kubectl get perdure` lists every kind."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    """The title."""

    path: str
    """JSONPath of the value."""

    description: str
    """What the column shows."""

    type: Literal["string", "integer", "boolean", "date"] = "string"
    """Type of the value; kubectl shows a `date` as the elapsed time."""

    wide: bool = False
    """Whether only `kubectl get -o wide` shows it."""


AGE = Column("Age", ".metadata.creationTimestamp", "How long ago the object was created", "date")
"""The last column of every kind."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The JSONPaths that the subresource `scale` of a kind reads and writes, for `kubectl scale` and autoscalers."""

    replicas: str
    """The wanted number of pods."""

    status_replicas: str
    """The existing number of pods."""

    selector: str
    """The label selector of the pods, as text."""


@dataclass(frozen=True, slots=True)
class KindInfo:
    """Metadata of a kind for its CRD."""

    plural: str
    """The resource name, as in paths and RBAC rules."""

    short_name: str
    """Short name for kubectl."""

    columns: tuple[Column, ...]
    """Columns of `kubectl get`, between the name and the age."""

    selectable: tuple[str, ...] = ()
    """JSONPaths of fields for `--field-selector`, at most eight."""

    has_status: bool = True
    """Whether the operator writes a status."""

    is_record: bool = False
    """Whether only operators write the spec."""

    scale: Scale | None = None
    """The subresource `scale`; None: the kind has none."""

    initial_phase: str = ""
    """The `status.phase` until the operator has written a status; empty: there is none."""


def condition_path(kind: str, field: str) -> str:
    """Return the JSONPath of a field of a condition, for a column.

    Args:
        kind: The type of the condition.
        field: The field, such as `status` or `reason`.

    Returns:
        A JSONPath that matches nothing while the condition is not set.
    """
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


class ApiModel(BaseModel):
    """Base of every model: camelCase in manifests, snake_case in Python, never changed in place."""

    model_config = ConfigDict(
        alias_generator=json_name,
        populate_by_name=True,
        use_attribute_docstrings=True,
        frozen=True,
        extra="ignore",
        ser_json_inf_nan="strings",
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules between the fields of this object; checked here and by the API server."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        """Treat null as an omitted field, as the API server does."""
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        broken = [rule.message for rule in self.rules if rule.holds is not None and not rule.holds(self)]
        if broken:
            raise ValueError("; ".join(broken))
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        result = handler.resolve_ref_schema(handler(schema))
        defaults = cls.model_construct().dump()
        for name, field_schema in result.get("properties", {}).items():
            # Pydantic writes defaults in its own format (`PT1M`); a manifest must have `1m`.
            field_schema.pop("default", None)
            if defaults.get(name) not in (None, [], {}):
                field_schema["default"] = defaults[name]
        if cls.model_config.get("extra") == "allow":
            result["x-kubernetes-preserve-unknown-fields"] = True
        if cls.rules:
            result["x-kubernetes-validations"] = [rule.as_validation() for rule in cls.rules]
        return result

    @classmethod
    def parse(cls, data: object) -> Self:
        """Read a manifest, by the camelCase names.

        Args:
            data: The decoded YAML or JSON object.

        Returns:
            The model, with defaults filled in.

        Raises:
            pydantic.ValidationError: The object is invalid; `mistakes` returns the messages.
        """
        return cls.model_validate(data, by_alias=True, by_name=False)

    def dump(self) -> dict[str, Any]:
        """Write the object as a manifest.

        Returns:
            JSON values by camelCase names, including defaults, without fields that are not set.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class SpecModel(ApiModel):
    """Base of models that users write; an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


class StatusModel(ApiModel):
    """Base of models that the operator writes.

    An unknown field comes from a newer version. Reading ignores it; before the operator writes a status, it checks
    `newer_part`.
    """

    @classmethod
    def newer_part(cls, status: Mapping[str, Any], reads: int = NEWEST) -> str:
        """Name the part of a status that only a newer version can read; empty if there is none.

        The API server checks each status by the schema of the CRD. So a value that is not valid here is one of a newer version,
        except a time: the API server accepts some that have no UTC time, such as those of the year 0, and no version writes them.

        Args:
            status: The status.
            reads: The newest state version that this operator reads.
        """
        if why := unreadable(version_of(status), reads):
            return why
        try:
            cls.model_validate(status, by_alias=True, by_name=False, extra="forbid")
        except ValidationError as error:
            newer = [each for each in mistakes_by_path(error) if not each[1].endswith(TIME_MESSAGE)]
            return unknown_field(error, "status") or next((f"`status.{path}`: {text}" for path, text in newer), "")
        return ""


class OwnerReference(StatusModel):
    """The object that owns this one; both are deleted together."""

    model_config = ConfigDict(extra="allow")

    api_version: str
    """API group and version of the owner."""

    kind: str
    """Kind of the owner."""

    name: str
    """Name of the owner."""

    uid: str
    """UID of the owner."""

    controller: bool = False
    """Whether the owner is the managing controller."""

    block_owner_deletion: bool = False
    """Whether deleting the owner in the foreground waits for this object."""


class ObjectMeta(StatusModel):
    """Kubernetes metadata; fields that are not declared here are kept."""

    model_config = ConfigDict(extra="allow")

    name: str = ""
    """Name of the object, unique per kind and namespace."""

    generate_name: str = ""
    """Prefix for a unique name that the API server generates."""

    namespace: str = ""
    """Namespace of the object."""

    uid: str = ""
    """Unique ID, set by the API server."""

    resource_version: str = ""
    """Changes with every write; for optimistic concurrency."""

    generation: int = 0
    """Incremented with every change of the spec."""

    creation_timestamp: str | None = None
    """When the API server stored the object, RFC 3339 in UTC."""

    deletion_timestamp: str | None = None
    """When the deletion was requested; None if it was not."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels, for selectors."""

    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations."""

    finalizers: list[str] = Field(default_factory=list)
    """Finalizers that must be removed before the object is deleted."""

    owner_references: list[OwnerReference] = Field(default_factory=list)
    """The owners of the object."""

    @model_serializer(mode="wrap")
    def _leave_out_empty(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in write(self).items() if value}


class Resource(ApiModel):
    """Base of all kinds."""

    model_config = ConfigDict(extra="forbid")

    info: ClassVar[KindInfo]
    """Metadata of the kind for its CRD."""

    api_version: str = Field(default=API_VERSION, pattern=f"^({'|'.join(API_VERSIONS)})$")
    """Version of the API: v1beta1 or v1alpha1 of perdure.dev, which have the same fields."""

    kind: str
    """Kind of the object."""

    metadata: ObjectMeta = ObjectMeta()
    """Name, namespace, labels and so on."""


def json_fields(kind: type[ApiModel]) -> frozenset[str]:
    """The names of the fields of a model in JSON."""
    return frozenset(field.alias or name for name, field in kind.model_fields.items())


def unknown_field(error: ValidationError, at: str) -> str:
    """Name a field that the API server has stored and this version does not know, so that it is of a newer one; empty if none.

    Args:
        error: The error of reading an object in the API server, which has removed what no version knows.
        at: The path of the object that was read, such as `spec`.
    """
    unknown = (each["loc"] for each in error.errors(include_url=False) if each["type"] == "extra_forbidden")
    return next((f"unknown field `{field_path((at, *location))}`" for location in unknown), "")


def field_path(location: tuple[int | str, ...]) -> str:
    """Write the path of a field as the API server does: `spec.steps[0].activity`.

    Args:
        location: The parts of the path, as pydantic reports them.

    Returns:
        The path; empty for the object itself.
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def mistakes(error: ValidationError) -> list[str]:
    """List the errors of a manifest, one sentence each.

    Args:
        error: The error of reading the manifest.

    Returns:
        Sentences such as ``spec.jitter: must be a duration: …``, in the order of the fields.
    """
    return [f"{path}: {sentence}".removeprefix(": ") for path, sentence in mistakes_by_path(error)]


def mistakes_by_path(error: ValidationError) -> list[tuple[str, str]]:
    """List the errors of a manifest, with their field paths.

    Args:
        error: The error of reading the manifest.

    Returns:
        Pairs such as ``("spec.jitter", "must be a duration: …")``, in the order of the fields.
    """
    root = _models().get(error.title)
    return [(field_path(detail["loc"]), _sentence(detail, root)) for detail in error.errors(include_url=False)]


def _models() -> dict[str, type[ApiModel]]:
    """All models by name, which is the title of a validation error."""
    found: dict[str, type[ApiModel]] = {}
    left = [ApiModel]
    while left:
        model = left.pop()
        found[model.__name__] = model
        left += model.__subclasses__()
    return found


_SENTENCES = {
    "extra_forbidden": "unknown field; check its spelling and its indentation",
    "missing": "must be set",
    "enum": "must be one of {expected}",
    "literal_error": "must be {expected}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "string_pattern_mismatch": "must match `{pattern}`",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
    "string_type": "must be a string; put it in quotes",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false, without quotes",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
}
"""Messages by pydantic's error type."""


def _sentence(detail: ErrorDetails, root: type[ApiModel] | None) -> str:
    if root is not None and detail["type"] == "extra_forbidden":
        suggestion = suggest_field(root, detail["loc"])
        if suggestion:
            return f"unknown field; did you mean `{suggestion}`?"
    if root is not None and detail["type"] == "model_type":
        suggestion = suggest_value(root, detail["loc"], detail["input"])
        if suggestion:
            return f"must be an object: `{suggestion}`"
    sentence = _SENTENCES.get(detail["type"])
    if sentence is None:
        return detail["msg"].removeprefix("Value error, ")
    return sentence.format(**detail.get("ctx", {}))


Location = tuple[int | str, ...]
"""The path of a field, as pydantic reports it."""

_NAMES_IN_OTHER_SYSTEMS: Final = {
    # CronJob, CronWorkflow
    "schedule": "cron",
    "schedules": "cron",
    "timezone": "timeZone",
    "concurrencyPolicy": "overlapPolicy",
    "startingDeadlineSeconds": "catchupWindow",
    "suspend": "paused",
    "successfulJobsHistoryLimit": "successfulRunsHistoryLimit",
    "failedJobsHistoryLimit": "failedRunsHistoryLimit",
    "jobTemplate": "workflowRunTemplate",
    "backoffLimit": "maximumAttempts",
    "workflowSpec": "workflowRunTemplate",
    # Workflows of Argo
    "activeDeadlineSeconds": "scheduleToCloseTimeout",
    "arguments": "input",
    "dependencies": "needs",
    "depends": "needs",
    "dependsOn": "needs",
    "if": "when",
    "onExit": "finally",
    "retryStrategy": "retryPolicy",
    "withItems": "forEach",
    "withParam": "forEach",
    "workflowTemplateRef": "workflow",
    "limit": "maximumAttempts",
    # Temporal
    "maxAttempts": "maximumAttempts",
    "action": "workflowRunTemplate",
    "args": "input",
    "calendar": "calendars",
    "cronExpressions": "cron",
    "cronString": "cron",
    "endAt": "endTime",
    "excludeCalendar": "exclude",
    "id": "workflowId",
    "interval": "intervals",
    "note": "notes",
    "overlap": "overlapPolicy",
    "skip": "exclude",
    "startAt": "startTime",
    "timezoneName": "timeZone",
    "timeout": "startToCloseTimeout",
    "workflowExecutionTimeout": "executionTimeout",
    "workflowRunTimeout": "runTimeout",
    "workflowTaskTimeout": "taskTimeout",
}
"""Names of fields in other systems, and ours. A suggestion applies if the object has the field."""

_PLAIN_VALUE_FIELDS: Final = ("name", "duration")
"""The fields that a plain value in place of an object probably is."""

_MIN_SIMILARITY: Final = 0.7
"""Minimum similarity of two spellings, as difflib computes it."""

_DEPTH: Final = 2
"""How many levels deep to search for a misplaced field."""

_MAX_SHOWN: Final = 60
"""Maximum length of a value in a suggestion."""


def suggest_field(root: type[BaseModel], location: Location) -> str:
    """Suggest a field for one that does not exist.

    Args:
        root: The model of the whole object.
        location: The path of the field.

    Returns:
        Such as ``overlapPolicy``, or ``exponential.maximumAttempts`` for a nested field; empty if none is similar.
    """
    model, name = _model_at(root, location[:-1]), str(location[-1])
    if model is None:
        return ""
    known = _fields(model)
    other = _NAMES_IN_OTHER_SYSTEMS.get(name)
    if other in known:
        return str(other)
    same = [each for each in known if each.casefold() == name.casefold()]
    below = [] if same else _below(model, [name, *([other] if other else [])])
    near = same or below or get_close_matches(name, known, 1, _MIN_SIMILARITY)
    return near[0] if near else ""


def suggest_value(root: type[BaseModel], location: Location, value: object) -> str:
    """Suggest an object for a plain value in its place.

    Returns:
        Such as ``sleep: {duration: 5s}``; empty if unknown.
    """
    model = _model_at(root, location)
    if model is None or not isinstance(value, str | int) or isinstance(value, bool) or len(str(value)) > _MAX_SHOWN:
        return ""
    inner = _within(model, value)
    if not inner:
        return ""
    return f"{location[-1]}: {inner}" if location and isinstance(location[-1], str) else inner


def _within(model: type[BaseModel], value: str | int) -> str:
    fields = _fields(model)
    required = [name for name, field in fields.items() if field.is_required()]
    name = (
        required[0]
        if len(required) == 1
        else next((each for each in _PLAIN_VALUE_FIELDS if each in fields and not required), "")
    )
    if not name:
        return ""
    inner = _strip(fields[name].annotation)
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        shown = _within(inner, value)
        return f"{{{name}: {shown}}}" if shown else ""
    return "" if get_origin(inner) in {list, dict} else f"{{{name}: {_plain(value)}}}"


def _plain(value: str | int) -> str:
    """The value as YAML inside braces."""
    text = str(value)
    return text if not set(text) & set("{}[],:#'\"\n&*!|>%@`") and text == text.strip() else json.dumps(value)


def _below(model: type[BaseModel], names: list[str]) -> list[str]:
    """The path of the only nested field with one of the names, on the nearest level."""
    level = [("", model)]
    for _ in range(_DEPTH):
        level = [(f"{path}{name}.", each) for path, found in level for name, each in _parts(found)]
        for name in names:
            found_here = [f"{path}{name}" for path, each in level if name in _fields(each)]
            if len(found_here) == 1:
                return found_here
    return []


def _parts(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in _fields(model).items():
        inner = _strip(field.annotation)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield name, inner


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields by their names in manifests."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model_at(root: type[BaseModel], location: Location) -> type[BaseModel] | None:
    """The model at a path; None if it has none."""
    found: Any = root
    for part in location:
        found = _strip(found)
        if isinstance(part, int):
            found = next(iter(get_args(found)), None) if get_origin(found) in {list, tuple} else None
        elif isinstance(found, type) and issubclass(found, BaseModel):
            field = _fields(found).get(part)
            found = field.annotation if field is not None else None
        else:
            found = get_args(found)[1] if get_origin(found) is dict else None
    found = _strip(found)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def _strip(annotation: Any) -> Any:
    """The type without annotations and without None."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in {Union, UnionType}:
            annotation = next(each for each in get_args(annotation) if each is not type(None))
        else:
            return annotation
