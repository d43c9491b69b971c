"""Writes the converted manifests: valid names, and YAML for users, with comments and multiline texts as blocks."""

import re
from collections.abc import Iterable
from typing import Any, Final

import yaml

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
_WIDTH: Final = 1_000_000
_SHORT: Final = 70
"""Maximum characters of a list or a map in one line."""
_MARK: Final = re.compile(r"^( *)(?:(- )'#': (.*)\n\1  |'#': (.*)\n)", re.MULTILINE)


class _Dumper(yaml.SafeDumper):
    """Writes multiline texts as blocks, and quotes texts that kubectl would parse as another type."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (the signature of PyYAML)
        """Return true: repeat values instead of writing aliases."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_block = "\n" in text and not re.search(r"[ \t]\n|[^\x20-\x7e\n\u00a0-\uffff]|\A[ \n]", text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if is_block else None)


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=_is_short(items))


def _map(dumper: yaml.SafeDumper, fields: dict[str, Any]) -> yaml.MappingNode:
    node = dumper.represent_dict(fields)
    node.flow_style = _is_short([*fields.keys(), *fields.values()]) and COMMENT not in fields
    return node


def _is_short(values: list[Any]) -> bool:
    """Whether values fit into one line with brackets."""
    scalars = all(not isinstance(value, dict | list) or not value for value in values)
    return scalars and "\n" not in str(values) and len(str(values)) <= _SHORT


_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("[yYnN]$"), list("yYnN"))
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile("[-+]?[0-9]+[eE][-+]?[0-9]+$|0o[0-7]+$"), list("-+0123456789")
)
_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
_Dumper.add_representer(dict, _map)


def write(manifests: Iterable[Object]) -> str:
    """Write manifests, with their comments.

    Args:
        manifests: The manifests; the value of `COMMENT` in a map is its comment.
    """
    return "---\n".join(map(_one, manifests))


def _one(manifest: Object) -> str:
    head = "".join(f"# {line}".rstrip() + "\n" for line in str(manifest.get(COMMENT, "")).splitlines())
    rest = {key: value for key, value in manifest.items() if key != COMMENT}
    text = yaml.dump(rest, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return head + _MARK.sub(_as_comment, text)


def _as_comment(found: re.Match[str]) -> str:
    indent, dash, in_list, in_map = found.groups()
    comment = yaml.safe_load(in_list or in_map)
    return f"{indent}# {comment}\n" + (indent + dash if dash else "")


def plain(value: Any) -> Any:
    """Return a value without comments."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key != COMMENT}
    return [plain(each) for each in value] if isinstance(value, list) else value
