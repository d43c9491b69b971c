"""Schemas of the kinds from their models: structural schemas for the CRDs, and JSON Schemas for editors and tools.

A structural schema, the dialect of JSON Schema that the API server accepts, has no `$ref`, `title`, `const` or union with null.
So the output of pydantic is rewritten. It is rejected if a field has no description for `kubectl explain`, or if a list, string
or map has no bound, which the cost budget of CEL needs. A JSON Schema checks manifests without a cluster.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from perdure.api.labels import API_VERSION, GROUP, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.api.models import ApiModel, Resource

Schema = dict[str, Any]

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_OMITTED = ("$defs", "title", "additionalProperties")


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
        schema |= {key: value for key, value in node.items() if key not in _OMITTED and key not in schema}
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


def member_docs(enum: type[StrEnum]) -> dict[str, str]:
    """Read the docstring under each member of an enumeration, which Python does not keep.

    Args:
        enum: An enumeration whose source file exists.

    Returns:
        The docstring of each member on one line, by the value of the member, in the order of the members.

    Raises:
        ValueError: A member has no docstring.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(enum)))
    class_body = tree.body[0]
    assert isinstance(class_body, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, following in zip(class_body.body, class_body.body[1:], strict=False):
        if isinstance(statement, ast.Assign) and isinstance(following, ast.Expr):
            name = ast.unparse(statement.targets[0])
            found[enum[name].value] = " ".join(ast.literal_eval(following.value).split())
    missing = [member.name for member in enum if member.value not in found]
    if missing:
        raise ValueError(f"{enum.__name__} must have a docstring under {', '.join(missing)}")
    return found


_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_EXTENSION: Final = "x-kubernetes-"
_INTEGER_OR_STRING: Final = "x-kubernetes-int-or-string"
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"


def schema_path(kind: type[Resource]) -> str:
    """Return the path of the schema of a kind in a folder of schemas, as kubeconform and the CRDs-catalog arrange them."""
    return f"{GROUP}/{kind.__name__.lower()}_{VERSION}.json"


def json_schema(kind: type[Resource]) -> dict[str, Any]:
    """Create the JSON Schema of the manifests of a kind.

    An unknown field is an error. The rules between fields are missing, because JSON Schema has no CEL; so is the status,
    which only the operator writes.

    Args:
        kind: The model of the kind.
    """
    schema: dict[str, Any] = _converted(structural_schema(kind))
    properties = schema["properties"]
    properties["apiVersion"]["const"] = API_VERSION
    properties["kind"]["const"] = kind.__name__
    if "status" in properties:
        properties["status"] = {"type": "object", "description": properties["status"]["description"]}
    required = ["apiVersion", "kind", "metadata", *schema["required"]]
    return {"$schema": _DRAFT, "title": kind.__name__, **schema, "required": required}


def _converted(schema: Any) -> Any:
    """Convert a structural schema, or a part of it."""
    if isinstance(schema, list):
        return list(map(_converted, schema))
    if not isinstance(schema, dict):
        return schema
    own = {key: each for key, each in schema.items() if key != "properties" and not key.startswith(_EXTENSION)}
    found = {key: _converted(each) for key, each in own.items()}
    if "properties" in schema:
        found["properties"] = {name: _converted(each) for name, each in schema["properties"].items()}
        if not schema.get(_OPEN):
            found.setdefault("additionalProperties", False)
    if schema.get(_INTEGER_OR_STRING):
        found["type"] = ["integer", "string"]
    if found.pop("nullable", False) and "type" in found:
        found["type"] = [found["type"], "null"]
    return found
