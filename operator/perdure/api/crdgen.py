"""Generate the CRDs and their copies in the Helm chart from the models, and JSON Schemas for editors and tools.

`python -m perdure.api.crdgen` writes `crds/*.yaml` and `charts/perdure/templates/crds/*.yaml` to the checkout; with `--check`
it writes nothing and fails if a file is stale.

A structural schema, the dialect of JSON Schema that the API server accepts, has no `$ref`, `title`, `const` or union with null.
So the output of pydantic is rewritten. It is rejected if a field has no description for `kubectl explain`, or if a list, string
or map has no bound, which the cost budget of CEL needs. A JSON Schema checks manifests without a cluster.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import textwrap
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from perdure.api.kinds.artifactset import ArtifactSet
from perdure.api.kinds.cachedresult import CachedResult
from perdure.api.kinds.deadletter import DeadLetter
from perdure.api.kinds.historysegment import HistorySegment
from perdure.api.kinds.operation import Operation
from perdure.api.kinds.payload import Payload
from perdure.api.kinds.retrypolicy import RetryPolicy
from perdure.api.kinds.schedule import Schedule
from perdure.api.kinds.webhook import Webhook
from perdure.api.kinds.workerdeployment import WorkerDeployment
from perdure.api.kinds.workflow import Workflow
from perdure.api.kinds.workflowdefaults import WorkflowDefaults
from perdure.api.kinds.workflowlimit import WorkflowLimit
from perdure.api.kinds.workflowrevision import WorkflowRevision
from perdure.api.kinds.workflowrun import WorkflowRun
from perdure.api.labels import GROUP, SERVED_VERSIONS, VERSION
from perdure.api.models import AGE, CATEGORY, ApiModel, Column, Resource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


Schema = dict[str, Any]

_EXTENSION: Final = "x-kubernetes-"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INTEGER_OR_STRING: Final = "x-kubernetes-int-or-string"
_RULES: Final = "x-kubernetes-validations"
_OMITTED: Final = ("$defs", "title", "additionalProperties")


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
    standard = {name: raw["properties"].pop(name) for name in ("apiVersion", "kind", "metadata")}
    schema = _Writer(raw.get("$defs", {}), _enums(kind)).rewrite(raw, kind.__name__)
    properties = schema["properties"] = {
        **{name: {"type": "string", "description": standard[name]["description"]} for name in ("apiVersion", "kind")},
        "metadata": {"type": "object"},
        **schema["properties"],
    }
    schema["required"] = ["spec"]
    if kind.info.is_record:
        _keep_unknown_fields(properties["spec"])
    if kind.info.has_status:
        _keep_unknown_fields(properties["status"])
        # The operator writes the status; clients see something before that.
        properties["status"].pop("default", None)
        # One writer, one entry in `managedFields`: the API server would otherwise track every field at each write.
        properties["status"]["x-kubernetes-map-type"] = "atomic"
        if kind.info.initial_phase:
            properties["status"]["default"] = {"phase": kind.info.initial_phase}
    return {key: schema[key] for key in ("description", "type", "required", "properties") if key in schema} | {
        key: value for key, value in schema.items() if key.startswith("x-")
    }


def _keep_unknown_fields(schema: Schema) -> None:
    """Let the API server keep the fields of a newer version in what only operators write, in place.

    After a rollback, a CRD meets objects of a later one. If it removed their fields, an older operator could not see that it must
    not touch the object, and the newer one would miss them.
    """
    if "properties" in schema:
        schema[_PRESERVE] = True
    for part in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(part, dict):
            _keep_unknown_fields(part)


def _enums(model: type[ApiModel]) -> dict[str, type[StrEnum]]:
    """Find the enumerations that a model uses, by name."""
    return {enum.__name__: enum for enum in _walk(model, set())}


def _walk(annotation: Any, visited: set[int]) -> Iterator[type[StrEnum]]:
    if id(annotation) in visited:
        return
    visited.add(id(annotation))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _walk(argument, visited)
    for field in getattr(annotation, "model_fields", {}).values():
        yield from _walk(field.annotation, visited)


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
        if kind is None and not schema.get(_PRESERVE) and not schema.get(_INTEGER_OR_STRING):
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


def schema_path(kind: type[Resource], version: str) -> str:
    """Return the path of the schema of a kind in a folder of schemas, as kubeconform and the CRDs-catalog arrange them."""
    return f"{GROUP}/{kind.__name__.lower()}_{version}.json"


def json_schemas(kind: type[Resource]) -> dict[str, dict[str, Any]]:
    """Create the JSON Schemas of the manifests of a kind, by the version of the API, such as `v1beta1`.

    An unknown field is an error. The rules between fields are missing, because JSON Schema has no CEL; so is the status,
    which only the operator writes.
    """
    structural = structural_schema(kind)  # takes almost all of the time
    return {version: _json_schema(kind, version, structural) for version in SERVED_VERSIONS}


def _json_schema(kind: type[Resource], version: str, structural: Schema) -> dict[str, Any]:
    schema: dict[str, Any] = _converted(structural)
    properties = schema["properties"]
    properties["apiVersion"]["const"] = f"{GROUP}/{version}"
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
    keywords = {key: each for key, each in schema.items() if key != "properties" and not key.startswith(_EXTENSION)}
    found = {key: _converted(each) for key, each in keywords.items()}
    if "properties" in schema:
        found["properties"] = {name: _converted(each) for name, each in schema["properties"].items()}
        if not schema.get(_PRESERVE):
            found.setdefault("additionalProperties", False)
    if schema.get(_INTEGER_OR_STRING):
        found["type"] = ["integer", "string"]
    if found.pop("nullable", False) and "type" in found:
        found["type"] = [found["type"], "null"]
    return found


def kustomize_schema() -> dict[str, Any]:
    """Create the OpenAPI definitions with which kustomize merges lists in patches by the keys of their entries.

    kustomize has the schemas of Kubernetes' own kinds only, and replaces the lists of others. A kustomization names the file with
    these definitions in `openapi.path` (https://kubectl.docs.kubernetes.io/references/kustomize/kustomization/openapi/). A patch
    still replaces `steps`: kustomize puts the entries of the patch first, and the order of steps counts.
    """
    found = {}
    for kind in KINDS:
        schema = _mergeable(structural_schema(kind))
        schema["properties"].pop("status", None)
        for version in SERVED_VERSIONS:
            named = [{"group": GROUP, "kind": kind.__name__, "version": version}]
            found[f"dev.perdure.{version}.{kind.__name__}"] = {**schema, f"{_EXTENSION}group-version-kind": named}
    return {"definitions": found}


def _mergeable(schema: Schema, name: str = "") -> Schema:
    """Return the types in the structural schema of a field, and how a patch merges its lists."""
    found: Schema = {"type": schema["type"]} if "type" in schema else {}
    if "properties" in schema:
        found["properties"] = {name: _mergeable(field, name) for name, field in schema["properties"].items()}
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            found[part] = _mergeable(schema[part])
    if schema.get(f"{_EXTENSION}list-type") == "map" and name != "steps":
        (key,) = schema[f"{_EXTENSION}list-map-keys"]
        found |= {f"{_EXTENSION}patch-merge-key": key, f"{_EXTENSION}patch-strategy": "merge"}
    return found


KINDS: tuple[type[Resource], ...] = (
    Workflow,
    WorkflowRun,
    Schedule,
    RetryPolicy,
    WorkflowLimit,
    WorkflowDefaults,
    Webhook,
    WorkerDeployment,
    Operation,
    DeadLetter,
    HistorySegment,
    Payload,
    ArtifactSet,
    CachedResult,
    WorkflowRevision,
)
"""All kinds of the group."""

HEADER = "# Written by `python -m perdure.api.crdgen` from the models in operator/perdure/api; do not edit.\n"
"""First line of each YAML file."""

CHECKOUT = Path(__file__).resolve().parents[3]
"""The checkout that contains this module."""


class _Dumper(yaml.SafeDumper):
    """Writes YAML without anchors, and multi-line strings as blocks."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - as PyYAML declares it
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def custom_resource_definition(kind: type[Resource]) -> dict[str, Any]:
    """Create the CRD of a kind.

    Args:
        kind: The model of the kind.

    Returns:
        The CustomResourceDefinition as a manifest.

    Raises:
        SchemaError: The model is not valid for a CRD.
    """
    name, info = kind.__name__, kind.info
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{info.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": info.plural,
                "singular": name.lower(),
                "shortNames": [info.short_name],
                "categories": [CATEGORY],
            },
            "versions": [_version(kind, version) for version in SERVED_VERSIONS],
            "conversion": {"strategy": "None"},
        },
    }


