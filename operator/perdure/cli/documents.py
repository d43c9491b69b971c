"""YAML files as documents that know on which line everything stands."""

import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

STDIN = "-"
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_MERGE = "tag:yaml.org,2002:merge"


class Loader(yaml.SafeLoader):
    """Times stay the text that they are, as kubectl reads them; keys have to be text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A map; a key that kubectl reads as a boolean is refused."""
        for key, _ in node.value:
            letter = isinstance(key, yaml.ScalarNode) and key.style is None and key.value in {"y", "Y", "n", "N"}
            if letter or key.tag == "tag:yaml.org,2002:bool":
                told = f"the key {key.value} is a boolean, as YAML reads it: write '{key.value}'"
                raise yaml.constructor.ConstructorError(None, None, told, key.start_mark)
        return super().construct_mapping(node, deep)


Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class UnreadableError(Exception):
    """A file that cannot be read; the message names it and the reason."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where something stands in a file, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file."""

    file: str
    data: Any
    node: yaml.Node
    twice: tuple[tuple[str, Position], ...] = ()
    """The keys that stand twice in one map, which kubectl refuses: their paths, and where the second stands."""
    asked: bool = True
    """The file was named, not found in a folder."""

    def position(self, path: str) -> Position:
        """Where a field stands, or what of it there is: `spec.steps[2].activity`."""
        node, found = self.node, self.node
        rest = path
        while rest:
            entry = _entry(node, rest)
            if entry is None:
                break
            found, node, rest = entry
        return Position(found.start_mark.line + 1, found.start_mark.column + 1)


def read(name: str) -> Iterator[Document]:
    """The documents of a file, of a folder with all files below it, or of standard input (`-`).

    Raises:
        UnreadableError: it cannot be read, or is no YAML.
    """
    path = Path(name)
    if name == STDIN or not path.is_dir():
        yield from _read_file(name, asked=True)
        return
    for file in sorted(path.rglob("*")):
        if file.suffix in _SUFFIXES and file.is_file():
            yield from _read_file(str(file), asked=False)


def _read_file(name: str, *, asked: bool) -> Iterator[Document]:
    shown = "standard input" if name == STDIN else name
    try:
        text = sys.stdin.read() if name == STDIN else Path(name).read_text(encoding="utf-8")
        for node in list(yaml.compose_all(text, Loader=Loader)):
            twice = tuple(_twice(node, "", set()))  # before merge keys are resolved, which adds entries to the nodes
            data = Loader("").construct_document(node)
            if data is not None:
                yield Document(shown, data, node, twice, asked)
    except OSError as error:
        raise UnreadableError(f"{shown}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{shown}: cannot be read: it is not UTF-8") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UnreadableError(f"{shown}: is no YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise UnreadableError(f"{shown}: is nested too deep") from error


def _entry(node: yaml.Node, path: str) -> tuple[yaml.Node, yaml.Node, str] | None:
    """The entry that a path begins with: what is shown for it, its value, and the rest of the path."""
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


def _twice(node: yaml.Node, path: str, seen: set[int]) -> Iterator[tuple[str, Position]]:
    if id(node) in seen:
        return  # an alias
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            yield from _twice(item, f"{path}[{i}]", seen)
    elif isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            where = f"{path}.{key.value}".removeprefix(".")
            if key.tag != _MERGE and str(key.value) in names:
                yield where, Position(key.start_mark.line + 1, key.start_mark.column + 1)
            names.add(str(key.value))
            yield from _twice(value, where, seen)
