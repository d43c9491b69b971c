"""The examples of Argo Workflows and Tekton, converted as `perdure import` does."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from bench.foreign.images import localize
from perdure.cli.files.conversion import mistakes_in
from perdure.cli.files.documents import Loader, read_files
from perdure.importing.argo import manifests as argo
from perdure.importing.reader import ConvertedObject, name_of
from perdure.importing.tekton import manifests as tekton
from perdure.importing.writer import write
from support.cluster.namespace import Json

Convert = Callable[[list[Json]], list[ConvertedObject]]
SYSTEMS: Final[dict[str, tuple[tuple[str, ...], Convert]]] = {
    "argo": (argo.KINDS, argo.convert),
    "tekton": (tekton.KINDS, tekton.convert),
}
"""By name: the kinds to convert, and the function that does."""
_SHARED: Final = frozenset({"WorkflowTemplate", "ClusterWorkflowTemplate", "ConfigMap"})
"""Kinds of objects that other files refer to."""
_PREREQUISITES: Final = frozenset({"ConfigMap", "Secret", "PersistentVolumeClaim", "ServiceAccount", "Service"})
"""Kinds of other objects that must exist before the runs."""


@dataclass
class Example:
    """One file, converted."""

    name: str
    manifests: list[Json]
    prerequisites: list[Json]
    gaps: list[str]
    """What was not imported, and what is wrong with the result."""
    images: set[str] = field(default_factory=set)
    """Images that the local one does not replace."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels of the original objects."""


def load(system: str, folder: Path, more: Sequence[Path] = ()) -> Iterator[Example]:
    """Convert all files of a folder that have objects of a system.

    Args:
        system: `argo` or `tekton`.
        folder: The folder with the examples.
        more: Files with what the examples refer to, which their resolvers would fetch.
    """
    kinds, convert = SYSTEMS[system]
    files: dict[str, list[Json]] = defaultdict(list)
    for document in read_files(str(folder)):
        if isinstance(document.data, dict):
            files[document.file].append(document.data)
    fetched = [each.data for file in more for each in read_files(str(file))]
    shared = [each for found in files.values() for each in found if each.get("kind") in _SHARED]
    for file, documents in files.items():
        if any(each.get("kind") in kinds for each in documents):
            others = [each for each in shared if all(each is not part for part in documents)]
            name = str(Path(file).relative_to(folder))
            yield _example(name, documents, others if system == "argo" else fetched, convert)


def _example(name: str, documents: list[Json], others: list[Json], convert: Convert) -> Example:
    sources = {name_of(each) for each in documents}
    converted = [each for each in convert([*documents, *others]) if each.source in sources]
    text = write([manifest for each in converted for manifest in each.manifests])
    gaps = [f"{gap.path}: {gap.message}" for each in converted for gap in each.report.gaps]
    prerequisites = [each for each in documents if each.get("kind") in _PREREQUISITES]
    example = Example(name, [], prerequisites, [*gaps, *mistakes_in(text)])
    example.manifests = [localize(each, example.images) for each in yaml.load_all(text, Loader=Loader)]
    for each in documents:
        example.labels |= (each.get("metadata") or {}).get("labels") or {}
    return example