def _version(kind: type[Resource], name: str) -> dict[str, Any]:
    """Create a version of a CRD, which must be small enough for client-side `kubectl apply`.

    Where possible, only the preferred version, which `kubectl explain` shows, has descriptions. A definition in a WorkflowRun has
    the fields of a Workflow, and the template of a Schedule those of a WorkflowRun: these kinds describe them. A definition in a
    Schedule has no rules between fields; the operator reports their violations in the condition Ready.
    """
    info, schema = kind.info, structural_schema(kind)
    if kind is WorkflowRun:
        spec = schema["properties"]["spec"]["properties"]
        spec["inline"] = _reduced(spec["inline"], rules=True) | {"description": spec["inline"]["description"]}
    elif kind is Schedule:
        template = schema["properties"]["spec"]["properties"]["workflowRunTemplate"]["properties"]["spec"]
        _describe_fields_only(template)
        inline = template["properties"]["inline"]
        template["properties"]["inline"] = _reduced(inline) | {"description": inline["description"]}
    # If all versions have the same selectable fields, the API server requires that their schemas are the same, too.
    if name != SERVED_VERSIONS[0] and not info.selectable:
        schema = _reduced(schema, rules=True)
    version: dict[str, Any] = {"name": name, "served": True, "storage": name == VERSION}
    if info.has_status:
        version["subresources"] = {"status": {}}
    if info.scale is not None:
        version["subresources"]["scale"] = {
            "specReplicasPath": info.scale.replicas,
            "statusReplicasPath": info.scale.status_replicas,
            "labelSelectorPath": info.scale.selector,
        }
    if info.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in info.selectable]
    version["additionalPrinterColumns"] = [_column(column) for column in (*info.columns, AGE)]
    version["schema"] = {"openAPIV3Schema": schema}
    return version


