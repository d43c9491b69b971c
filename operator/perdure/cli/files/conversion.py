"""Reads files of other workflow systems, converts them, and checks the result."""

import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from perdure.cli.files.documents import read_files
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


def convert_files(files: list[str], kinds: Collection[str], convert: Convert) -> ConversionResult:
    """Convert files.

    Args:
        files: Files and folders; `-` is standard input.
        kinds: The kinds to convert.
        convert: Converts documents.

    Raises:
        CliError: A file cannot be read, or no file has an object to convert.
    """
    documents = [each.data for file in files for each in read_files(file) if isinstance(each.data, dict)]
    if not any(each.get("kind") in kinds for each in documents):
        raise CliError(f"the files contain nothing to convert; expected {', '.join(kinds)}")
    imported = convert(documents)
    sentences: list[str] = []
    manifests: list[Object] = []
    for each in imported:
        sentences += [f"Not imported: {each.source}: {gap.path}: {gap.message}" for gap in each.report.gaps]
        sentences += [f"Note: {each.source}: {note.path}: {note.message}" for note in each.report.notes]
        for i, manifest in enumerate(each.manifests):
            if manifest not in [{key: value for key, value in one.items() if key != COMMENT} for one in manifests]:
                manifests.append(_commented(manifest, each, first=i == 0))
    text = write(manifests)
    mistakes = mistakes_in(text)
    gaps = any(each.report.gaps for each in imported)
    return ConversionResult(text, (*sentences, *mistakes), complete=not gaps and not mistakes)


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
