"""Structural schemas, the dialect of JSON Schema that the API server accepts, from pydantic models.

A structural schema has no `$ref`, `title`, `const` or union with null, so the output of pydantic is rewritten. It is rejected
if a field has no description for `kubectl explain`, or if a list, string or map has no bound, which the cost budget of CEL
needs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from perdure.api.docstrings import member_docs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.api.common import ApiModel, Resource

Schema = dict[str, Any]

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_LEFT_OUT = ("$defs", "title", "additionalProperties")


class SchemaError(Exception):
    """A model is not valid for a CRD; the message names the field and what it lacks."""


def structural_schema(kind: type[Resource]) -> Schema:
    """Create the `openAPIV3Schema` of a kind.

    Args:
        kind: The model of the kind.

    Returns:
        The schema, with the fields of Kubernetes as the API server expects them.

    Raises:
        SchemaError: A field lacks its description or its bound.
    """
    raw = kind.model_json_schema(by_alias=True)
    own = {name: raw["properties"].pop(name) for name in ("apiVersion", "kind", "metadata")}
    schema = _Writer(raw.get("$defs", {}), _enums(kind)).rewrite(raw, kind.__name__)
    properties = schema["properties"] = {
        **{name: {"type": "string", "description": own[name]["description"]} for name in ("apiVersion", "kind")},
        "metadata": {"type": "object"},
        **schema["properties"],
    }
    schema["required"] = ["spec"]
    if kind.info.has_status:
        # The operator writes the status; clients see something before that.
        properties["status"].pop("default", None)
        # One writer, one entry in `managedFields`: the API server would otherwise track every field at each write.
        properties["status"]["x-kubernetes-map-type"] = "atomic"
        if kind.info.initial_phase:
            properties["status"]["default"] = {"phase": kind.info.initial_phase}
    return {key: schema[key] for key in ("description", "type", "required", "properties") if key in schema} | {
        key: value for key, value in schema.items() if key.startswith("x-")
    }


def _enums(model: type[ApiModel]) -> dict[str, type[StrEnum]]:
    """Find the enumerations that a model uses, by name."""
    return {enum.__name__: enum for enum in _walk(model, set())}


def _walk(annotation: Any, seen: set[int]) -> Iterator[type[StrEnum]]:
    if id(annotation) in seen:
        return
    seen.add(id(annotation))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _walk(argument, seen)
    for field in getattr(annotation, "model_fields", {}).values():
        yield from _walk(field.annotation, seen)


class _Writer:
    """Rewrites one schema and resolves its references."""

    def __init__(self, definitions: Schema, enums: dict[str, type[StrEnum]]) -> None:
        self._definitions = definitions
        self._enums = enums

    def rewrite(self, node: Schema, path: str) -> Schema:
        """Rewrite a schema and everything in it.

        Args:
            node: The schema from pydantic.
            path: Its path, for messages.

        Returns:
            The structural schema.

        Raises:
            SchemaError: Something is missing, or the schema has no structural form.
        """
        node = self._resolve(node, path)
        schema: Schema = {}
        if "description" in node:
            schema["description"] = _paragraphs(node["description"])
        schema |= {key: value for key, value in node.items() if key not in _LEFT_OUT and key not in schema}
        if "const" in schema:
            schema["enum"] = [schema.pop("const")]
        if not schema.get("properties", True):
            del schema["properties"]
        elif "properties" in node:
            schema["properties"] = {
                name: self._field(field, f"{path}.{name}") for name, field in node["properties"].items()
            }
        elif isinstance(node.get("additionalProperties"), dict):
            schema["additionalProperties"] = self.rewrite(node["additionalProperties"], f"{path}.*")
        if "items" in node:
            schema["items"] = self.rewrite(node["items"], f"{path}[]")
            schema["items"].pop("description", None)
        self._refuse(schema, path)
        return schema

    def _field(self, node: Schema, path: str) -> Schema:
        schema = self.rewrite(node, path)
        if not schema.get("description"):
            raise SchemaError(f"{path} must have a description: a docstring under the field")
        return schema

    def _resolve(self, node: Schema, path: str) -> Schema:
        """Resolve references, and leave out the null of an optional field."""
        while "$ref" in node or "anyOf" in node:
            siblings = {key: value for key, value in node.items() if key not in ("$ref", "anyOf")}
            if "$ref" in node:
                name = node["$ref"].rsplit("/", 1)[-1]
                inner = self._definitions[name]
                if name in self._enums:
                    inner = {key: value for key, value in inner.items() if key != "description"}
                    siblings["description"] = _with_values(siblings.get("description", ""), self._enums[name])
            else:
                choices = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
                if len(choices) != 1:
                    raise SchemaError(f"{path} must have one type: a union has no structural schema")
                inner = choices[0]
            node = inner | siblings
        return node

    @staticmethod
    def _refuse(schema: Schema, path: str) -> None:
        kind = schema.get("type")
        if kind is None and not schema.get(_PRESERVE) and not schema.get("x-kubernetes-int-or-string"):
            raise SchemaError(f"{path} must have a type, or be free-form JSON: `fields.Json`")
        if kind == "array" and not {"maxItems", "x-kubernetes-list-type"} <= schema.keys():
            raise SchemaError(f"{path} must have `atomic_list`, `set_list` or `map_list` with its bound")
        if kind == "string" and "maxLength" not in schema and "enum" not in schema:
            raise SchemaError(f"{path} must have a `max_length`")
        if "additionalProperties" in schema and "maxProperties" not in schema:
            raise SchemaError(f"{path} must have a `max_length`: the maximum number of entries")
        if kind == "number":
            raise SchemaError(f"{path} must not be a float: use a whole number, or a string")


def _paragraphs(text: str) -> str:
    """Join the lines of each paragraph; blank lines separate paragraphs."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _with_values(description: str, enum: type[StrEnum]) -> str:
    """Append the meaning of each value to a description."""
    values = "\n\n".join(f"- `{value}`: {text}" for value, text in member_docs(enum).items())
    return f"{description}\n\n{values}"
