"""JSON Schemas of the kinds, for editors and for tools that check manifests without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.api.common import API_VERSION, GROUP, VERSION
from perdure.api.schema import structural_schema

if TYPE_CHECKING:
    from perdure.api.common import Resource

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
