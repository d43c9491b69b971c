"""Generate the CRDs and their copies in the Helm chart from the models.

`python -m perdure.api.crdgen` writes `crds/*.yaml` and `charts/perdure/templates/crds/*.yaml` to the checkout; with `--check`
it writes nothing and fails if a file is stale.
"""

from __future__ import annotations

import argparse
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from perdure.api.kinds.workflow import Workflow
from perdure.api.kinds.workflowlimit import WorkflowLimit
from perdure.api.kinds.workflowrun import WorkflowRun
from perdure.api.labels import GROUP, VERSION
from perdure.api.models import AGE, CATEGORY, Column, Resource
from perdure.api.schema import SchemaError, structural_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS: tuple[type[Resource], ...] = (
    Workflow,
    WorkflowRun,
    Schedule,
    RetryPolicy,
    WorkflowLimit,
    Webhook,
    Operation,
    DeadLetter,
    HistorySegment,
    Payload,
    ArtifactSet,
    CachedResult,
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
    version: dict[str, Any] = {"name": VERSION, "served": True, "storage": True}
    if info.has_status:
        version["subresources"] = {"status": {}}
    if info.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in info.selectable]
    version["additionalPrinterColumns"] = [_column(column) for column in (*info.columns, AGE)]
    version["schema"] = {"openAPIV3Schema": structural_schema(kind)}
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
            "versions": [version],
        },
    }


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
        The same, installed if `crds.enabled` is true, and kept on uninstall if `crds.keep` is true.
    """
    # Text in a description that looks like a template must stay unchanged.
    body = crd.removeprefix(HEADER).replace("{{", '{{ "{{" }}')
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
