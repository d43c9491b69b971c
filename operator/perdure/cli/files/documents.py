"""YAML files, read as kubectl reads them: as documents with the position of every field, or as values."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import yaml

from perdure.api.json_values import exact_integer, mapping
from perdure.api.labels import API_VERSION, API_VERSIONS, GROUP
from perdure.api.yaml_text import Loader, MisreadKey
from perdure.client.errors import CliError
from perdure.client.requests import Object

STDIN = "-"
CHECK_NAME = "; check the name"
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_MAX_VALUES: Final = 1_000_000
"""Maximum number of values in a document. An API server accepts 1.5 MB."""
_MERGE, _BOOLEAN, _INTEGER = (f"tag:yaml.org,2002:{name}" for name in ("merge", "bool", "int"))


class UnreadableFileError(CliError):
    """A file cannot be read; the message has its name and the reason."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a file, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file, or one item of a List in it."""

    file: str
    data: Any
    node: yaml.Node
    duplicates: tuple[tuple[str, Position], ...] = ()
    """The duplicate keys of maps, which kubectl rejects: their paths, and the position of the second."""
    misread_keys: tuple[tuple[str, Position, MisreadKey], ...] = ()
    """The keys that kubectl reads as a different text: their paths with that text, positions, and original text."""
    misread_values: Mapping[str, tuple[Position, str]] = field(default_factory=dict)
    """The values such as `no` and `y` that kubectl reads as booleans: by their paths, their positions and original texts."""
    large_integers: Mapping[str, tuple[Position, str]] = field(default_factory=dict)
    """The integers of more than 64 bits, which the API server rounds, in the same way."""
    explicit: bool = True
    """Whether the file was given explicitly, and not found in a folder."""

    @property
    def is_manifest(self) -> bool:
        """Whether it is a manifest of Perdure."""
        return isinstance(self.data, dict) and str(self.data.get("apiVersion")).startswith(f"{GROUP}/")

    def warn_of_rounding(self) -> None:
        """Warn on standard error that the API server rounds integers of this manifest."""
        for path, (position, written) in self.large_integers.items() if self.is_manifest else ():
            place = f"{self.file}:{position.line}:{position.column}"
            click.echo(f"Warning: {place}: {path}: {rounded(written)}", err=True)

    def position(self, path: str) -> Position:
        """The position of a field such as `spec.steps[2].activity`, or of the existing part of its path."""
        node, found = self.node, self.node
        rest = path
        while rest:
            entry = _entry(node, rest)
            if entry is None:
                break
            found, node, rest = entry
        return _start(found)


def read_files(name: str) -> Iterator[Document]:
    """Read the documents of a file, of all files below a folder, or of standard input (`-`).

    Raises:
        UnreadableFileError: The file cannot be read, or is not valid YAML.
    """
    path = Path(name)
    with _explained(name, CHECK_NAME):
        is_folder = name != STDIN and path.is_dir()
    if not is_folder:
        yield from read_file(name)
        return
    for file in sorted(path.rglob("*")):
        if file.suffix in _SUFFIXES and file.is_file():
            yield from read_file(str(file), explicit=False)


def read_file(name: str, *, explicit: bool = True, advice: str = "") -> Iterator[Document]:
    """Read the documents of a file, or of standard input (`-`).

    Args:
        name: The file.
        explicit: Whether the file was given explicitly.
        advice: The end of the message about a file that does not exist, or is not text.

    Raises:
        UnreadableFileError: The file cannot be read, or is not valid YAML.
    """
    shown = "standard input" if name == STDIN else name
    with _explained(shown, advice):
        for node in [each for root in list(yaml.compose_all(_text_of(name), Loader=Loader)) for each in _objects(root)]:
            if _size(node, {}) > _MAX_VALUES:
                raise ValueError(f"its aliases stand for more than {_MAX_VALUES} values")
            # Before merge keys are resolved, which adds entries to the nodes.
            keys = list(_keys(node, "", set()))
            scalars = list(_scalars(node, "", set()))
            misread, large = (
                {path: (_start(each), str(each.value)) for path, each in scalars if so(each)}
                for so in (_is_misread, _is_large)
            )
            data = Loader("").construct_document(node)
            if data is not None:
                duplicates, misread_keys = tuple(_duplicates(keys)), tuple(_misread_keys(keys))
                yield Document(shown, data, node, duplicates, misread_keys, misread, large, explicit)


def read_documents(file: str) -> list[Any]:
    """Read the nonempty documents of a YAML file as values, without the positions of their fields.

    Raises:
        UnreadableFileError: The file cannot be read, or is not valid YAML.
    """
    with _explained(file, CHECK_NAME):
        return [data for data in yaml.load_all(_text_of(file), Loader=Loader) if data is not None]


def _text_of(name: str) -> str:
    return sys.stdin.read() if name == STDIN else Path(name).read_text(encoding="utf-8")


