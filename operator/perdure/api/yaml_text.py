"""YAML as kubectl reads it: a loader, and a dumper for people, which quotes what kubectl would read as another type."""

import json
import math
import re
from typing import Any, ClassVar, Final

import yaml

_SURROGATE = re.compile("[\ud800-\udfff]")
_TAG = "tag:yaml.org,2002:"
_TEXT, _NULL = f"{_TAG}str", f"{_TAG}null"
_SHORT: Final = 70
"""Maximum characters of a list or a map in one line."""


class MisreadKey(yaml.ScalarNode):
    """A key that kubectl parses as a different text."""

    def __init__(self, name: str, node: yaml.ScalarNode) -> None:
        super().__init__(_TEXT, name, node.start_mark, node.end_mark)
        self.written = str(node.value)


class Loader(yaml.SafeLoader):
    """Parses YAML as kubectl does: times remain text, `y` and `n` are booleans, and every key is text.

    kubectl uses sigs.k8s.io/yaml, on top of go-yaml v2: keys that are booleans or numbers become JSON text.
    Its numbers are those of Go: `12:30` is text and `1e3` a number, unlike in PyYAML.
    """

    bool_values: ClassVar[dict[str, bool]] = {**yaml.SafeLoader.bool_values, "y": True, "n": False}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node; reject a node that contains itself."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            meant = self.anchors.get(event.anchor)
            if meant is not None and meant.end_mark is None:
                message = f"the anchor {event.anchor} contains an alias of itself"
                raise yaml.composer.ComposerError(None, None, message, event.start_mark)
        return super().compose_node(parent, index)

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """Compose a text. JSON can write a character as two escapes, a surrogate pair, which are one character here.

        Raises:
            yaml.composer.ComposerError: One of the two is missing.
        """
        node = super().compose_scalar_node(anchor)
        if _SURROGATE.search(node.value):
            try:
                node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                message = "an escape such as `\\ud83d` must be followed by the other half of the character"
                raise yaml.composer.ComposerError(None, None, message, node.start_mark) from None
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a map; its keys become text."""
        node = super().compose_mapping_node(anchor)
        node.value = [(self._as_text(key), value) for key, value in node.value]
        return node

    def _as_text(self, key: yaml.Node) -> yaml.Node:
        if not isinstance(key, yaml.ScalarNode) or key.tag == _NULL:
            what = "null" if isinstance(key, yaml.ScalarNode) else "a list or a map"
            message = f"a key must be a string, not {what}; write it in quotes"
            raise yaml.composer.ComposerError(None, None, message, key.start_mark)
        if key.tag in {f"{_TAG}bool", f"{_TAG}int", f"{_TAG}float"}:
            value = self.construct_object(key)
            name = f"{float(value):g}" if key.tag == f"{_TAG}float" else json.dumps(value)
            return (
                MisreadKey(name, key)
                if name != key.value
                else yaml.ScalarNode(_TEXT, name, key.start_mark, key.end_mark)
            )
        return key


def _integer(_loader: Loader, node: yaml.ScalarNode) -> int:
    text = str(node.value).replace("_", "")
    digits = text.lstrip("+-")
    is_octal = digits.startswith("0") and digits.isdecimal()
    number = int(digits, 8) if is_octal else int(digits, 0)
    return -number if text.startswith("-") else number


def _decimal(loader: Loader, node: yaml.ScalarNode) -> Any:
    number = float(str(node.value).replace("_", "")) if _DECIMAL.fullmatch(node.value) else None
    if number is None:  # .inf, .nan
        return loader.construct_yaml_float(node)
    if math.isinf(number):
        return str(node.value)
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


_EXACT = 2**53
_DECIMAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?")
_INTEGER = re.compile(r"[-+]?(?:0b_*[01][01_]*|0o_*[0-7][0-7_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0[0-7_]*|[1-9][0-9_]*)$")
_NUMBERS = (
    (f"{_TAG}int", _INTEGER),
    (f"{_TAG}float", re.compile(rf"(?:{_DECIMAL.pattern}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")),
)

Loader.yaml_implicit_resolvers = {
    first: [
        (tag, form)
        for tag, form in resolvers
        if tag not in {f"{_TAG}timestamp", f"{_TAG}value", f"{_TAG}int", f"{_TAG}float"}
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(f"{_TAG}bool", re.compile("[yYnN]$"), list("yYnN"))
for _tag, _form in _NUMBERS:
    Loader.add_implicit_resolver(_tag, _form, list("-+.0123456789"))
Loader.add_constructor(f"{_TAG}int", _integer)
Loader.add_constructor(f"{_TAG}float", _decimal)


class QuotingDumper(yaml.SafeDumper):
    """Quotes texts that kubectl would read as another type, such as `y` and `1e3`."""


QuotingDumper.add_implicit_resolver(f"{_TAG}bool", re.compile("[yYnN]$"), list("yYnN"))
for _tag, _form in _NUMBERS:
    QuotingDumper.add_implicit_resolver(_tag, _form, list("-+.0123456789"))


class Dumper(QuotingDumper):
    """Also writes multiline texts as blocks, and short values in one line."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (the signature of PyYAML)
        """Return true: repeat values instead of writing aliases."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_block = "\n" in text and not re.search(r"[ \t]\n|[^\x20-\x7e\n\u00a0-\uffff]|\A[ \n]", text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if is_block else None)


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=_is_short(items))


def map_node(dumper: yaml.SafeDumper, fields: dict[str, Any]) -> yaml.MappingNode:
    """Represent a map: in one line if it is short and has no maps or lists in it."""
    node = dumper.represent_dict(fields)
    node.flow_style = _is_short([*fields.keys(), *fields.values()])
    return node


def _is_short(values: list[Any]) -> bool:
    """Whether values fit into one line with brackets."""
    scalars = all(not isinstance(value, dict | list) or not value for value in values)
    return scalars and "\n" not in str(values) and len(str(values)) <= _SHORT


Dumper.add_representer(str, _text)
Dumper.add_representer(list, _list)
Dumper.add_representer(dict, map_node)


_WIDTH: Final = 1_000_000


def dump(value: Any, dumper: type[yaml.SafeDumper] = Dumper) -> str:
    """Write a value; lines are not wrapped."""
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return text


def dump_blocks(value: Any, *, allow_unicode: bool = True) -> str:
    """Write a value as kubectl does: each field and element has a line of its own."""
    return str(yaml.dump(value, Dumper=QuotingDumper, sort_keys=False, allow_unicode=allow_unicode))


class _InlineDumper(Dumper):
    """Writes everything in one line, as it can be inside of brackets."""


def _inline_list(dumper: _InlineDumper, items: list[Any]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)


def _inline_map(dumper: _InlineDumper, fields: dict[str, Any]) -> yaml.MappingNode:
    node = dumper.represent_dict(fields)
    node.flow_style = True
    return node


_InlineDumper.add_representer(list, _inline_list)
_InlineDumper.add_representer(dict, _inline_map)


def inline(value: Any) -> str:
    """Write a value in one line, such as a part of a list in brackets."""
    return dump([value], _InlineDumper).strip()[1:-1]
