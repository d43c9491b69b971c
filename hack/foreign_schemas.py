"""Writes operator/perdure/importing/schemas.json: the fields and types of Argo's and Tekton's objects, from their CRDs.

Only the names and the types of fields are taken from the CRDs, which are licensed under Apache-2.0, as this project is. Run it
when a new version of Argo or Tekton has new fields, after `go mod download` of the modules in `MODULES`:

    .venv/bin/python hack/foreign_schemas.py
"""

import json
import subprocess
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any, Final

import yaml

MODULES: Final = {
    "argo": ("github.com/argoproj/argo-workflows/v4@v4.0.5", "github.com/argoproj/argo-workflows/v3@v3.6.10"),
    "tekton": ("github.com/tektoncd/pipeline@v1.15.0",),
}
"""The newest version first; older ones add the fields that the newest has no longer."""
FOLDERS: Final = {"argo": "manifests/base/crds/full", "tekton": "config/300-crds"}
KINDS: Final = {
    "argo": ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow"),
    "tekton": ("Pipeline", "PipelineRun", "StepAction", "Task", "TaskRun"),
}
TARGET: Final = Path(__file__).parents[1] / "operator/perdure/importing/schemas.json"

EMBEDDED: Final = {
    ("argo", "inline"): "template",
    ("tekton", "affinity"): "affinity",
    ("tekton", "pipelineSpec"): "pipeline",
    ("tekton", "securityContext"): "podSecurity",
    ("tekton", "taskSpec"): "task",
    ("tekton", "volumeClaimTemplate"): "claim",
    ("tekton", "volumes"): "volumes",
}
"""Fields that the CRDs leave open, because they recur, and the types that they have."""
TEXTS: Final = {"*": "string"}
METADATA: Final = {
    **dict.fromkeys(("name", "generateName", "namespace", "uid", "resourceVersion", "selfLink"), "string"),
    **dict.fromkeys(("labels", "annotations"), TEXTS),
    **dict.fromkeys(
        ("creationTimestamp", "deletionTimestamp", "generation", "managedFields", "ownerReferences"), "any"
    ),
    **dict.fromkeys(("deletionGracePeriodSeconds", "finalizers"), "any"),
}
"""The metadata of an object, which CRDs do not describe."""

Shape = Any
"""The name of a scalar, a list with the shape of its items, or the shapes of fields; `*` stands for any name."""


def main() -> None:
    """Write the table."""
    shapes = {system: dict(_kinds(system)) for system in MODULES}
    workflow, pipeline, task = (
        shapes["argo"]["Workflow"]["spec"],
        shapes["tekton"]["Pipeline"]["spec"],
        shapes["tekton"]["Task"]["spec"],
    )
    embedded = {
        "affinity": workflow["affinity"],
        "claim": workflow["volumeClaimTemplates"][0],
        "pipeline": pipeline,
        "podSecurity": workflow["securityContext"],
        "task": {
            **task,
            "apiVersion": "string",
            "kind": "string",
            "metadata": {"labels": TEXTS, "annotations": TEXTS},
            "spec": "any",
        },
        "template": workflow["templates"][0],
        "volumes": workflow["volumes"],
    }
    types = _Types()
    kinds = {
        system: {kind: types.of({**shape, "metadata": METADATA, "status": "any"}) for kind, shape in found.items()}
        for system, found in shapes.items()
    }
    references = {name: types.of(shape) for name, shape in embedded.items()}
    lines = ",\n".join(f"  {json.dumps(each, sort_keys=True)}" for each in types.resolved(references))
    sources = {
        "source": "names and types of the fields in the CRDs of "
        + ", ".join(m for each in MODULES.values() for m in each),
        "license": "Apache-2.0",
        "generator": "hack/foreign_schemas.py",
    }
    head = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in {**sources, "kinds": kinds}.items())
    TARGET.write_text(f'{{\n{head} "types": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def _kinds(system: str) -> Iterator[tuple[str, Shape]]:
    """Yield the shape of each kind, which has the fields of all versions."""
    found: dict[str, list[Shape]] = {kind: [] for kind in KINDS[system]}
    for module in MODULES[system]:
        command = ["go", "mod", "download", "-json", module]
        folder = Path(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["Dir"])
        for file in sorted((folder / FOLDERS[system]).glob("*.yaml")):
            for document in yaml.load_all(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader):
                kind = ((document or {}).get("spec") or {}).get("names", {}).get("kind")
                versions = document["spec"]["versions"] if kind in found else []
                for version in sorted(versions, key=lambda each: not each["storage"]):
                    found[kind].append(_shape(version["schema"]["openAPIV3Schema"], system, ""))
    for kind, shapes in found.items():
        yield kind, reduce(_union, shapes)


def _shape(schema: Any, system: str, name: str) -> Shape:
    kind = schema.get("type")
    if schema.get("properties"):
        return {key: _shape(each, system, key) for key, each in schema["properties"].items()}
    if kind == "array":
        return [_shape(schema.get("items") or {}, system, "")]
    if isinstance(schema.get("additionalProperties"), dict):
        return {"*": _shape(schema["additionalProperties"], system, "")}
    if schema.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    if (system, name) in EMBEDDED and kind in {None, "object"}:
        return f"@{EMBEDDED[system, name]}"
    return kind or "any"


def _union(left: Shape, right: Shape) -> Shape:
    """Return a shape with the fields of both; the left one wins for scalars."""
    if isinstance(left, dict) and isinstance(right, dict):
        both = {name: _union(left[name], right[name]) for name in left.keys() & right.keys()}
        return {**left, **right, **both}
    if isinstance(left, list) and isinstance(right, list):
        return [_union(left[0], right[0])]
    return left


class _Types:
    """Types of objects, each once, in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, shape: Shape) -> Any:
        """Return a shape in which the types of objects are numbers."""
        if isinstance(shape, list):
            return [self.of(shape[0])]
        if not isinstance(shape, dict):
            return shape
        made = {name: self.of(each) for name, each in sorted(shape.items())}
        return made if made.keys() == {"*"} else self._numbers.setdefault(json.dumps(made), len(self._numbers))

    def resolved(self, references: dict[str, Any]) -> Iterator[Any]:
        """Yield the types, with references to embedded ones by their number."""
        for text in self._numbers:
            yield _resolved(json.loads(text), references)


def _resolved(shape: Shape, references: dict[str, Any]) -> Any:
    if isinstance(shape, dict):
        return {name: _resolved(each, references) for name, each in shape.items()}
    if isinstance(shape, list):
        return [_resolved(shape[0], references)]
    return references[shape[1:]] if isinstance(shape, str) and shape.startswith("@") else shape


if __name__ == "__main__":
    main()