def _describe_fields_only(schema: Schema) -> None:
    """Leave out the descriptions below the fields of an object, in place: another kind describes them."""
    for name, field in schema["properties"].items():
        schema["properties"][name] = _reduced(field, rules=True) | {"description": field["description"]}


def minimal_definition(manifest: dict[str, Any]) -> dict[str, Any]:
    """Create a CRD for client-side `kubectl apply`, which stores the whole CRD a second time, in an annotation.

    It has the same fields, types, bounds, and defaults, and protects what must not change. It lacks descriptions and the other
    rules, so the API server accepts more objects; the operator reports their mistakes in conditions.

    Args:
        manifest: The CRD; not changed.

    Returns:
        A CRD of less than half the size that the annotation may have.
    """
    versions = [
        version | {"schema": {"openAPIV3Schema": _reduced(version["schema"]["openAPIV3Schema"])}}
        for version in manifest["spec"]["versions"]
    ]
    return manifest | {"spec": manifest["spec"] | {"versions": versions}}


def _reduced(schema: Schema, *, rules: bool = False) -> Schema:
    """Return a structural schema without descriptions, and with all rules or only those on changes."""
    found = {key: value for key, value in schema.items() if key != "description"}
    if _RULES in found and not rules:
        found[_RULES] = [rule for rule in found[_RULES] if "oldSelf" in rule["rule"]]
        if not found[_RULES]:
            del found[_RULES]
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = _reduced(found[key], rules=rules)
    if "properties" in found:
        found["properties"] = {name: _reduced(field, rules=rules) for name, field in found["properties"].items()}
    return found


