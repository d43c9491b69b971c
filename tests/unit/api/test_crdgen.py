import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import Field, create_model

from perdure.api import crdgen
from perdure.api.crdgen import (
    KINDS,
    SchemaError,
    chart_template,
    crd_yaml,
    custom_resource_definition,
    generated_files,
    main,
    minimal_definition,
    structural_schema,
)
from perdure.api.fields import Json, atomic_list
from perdure.api.models import KindInfo, Resource, SpecModel
from perdure.kube.paths import PLURALS

Schema = dict[str, Any]
RULES = "x-kubernetes-validations"


def fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every field and item of a schema, by its path."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield f"{path}[]", schema[key]
            yield from fields(schema[key], f"{path}[]")


@cache
def every_field() -> list[tuple[str, Schema]]:
    return [
        (path, field)
        for kind in KINDS
        for path, field in fields(structural_schema(kind), kind.__name__)
        if not path.endswith(".metadata")
    ]


def test_the_group_has_all_kinds() -> None:
    assert [kind.info.plural for kind in KINDS] == [
        "workflows",
        "workflowruns",
        "schedules",
        "retrypolicies",
        "workflowlimits",
        "workflowdefaults",
        "webhooks",
        "workerdeployments",
        "operations",
        "deadletters",
        "historysegments",
        "payloads",
        "artifactsets",
        "cachedresults",
        "workflowrevisions",
    ]
    assert {kind.info.plural for kind in KINDS} == PLURALS


def test_generated_files_are_current() -> None:
    assert main(["--check"]) == 0


def test_stale_files_are_reported_and_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert "crds/perdure.dev_workflows.yaml is stale: run" in capsys.readouterr().err
    assert main(["--root", str(tmp_path)]) == 0
    assert main(["--check", "--root", str(tmp_path)]) == 0
    extra = tmp_path / "crds" / "perdure.dev_gone.yaml"
    extra.write_text("")
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert main(["--root", str(tmp_path)]) == 0
    assert not extra.exists()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_crd_has_category_subresources_and_columns(kind: type[Resource]) -> None:
    spec = custom_resource_definition(kind)["spec"]
    assert spec["names"]["categories"] == ["perdure"]
    version = spec["versions"][0]
    assert ("subresources" in version) is (
        kind.__name__ not in {"HistorySegment", "Payload", "ArtifactSet", "CachedResult", "WorkflowRevision"}
    )
    assert version["additionalPrinterColumns"][-1]["name"] == "Age"
    assert all(" " not in column["name"] for column in version["additionalPrinterColumns"])
    assert len(version.get("selectableFields", [])) <= 8


def test_kinds_have_the_specified_short_names() -> None:
    assert [kind.info.short_name for kind in KINDS] == [
        "pwf",
        "wfr",
        "wsch",
        "rpol",
        "wlim",
        "wdef",
        "whk",
        "wkd",
        "wop",
        "dlt",
        "hseg",
        "wpl",
        "arts",
        "cres",
        "wfrev",
    ]


def test_every_field_has_a_description() -> None:
    assert [path for path, field in every_field() if not path.endswith("]") and not field.get("description")] == []


def test_every_list_string_and_map_has_a_maximum_size() -> None:
    unbounded = [
        path
        for path, field in every_field()
        if (field.get("type") == "array" and not {"maxItems", "x-kubernetes-list-type"} <= field.keys())
        or (field.get("type") == "string" and not {"maxLength", "enum"} & field.keys())
        or ("additionalProperties" in field and "maxProperties" not in field)
    ]
    assert [path for path in unbounded if not path.endswith((".apiVersion", ".kind"))] == []


def test_schemas_are_structural() -> None:
    forbidden = {"$ref", "$defs", "title", "anyOf", "oneOf", "allOf", "const", "definitions"}
    assert [path for path, field in every_field() if forbidden & field.keys()] == []
    assert not [path for path, field in every_field() if field.get("type") == "number"]


