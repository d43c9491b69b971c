"""Reads files of other workflow systems, converts them, and checks the result."""

import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.cli.documents import UnreadableFileError, read_files
from perdure.cli.lint import lint
from perdure.cli.scenarios import read_documents
from perdure.client.errors import CliError
from perdure.importing.reader import ConvertedObject, Object
from perdure.importing.writer import COMMENT, write
from perdure.language.program import Severity
from perdure.simulation.manifests import BadFileError

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
    try:
        documents = [each.data for file in files for each in read_files(file) if isinstance(each.data, dict)]
    except UnreadableFileError as error:
        raise CliError(str(error)) from error
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


def read_manifests(file: str) -> list[Object]:
    """Read the manifests of a file, including the items of a List.

    Raises:
        CliError: The file cannot be read, or has no manifests.
    """
    try:
        found = read_documents(file)
    except BadFileError as error:
        raise CliError(str(error)) from error
    manifests = [item for each in found if isinstance(each, dict) for item in _items(each)]
    if not manifests:
        raise CliError(f"{file}: has no manifests; it must be YAML or JSON, such as a CronJob")
    if not all(isinstance(each, dict) for each in manifests):
        raise CliError(f"{file}: items: must be manifests, each a map")
    return manifests


def _items(manifest: Object) -> list[Any]:
    found = manifest.get("items")
    return found if isinstance(found, list) and found else [manifest]
