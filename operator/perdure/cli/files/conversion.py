"""Reads files of other workflow systems, converts them, and checks the result."""

import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.cli.files.documents import Document, read_files
from perdure.cli.files.lint import lint
from perdure.client.errors import CliError
from perdure.importing.reader import ConvertedObject, Object
from perdure.importing.writer import COMMENT, write
from perdure.language.program import Severity

Convert = Callable[[list[Object]], list[ConvertedObject]]


@dataclass(frozen=True, slots=True)
class ConversionResult:
    """The result of a conversion."""

    text: str
    """The manifests, as YAML."""
    sentences: tuple[str, ...]
    """Messages for the user."""
    complete: bool
    """Whether everything has a counterpart, and the result is valid."""


def is_manifest(data: Any) -> bool:
    """Whether a document is an object of Kubernetes."""
    return isinstance(data, dict) and isinstance(data.get("kind"), str)


def convert_files(
    files: list[str], kinds: Collection[str], convert: Convert, *, accepts: Callable[[Any], bool] = is_manifest
) -> ConversionResult:
    """Convert files.

    Args:
        files: Files and folders; `-` is standard input.
        kinds: The kinds to convert.
        convert: Converts documents.
        accepts: Whether a document is one that can be converted.

    Raises:
        CliError: A file cannot be read, or no file has an object to convert.
    """
    found = [each for file in files for each in read_files(file)]
    unread = [sentence for each in found for sentence in _unread(each, accepts)]
    imported = convert([each.data for each in found if accepts(each.data)])
    if not unread and not any(each.manifests or each.report.gaps for each in imported):
        left_out = "".join(f"; {each.source}: {note.message}" for each in imported for note in each.report.notes)
        raise CliError(f"the files contain nothing to convert; expected {', '.join(kinds)}{left_out}")
    _report_collisions(imported)
    sentences = [f"Not imported: {each}" for each in unread]
    manifests: list[Object] = []
    written: set[str] = set()
    for each in imported:
        sentences += [f"Not imported: {each.source}: {gap.path}: {gap.message}" for gap in each.report.gaps]
        sentences += [f"Note: {each.source}: {note.path}: {note.message}" for note in each.report.notes]
        for i, manifest in enumerate(each.manifests):
            content = json.dumps(manifest, sort_keys=True, default=str)
            if content not in written:
                written.add(content)
                manifests.append(_commented(manifest, each, first=i == 0))
    text = write(manifests)
    mistakes = mistakes_in(text)
    gaps = bool(unread) or any(each.report.gaps for each in imported)
    return ConversionResult(text, (*sentences, *mistakes), complete=not gaps and not mistakes)


def _unread(document: Document, accepts: Callable[[Any], bool]) -> Iterator[str]:
    """Yield what makes kubectl reject a document, as a sentence each; files that are found in a folder may be anything."""
    place = f"{document.file}:{document.position('').line}"
    if accepts(document.data):
        for path, position in document.duplicates:
            line = f"{document.file}:{position.line}"
            yield f"{line}: {path}: is set twice in the same object, which kubectl rejects; remove one of them"
    elif document.explicit:
        what = "a manifest, with an `apiVersion` and a `kind`" if accepts is is_manifest else "a serialized DAG"
        yield f"{place}: must be {what}"


def _report_collisions(imported: Sequence[ConvertedObject]) -> None:
    """Report objects that become different ones with the same kind and name, so that applying one would overwrite the other."""
    known: dict[tuple[str, ...], tuple[Object, ConvertedObject]] = {}
    for each in imported:
        for manifest in each.manifests:
            metadata = manifest["metadata"]
            name = str(metadata.get("name") or "")
            key = str(manifest["kind"]), str(metadata.get("namespace") or ""), name
            first, of = known.setdefault(key, (manifest, each))
            if name and first != manifest and of is not each:
                message = f"the {manifest['kind']} `{name}` is also that of {of.source}; rename one of them"
                each.report.gap("metadata.name", message)


def _commented(manifest: Object, imported: ConvertedObject, *, first: bool) -> Object:
    lines = [f"From {imported.source}."]
    if first:
        lines += [f"Not imported: {gap.path}: {gap.message}" for gap in imported.report.gaps]
    return {COMMENT: "\n".join(lines), **manifest}


def mistakes_in(text: str) -> list[str]:
    """Return the mistakes in converted manifests."""
    if not text:
        return []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "imported.yaml")
        file.write_text(text, encoding="utf-8")
        found = lint([str(file)])
    wrong = [each for each in found.found if each.finding.severity is Severity.ERROR]
    return [
        *(f"Invalid: {each.subject}: {each.finding.path}: {each.finding.message}" for each in wrong),
        *(f"Invalid: {sentence}" for sentence in found.unreadable),
    ]