def test_the_keys_of_list_maps_are_fields_that_every_item_has() -> None:
    """The API server refuses a CRD otherwise (apiextensions validation: `x-kubernetes-list-map-keys`)."""
    maps = [(path, field) for path, field in every_field() if field.get("x-kubernetes-list-type") == "map"]
    assert maps
    for path, field in maps:
        item = field["items"]
        for key in field["x-kubernetes-list-map-keys"]:
            assert item["properties"][key]["type"] in {"string", "integer", "boolean"}, (path, key)
            assert key in item["required"] or "default" in item["properties"][key], (path, key)


def test_every_validation_rule_has_a_message_with_must() -> None:
    rules = [rule for _, field in every_field() for rule in field.get("x-kubernetes-validations", [])]
    assert len(rules) > 100
    assert [rule for rule in rules if "must" not in rule["message"]] == []


def test_the_default_of_a_duration_is_a_duration() -> None:
    crd = custom_resource_definition(crdgen.WorkflowRun)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert spec["executionTimeout"]["default"] == "0s"
    assert spec["taskTimeout"]["default"] == "10s"
    assert "default" not in spec["runTimeout"]


def test_values_of_an_enumeration_are_described() -> None:
    crd = custom_resource_definition(crdgen.Schedule)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert "- `BufferOne`: Buffer one run" in spec["overlapPolicy"]["description"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_both_versions_have_the_same_fields_and_rules(kind: type[Resource]) -> None:
    """The API server converts between them by changing `apiVersion`: a field that one lacks would be lost."""
    spec = custom_resource_definition(kind)["spec"]
    beta, alpha = spec["versions"]
    assert [beta["name"], alpha["name"]] == ["v1beta1", "v1alpha1"]
    assert spec["conversion"] == {"strategy": "None"}
    assert [each["served"] for each in (beta, alpha)] == [True, True]
    assert [each["storage"] for each in (beta, alpha)] == [False, True]
    different = {"name", "storage", "schema"}
    assert {key: beta[key] for key in beta.keys() - different} == {key: alpha[key] for key in alpha.keys() - different}
    schemas = [without_descriptions(each["schema"]["openAPIV3Schema"]) for each in (beta, alpha)]
    assert schemas[0] == schemas[1]
    if "selectableFields" in beta:
        assert beta["schema"] == alpha["schema"], (
            "the API server rejects equal selectable fields with different schemas"
        )


def without_descriptions(schema: Schema) -> Schema:
    found = {key: value for key, value in schema.items() if key != "description"}
    if "properties" in found:
        found["properties"] = {name: without_descriptions(field) for name, field in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = without_descriptions(found[key])
    return found


def size_in_an_annotation(manifest: Schema) -> int:
    """Bytes of `kubectl.kubernetes.io/last-applied-configuration`: Go escapes three characters in JSON."""
    text = json.dumps(manifest, separators=(",", ":"), ensure_ascii=False)
    return len(text.encode()) + 5 * sum(map(text.count, "&<>"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_client_side_apply_can_store_a_crd_in_its_annotation(kind: type[Resource]) -> None:
    crd = custom_resource_definition(kind)
    assert size_in_an_annotation(crd) < 262_144 - 1_000
    assert size_in_an_annotation(minimal_definition(crd)) < 131_072


def test_a_minimal_crd_has_all_fields_and_protects_what_must_not_change() -> None:
    crd = custom_resource_definition(crdgen.WorkflowRun)
    before = crd_yaml(crdgen.WorkflowRun)
    for full, minimal in zip(crd["spec"]["versions"], minimal_definition(crd)["spec"]["versions"], strict=True):
        one, other = (each["schema"]["openAPIV3Schema"] for each in (full, minimal))
        assert {path for path, _ in fields(one, "")} == {path for path, _ in fields(other, "")}
        rules = [rule for _, field in [("", other), *fields(other, "")] for rule in field.get(RULES, [])]
        assert rules
        assert all("oldSelf" in rule["rule"] for rule in rules)
        kept = [rule for _, field in [("", one), *fields(one, "")] for rule in field.get(RULES, [])]
        assert [rule for rule in kept if "oldSelf" in rule["rule"]] == rules
    assert crd_yaml(crdgen.WorkflowRun) == before, "the CRD is not changed"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_chart_copy_differs_only_in_its_conditions(kind: type[Resource]) -> None:
    template = chart_template(crd_yaml(kind))
    assert "{{- if .Values.crds.enabled }}" in template
    assert "helm.sh/resource-policy: keep" in template
    # The output of helm, with all conditions enabled.
    rendered = re.sub(r"(?m)^ *\{\{-.*\}\}\n", "", template).replace("{{ .Values.crds.v1beta1 }}", "true")
    rendered = rendered.replace('{{ "{{" }}', "{{")
    crd = yaml.safe_load(rendered)
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    crd["metadata"].pop("labels")
    assert crd == yaml.safe_load(crd_yaml(kind))


def test_text_that_looks_like_a_template_is_escaped() -> None:
    assert '{{ "{{" }} x }}' in chart_template("metadata:\n  a: '{{ x }}'\n")


def test_each_kind_has_its_two_files() -> None:
    assert len(generated_files()) == 2 * len(KINDS)


def test_the_command_updates_and_removes_stale_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["--root", str(tmp_path)]
    assert main([*run, "--check"]) == 1
    assert "crds/perdure.dev_workflows.yaml is stale" in capsys.readouterr().err
    assert main(run) == main([*run, "--check"]) == 0
    (tmp_path / "crds" / "perdure.dev_workflows.yaml").write_text("edited", encoding="utf-8")
    (tmp_path / "crds" / "old.yaml").touch()
    capsys.readouterr()
    assert main([*run, "--check"]) == 1
    assert capsys.readouterr().err.count(" is stale") == 2
    assert main(run) == main([*run, "--check"]) == 0
    assert not (tmp_path / "crds" / "old.yaml").exists()


class NoDescription(SpecModel):
    field: bool = False


class NoBound(SpecModel):
    field: list[bool] = Field(default_factory=list)
    """A list."""


class NoLength(SpecModel):
    field: str = ""
    """A text."""


class NoEntries(SpecModel):
    field: dict[str, bool] = Field(default_factory=dict)
    """A map."""


class Union(SpecModel):
    field: bool | int = False
    """Two types."""


class Float(SpecModel):
    field: float = 0
    """A float."""


class Untyped(SpecModel):
    field: Any = None
    """Anything."""


class Good(SpecModel):
    field: Annotated[list[Annotated[str, Field(max_length=3)]], atomic_list(2)] | None = None
    """A list
    of texts."""

    free: Json = None
    """Anything."""


def kind_of(spec: type[SpecModel]) -> type[Resource]:
    kind = create_model(
        "Thing",
        __base__=Resource,
        __doc__="A thing.",
        kind=(Literal["Thing"], Field("Thing", description="Always Thing.")),
        spec=(spec, Field(description="What it is.")),
    )
    kind.info = KindInfo("things", "th", (), has_status=False)
    return kind


@pytest.mark.parametrize(
    ("spec", "want_message"),
    [
        (NoDescription, "Thing.spec.field must have a description"),
        (NoBound, "Thing.spec.field must have `atomic_list`, `set_list` or `map_list`"),
        (NoLength, "Thing.spec.field must have a `max_length`"),
        (NoEntries, "Thing.spec.field must have a `max_length`: the maximum number of entries"),
        (Union, "Thing.spec.field must have one type"),
        (Float, "Thing.spec.field must not be a float"),
        (Untyped, "Thing.spec.field must have a type"),
    ],
)
def test_an_incomplete_field_is_rejected(spec: type[SpecModel], want_message: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(want_message)):
        structural_schema(kind_of(spec))


def test_a_rejected_field_ends_the_command_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crdgen, "KINDS", (kind_of(NoDescription),))
    assert main(["--check"]) == 1
    assert capsys.readouterr().err == "Thing.spec.field must have a description: a docstring under the field\n"


def test_a_good_field_becomes_a_structural_schema() -> None:
    properties = structural_schema(kind_of(Good))["properties"]["spec"]["properties"]
    assert properties["field"] == {
        "description": "A list of texts.",
        "items": {"maxLength": 3, "type": "string"},
        "maxItems": 2,
        "type": "array",
        "x-kubernetes-list-type": "atomic",
    }
    assert properties["free"] == {
        "description": "Anything.",
        "nullable": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