def _column(column: Column) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    entry["description"] = column.description
    if column.wide:
        entry["priority"] = 1
    return entry


@cache
def crd_yaml(kind: type[Resource]) -> str:
    """Write the CRD of a kind as YAML.

    Args:
        kind: The model of the kind.

    Returns:
        The text of the file in `crds/`.

    Raises:
        SchemaError: The model is not valid for a CRD.
    """
    body = yaml.dump(custom_resource_definition(kind), Dumper=_Dumper, sort_keys=False, width=116, allow_unicode=True)
    return HEADER + body


def chart_template(crd: str) -> str:
    """Create the chart template of a CRD.

    Args:
        crd: The text of the file in `crds/`.

    Returns:
        The same, installed if `crds.enabled` is true, and kept on uninstall if `crds.keep` is true. `crds.v1beta1` says whether
        this version is served.
    """
    # Text in a description that looks like a template must stay unchanged.
    body = crd.removeprefix(HEADER).replace("{{", '{{ "{{" }}')
    body = body.replace(
        "  - name: v1beta1\n    served: true\n", "  - name: v1beta1\n    served: {{ .Values.crds.v1beta1 }}\n", 1
    )
    head, metadata, rest = body.partition("metadata:\n")
    return (
        f"{HEADER}{{{{- if .Values.crds.enabled }}}}\n{head}{metadata}"
        "  labels:\n"
        '    {{- include "perdure.labels" . | nindent 4 }}\n'
        "  {{- if .Values.crds.keep }}\n"
        "  annotations:\n"
        "    helm.sh/resource-policy: keep\n"
        "  {{- end }}\n"
        f"{rest}{{{{- end }}}}\n"
    )


def generated_files() -> dict[str, str]:
    """Generate all files.

    Returns:
        The text of each, by its path in the checkout.

    Raises:
        SchemaError: A model is not valid for a CRD.
    """
    files: dict[str, str] = {}
    for kind in KINDS:
        text = crd_yaml(kind)
        files[f"crds/{GROUP}_{kind.info.plural}.yaml"] = text
        files[f"charts/perdure/templates/crds/{GROUP}_{kind.info.plural}.yaml"] = chart_template(text)
    return files


def stale_files(root: Path, files: dict[str, str]) -> list[str]:
    """Find the generated files that are not up to date.

    Args:
        root: The checkout.
        files: The text of each file, by its path in the checkout.

    Returns:
        Paths of files that are missing, differ, or must not exist.
    """
    existing = {
        path.relative_to(root).as_posix()
        for folder in ("crds", "charts/perdure/templates/crds")
        for path in (root / folder).glob("*.yaml")
    }
    existing |= {path for path in files if (root / path).exists()}
    differing = {
        path
        for path, text in files.items()
        if path not in existing or (root / path).read_text(encoding="utf-8") != text
    }
    return sorted(differing | (existing - files.keys()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the files.

    Args:
        arguments: The command line; None means that of the process.

    Returns:
        The exit code: 0, or 1 if files are stale or a model is not valid for a CRD.
    """
    parser = argparse.ArgumentParser(prog="python -m perdure.api.crdgen", description="Write the CRDs.")
    parser.add_argument("--check", action="store_true", help="Write nothing, and fail if a file is stale")
    parser.add_argument("--root", type=Path, default=CHECKOUT, help="The checkout to write to")
    options = parser.parse_args(arguments)
    try:
        files = generated_files()
    except SchemaError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    stale = stale_files(options.root, files)
    if options.check:
        for path in stale:
            sys.stderr.write(f"{path} is stale: run `python -m perdure.api.crdgen`\n")
        return 1 if stale else 0
    for path in stale:
        target = options.root / path
        if path in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(files[path], encoding="utf-8")
        else:
            target.unlink()
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