@contextmanager
def _explained(file: str, advice: str = "") -> Iterator[None]:
    """Explain why a file cannot be read; `advice` is for a file that does not exist, or is not text."""
    try:
        yield
    except OSError as error:
        raise UnreadableFileError(f"{file}: cannot be read: {error.strerror or error}{advice}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"{file}: cannot be read: it is not UTF-8{advice}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UnreadableFileError(f"{file}: is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise UnreadableFileError(f"{file}: is nested too deeply") from error


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values in a node, with those for which aliases stand: each counts as often as it is used."""
    if id(node) not in known:
        known[id(node)] = 1  # also for an alias of itself, which is rejected later
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        values = [each[1] if isinstance(each, tuple) else each for each in parts]
        known[id(node)] = 1 + sum(_size(each, known) for each in values)
    return known[id(node)]


def _objects(node: yaml.Node) -> Iterator[yaml.Node]:
    """Yield the objects of a document: the items of a `List` (from `kubectl get -o yaml`) or, say, a `CronJobList`, or itself."""
    fields = {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}
    kind, items = fields.get("kind"), fields.get("items")
    if isinstance(kind, yaml.ScalarNode) and kind.value.endswith("List") and isinstance(items, yaml.SequenceNode):
        for item in items.value:
            yield from _objects(item)
    else:
        yield node


def _entry(node: yaml.Node, path: str) -> tuple[yaml.Node, yaml.Node, str] | None:
    """Return the first entry of a path: its text, its value, and the rest of the path."""
    if isinstance(node, yaml.SequenceNode):
        index, bracket, rest = path.removeprefix("[").partition("]")
        if path.startswith("[") and bracket and index.isdecimal() and int(index) < len(node.value):
            item = node.value[int(index)]
            return item, item, rest
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    path = path.removeprefix(".")
    best: tuple[yaml.Node, yaml.Node, str] | None = None
    length = -1
    for key, value in node.value:
        name = str(key.value)
        if len(name) >= length and path.startswith(name) and path[len(name) : len(name) + 1] in {"", ".", "["}:
            best, length = (key, value, path[len(name) :]), len(name)
    return best


def _keys(node: yaml.Node, path: str, visited: set[int]) -> Iterator[tuple[int, str, yaml.ScalarNode]]:
    """Yield the keys of all maps: the map, the path, and the key."""
    if id(node) in visited:
        return  # an alias
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            yield from _keys(item, f"{path}[{i}]", visited)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            where = f"{path}.{key.value}".removeprefix(".")
            yield id(node), where, key
            yield from _keys(value, where, visited)


def _duplicates(keys: Iterable[tuple[int, str, yaml.ScalarNode]]) -> Iterator[tuple[str, Position]]:
    known: set[tuple[int, str]] = set()
    for of, path, key in keys:
        if key.tag != _MERGE and (of, path) in known:
            yield path, _start(key)
        known.add((of, path))


def _misread_keys(keys: Iterable[tuple[int, str, yaml.ScalarNode]]) -> Iterator[tuple[str, Position, MisreadKey]]:
    return ((path, _start(key), key) for _, path, key in keys if isinstance(key, MisreadKey))


def _scalars(node: yaml.Node, path: str, visited: set[int]) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """Yield the values that are not maps or lists: their paths and nodes."""
    if isinstance(node, yaml.ScalarNode):
        yield path, node
    elif id(node) not in visited:
        visited.add(id(node))
        is_list = isinstance(node, yaml.SequenceNode)
        for i, entry in enumerate(node.value):
            below, value = (f"{path}[{i}]", entry) if is_list else (f"{path}.{entry[0].value}", entry[1])
            yield from _scalars(value, below.removeprefix("."), visited)


def _is_misread(node: yaml.ScalarNode) -> bool:
    """Whether a value is a boolean, but not written as `true` or `false`."""
    return node.tag == _BOOLEAN and node.style is None and node.value.lower() not in {"true", "false"}


def _is_large(node: yaml.ScalarNode) -> bool:
    """Whether a value is an integer of more than 64 bits."""
    return node.tag == _INTEGER and isinstance(exact_integer(str(Loader("").construct_object(node))), str)


def rounded(written: str) -> str:
    """The message about an integer of more than 64 bits."""
    return (
        f"the API server stores `{written}` as a floating-point number with about 16 digits, because it has more than 64 bits; "
        "write it in quotes"
    )


def _start(node: yaml.Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


def read_run(file: str) -> Object:
    """Read the manifest of a WorkflowRun; warn if the file also contains other objects.

    Args:
        file: A file, or `-` for standard input.

    Raises:
        CliError: The file cannot be read, or does not contain exactly one WorkflowRun, or its fields are not objects.
    """
    documents = [each for each in read_files(file) if isinstance(each.data, dict)]
    found = [each.data for each in documents]
    runs = [each for each in found if each.get("apiVersion") in API_VERSIONS and each.get("kind") == "WorkflowRun"]
    if len(runs) != 1:
        count = f"{len(runs)} WorkflowRuns" if runs else "no WorkflowRun"
        raise CliError(f"{file}: contains {count}; to start a run, the file must have exactly one")
    others = [
        f"{each.get('kind')} `{mapping(each.get('metadata')).get('name', '')}`" for each in found if each not in runs
    ]
    if others:
        click.echo(
            f"Warning: {file} also contains {', '.join(others)}, which this command does not create; use `kubectl apply`",
            err=True,
        )
    (run,) = runs
    documents[found.index(run)].warn_of_rounding()
    meta, spec = run.get("metadata") or {}, run.get("spec") or {}
    workflow = mapping(spec).get("workflow", {})
    for where, value in {"metadata": meta, "spec": spec, "spec.workflow": workflow}.items():
        if not isinstance(value, dict):
            raise CliError(f"{file}: {where}: must be an object")
    return {**run, "apiVersion": API_VERSION, "metadata": meta, "spec": spec}


def read_manifests(file: str) -> list[Object]:
    """Read the manifests of a file, including the items of a List.

    Raises:
        CliError: The file cannot be read, or has no manifests, or one of them is not a map, or has a key twice.
    """
    found = list(read_file(file))
    manifests = [each.data for each in found if isinstance(each.data, dict)]
    if not manifests:
        raise CliError(f"{file}: has no manifests; it must be YAML or JSON, such as a CronJob")
    for each in found:
        line = f"{file}:{each.position('').line}"
        if not isinstance(each.data, dict):
            raise CliError(f"{line}: must be a manifest, which is a map")
        for path, position in each.duplicates:
            raise CliError(f"{file}:{position.line}: {path}: is set twice in the same object; remove one of them")
    return manifests
