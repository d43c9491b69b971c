"""The chart as a package, and what `kubectl apply` needs without Helm: install.yaml and crds.yaml."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster import commands
from cluster.errors import ClusterError
from perdure.api.crdgen import minimal_definition
from release.files import below, entries, write_tar_gz
from release.source import Source

NAMESPACE = "perdure-system"
_HELM_ONLY = ("helm.sh/chart", "helm.sh/resource-policy")
_MANAGED_BY = "app.kubernetes.io/managed-by"

Manifest = dict[str, Any]


def package(source: Source, registry: str, target: Path) -> Path:
    """Package the chart, with its version, and with the registry as the default of its value.

    Args:
        source: The source.
        registry: Where the image will be, such as ``registry.example.com/team``.
        target: The folder to write to.
    """
    folder = source.folder / "charts" / "perdure"
    _substitute(folder / "Chart.yaml", r"^(version|appVersion): .+$", rf"\1: {source.version}", 2)
    _substitute(folder / "values.yaml", r"^(  registry: )localhost$", rf"\g<1>{registry}", 1)
    file = target / f"perdure-{source.version}.tgz"
    content = below("perdure", entries(folder))
    write_tar_gz([each for each in content if not each.folder], source.epoch, file)
    return file


def _substitute(file: Path, pattern: str, replacement: str, count: int) -> None:
    text, found = re.subn(pattern, replacement, file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if found != count:
        raise ClusterError(f"{file.name} must have {count} lines like {pattern}, but has {found}")
    file.write_text(text, encoding="utf-8")


def write_manifests(helm: Path, chart: Path, target: Path) -> list[Path]:
    """Write crds.yaml, crds-minimal.yaml for client-side `kubectl apply`, and install.yaml with everything else.

    They are apart so that `kubectl delete -f install.yaml` deletes no workflow.
    """
    rendered = commands.capture(
        [str(helm), "template", "perdure", str(chart), f"--namespace={NAMESPACE}", "--skip-tests", "--include-crds"]
    )
    found = [_plain(each) for each in yaml.load_all(rendered, yaml.CSafeLoader) if each]
    crds = [each for each in found if each["kind"] == "CustomResourceDefinition"]
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    others = [namespace, *(each for each in found if each not in crds)]
    files = {"crds.yaml": crds, "crds-minimal.yaml": list(map(minimal_definition, crds)), "install.yaml": others}
    return [_write(target / name, content) for name, content in files.items()]


def _plain(manifest: Manifest) -> Manifest:
    """Remove what tells Helm, and later users, that a release of Helm owns the object."""
    for meta in (manifest["metadata"], manifest.get("spec", {}).get("template", {}).get("metadata", {})):
        for part in ("labels", "annotations"):
            kept = {
                key: value for key, value in (meta.get(part) or {}).items() if key not in (*_HELM_ONLY, _MANAGED_BY)
            }
            meta.pop(part, None)
            if kept:
                meta[part] = kept
    return manifest


def _write(file: Path, manifests: Sequence[Manifest]) -> Path:
    text = yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    file.write_text(text, encoding="utf-8")
    return file


class _Dumper(yaml.CSafeDumper):
    """Writes YAML without anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - as PyYAML declares it
        return True
