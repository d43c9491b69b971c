"""Writes the converted manifests: valid names, and YAML for users, with comments and multiline texts as blocks."""

import re
from collections.abc import Iterable
from typing import Any, Final

import yaml

from perdure.api.yaml_text import Dumper, dump, map_node
from perdure.importing.reader import Object

_NAME_START: Final = re.compile("[A-Za-z]")

_NOT_NAME: Final = re.compile("[^-_A-Za-z0-9]+")

_MAX_NAME: Final = 63


class Names:
    """Assigns a unique valid name to each original name."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], str] = {}
        self._taken: set[str] = set()

    def of(self, *key: str) -> str:
        """Return the name for a key, whose last part is the preferred name; the same key always has the same name."""
        if key not in self._names:
            self._names[key] = self.fresh(key[-1])
        return self._names[key]

    def fresh(self, wish: str) -> str:
        """Return an unused name."""
        base = valid_name(wish)
        name, number = base, 2
        while name in self._taken:
            name = f"{base[: _MAX_NAME - 4]}-{number}"
            number += 1
        self._taken.add(name)
        return name


def valid_name(wish: str) -> str:
    """Convert a text to a name for definitions: letters, digits, dashes and underscores, and a letter first."""
    name = _NOT_NAME.sub("-", wish).strip("-")
    return (name if _NAME_START.match(name) else f"s-{name}")[:_MAX_NAME]


COMMENT: Final = "#"
"""The key of a comment in a map; the comment is written before the map."""
_MARK: Final = re.compile(r"^( *)(?:(- )'#': (.*)\n\1  |'#': (.*)\n)", re.MULTILINE)


class _Dumper(Dumper):
    """Writes a map with a comment in several lines."""


def _map(dumper: _Dumper, fields: dict[str, Any]) -> yaml.MappingNode:
    node = map_node(dumper, fields)
    if COMMENT in fields:
        node.flow_style = False
    return node


_Dumper.add_representer(dict, _map)


def write(manifests: Iterable[Object]) -> str:
    """Write manifests, with their comments.

    Args:
        manifests: The manifests; the value of `COMMENT` in a map is its comment.
    """
    return "---\n".join(map(_one, manifests))


def _one(manifest: Object) -> str:
    lines = str(manifest.get(COMMENT, "")).splitlines()
    head = "".join(f"# {_printable(line)}".rstrip() + "\n" for line in lines)
    rest = {key: value for key, value in manifest.items() if key != COMMENT}
    return head + _MARK.sub(_as_comment, dump(rest, _Dumper))


def _as_comment(found: re.Match[str]) -> str:
    indent, dash, in_list, in_map = found.groups()
    comment = _printable(yaml.safe_load(in_list or in_map))
    return f"{indent}# {comment}\n" + (indent + dash if dash else "")


def _printable(text: str) -> str:
    """Return a text as one line of a comment, with its other characters escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def plain(value: Any) -> Any:
    """Return a value without comments."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key != COMMENT}
    return [plain(each) for each in value] if isinstance(value, list) else value
