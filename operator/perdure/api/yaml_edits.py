"""Writes changes of values into a YAML text, and leaves everything else as it is: comments, order, and style.

The nodes of a document know where they are in the text. An edit replaces a scalar, an entry of a map, or an item of a list, adds
one, or removes one with its lines. What cannot be edited that way, such as an entry of a merge key, is written again as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

import yaml

from perdure.api.yaml_text import dump, inline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a document."""

    node: yaml.Node
    """Its root."""
    old: Any
    """The value that the text has."""
    new: Any


def edited(text: str, changes: Iterable[Change], *, rewrite: bool = False) -> str:
    """Return a text with changes of its documents.

    Args:
        text: The text.
        changes: The changes, each of another document.
        rewrite: Whether changed documents are written again as a whole.
    """
    editor = _Editor(text)
    for change in changes:
        if change.old == change.new:
            continue
        mark = len(editor.edits)
        if not rewrite:
            try:
                editor.change(change.node, change.old, change.new)
                continue
            except _UneditableError:
                del editor.edits[mark:]
        editor.replace(change.node.start_mark.index, _end(text, change.node), dump(change.new).rstrip("\n"))
    for start, end, new in sorted(editor.edits, reverse=True):
        text = f"{text[:start]}{new}{text[end:]}"
    return text


class _UneditableError(Exception):
    """Something must be written again as a whole."""


@dataclass(slots=True)
class _Editor:
    text: str
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    """Start and end of what is replaced, and the new text."""

    def replace(self, start: int, end: int, new: str) -> None:
        self.edits.append((start, end, new))

    def change(self, node: yaml.Node, old: Any, new: Any) -> None:
        """Change a value in place.

        Raises:
            _UneditableError: It cannot be done.
        """
        if old == new:
            return
        if isinstance(node, yaml.MappingNode) and isinstance(old, dict) and isinstance(new, dict) and new:
            self._change_map(node, old, new)
        elif isinstance(node, yaml.SequenceNode) and isinstance(old, list) and isinstance(new, list) and new:
            self._change_list(node, old, new)
        elif isinstance(node, yaml.ScalarNode) and node.end_mark.index > node.start_mark.index and _is_plain(node, new):
            self.replace(node.start_mark.index, node.end_mark.index, inline(new))
        else:
            raise _UneditableError

    # Maps

    def _change_map(self, node: yaml.MappingNode, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        entries = {key.value: (key, value) for key, value in node.value}
        if any(key.tag == _MERGE for key, _ in node.value) or len(entries) < len(node.value):
            raise _UneditableError
        if node.flow_style:
            if old.keys() != new.keys():
                self.replace(node.start_mark.index, node.end_mark.index, inline(new))
                return
            for name, (_, value) in entries.items():
                if name in new:
                    self.change(value, old[name], new[name])
            return
        column = node.start_mark.column
        last = None
        for name, (key, value) in entries.items():
            if name in new:
                self._change_entry(key, value, old.get(name), new[name])
            elif name in old:
                self._remove(key.start_mark.index, _end(self.text, value))
                continue
            last = value
        if last is None:
            raise _UneditableError
        added = [_indented(_entry(name, new[name]), column) for name in new if name not in entries]
        if added:
            at = self._end_of_line(_end(self.text, last))
            self.replace(at, at, "".join(f"\n{' ' * column}{each}" for each in added))

    def _change_entry(self, key: yaml.Node, value: yaml.Node, old: Any, new: Any) -> None:
        mark = len(self.edits)
        try:
            self.change(value, old, new)
        except _UneditableError:
            del self.edits[mark:]
            start = key.start_mark.index
            self.replace(start, _end(self.text, value), _indented(_entry(key.value, new), key.start_mark.column))

    # Lists

    def _change_list(self, node: yaml.SequenceNode, old: Sequence[Any], new: Sequence[Any]) -> None:
        if len(node.value) != len(old):
            raise _UneditableError
        if node.flow_style:
            if len(old) != len(new):
                self.replace(node.start_mark.index, node.end_mark.index, inline(new))
                return
            for each, before, after in zip(node.value, old, new, strict=True):
                self.change(each, before, after)
            return
        column = node.start_mark.column
        matcher = SequenceMatcher(None, _identities(old), _identities(new), autojunk=False)
        for _, start, end, new_start, new_end in matcher.get_opcodes():
            paired = min(end - start, new_end - new_start)
            for offset in range(paired):
                self._change_item(node.value[start + offset], old[start + offset], new[new_start + offset], column)
            for each in node.value[start + paired : end]:
                self._remove(self._dash(each), _end(self.text, each))
            added = [" " * column + _indented(_item(each), column) for each in new[new_start + paired : new_end]]
            if added and start + paired:
                at = self._end_of_line(_end(self.text, node.value[start + paired - 1]))
                self.replace(at, at, "".join(f"\n{each}" for each in added))
            elif added:
                at = self._start_of_line(self._dash(node.value[0]))
                self.replace(at, at, "".join(f"{each}\n" for each in added))

    def _change_item(self, node: yaml.Node, old: Any, new: Any, column: int) -> None:
        mark = len(self.edits)
        try:
            self.change(node, old, new)
        except _UneditableError:
            del self.edits[mark:]
            self.replace(self._dash(node), _end(self.text, node), _indented(_item(new), column))

    def _dash(self, item: yaml.Node) -> int:
        return self.text.rindex("-", 0, item.start_mark.index or 1)

    # Lines

    def _remove(self, start: int, end: int) -> None:
        """Remove lines, with the comments directly above them that are indented as they are."""
        begin = self._start_of_line(start)
        indent = self.text[begin:start]
        while begin:
            above = self.text.rfind("\n", 0, begin - 1) + 1
            if not self.text[above:begin].startswith(f"{indent}#"):
                break
            begin = above
        self.replace(begin, min(self._end_of_line(end) + 1, len(self.text)), "")

    def _start_of_line(self, at: int) -> int:
        """Return where the line begins.

        Raises:
            _UneditableError: There is something else before the position, such as the dash of a list.
        """
        start = self.text.rfind("\n", 0, at) + 1
        if self.text[start:at].strip():
            raise _UneditableError
        return start

    def _end_of_line(self, at: int) -> int:
        found = self.text.find("\n", at)
        return len(self.text) if found < 0 else found


def _end(text: str, node: yaml.Node) -> int:
    """Return where the content of a node ends, without the comments and empty lines that follow."""
    end = int(node.end_mark.index)
    if isinstance(node, yaml.ScalarNode):
        return len(text[:end].rstrip()) if node.style in {"|", ">"} else end
    assert isinstance(node, yaml.CollectionNode)
    if node.flow_style or not node.value:
        return end
    last = node.value[-1]
    return _end(text, last[1] if isinstance(last, tuple) else last)


def _identities(items: Sequence[Any]) -> list[str]:
    """What tells the items of a list apart: the name, if they have one."""
    return [str(each["name"]) if isinstance(each, dict) and "name" in each else repr(each) for each in items]


def _is_plain(node: yaml.ScalarNode, new: Any) -> bool:
    return node.style not in {"|", ">"} and _is_short(new)


def _is_short(value: Any) -> bool:
    return not isinstance(value, dict | list) and "\n" not in str(value)


def _entry(name: str, value: Any) -> str:
    """Return an entry of a map in block style."""
    key = inline(name)
    if _is_short(value):
        return f"{key}: {inline(value)}"
    text = dump(value).rstrip("\n")
    if text.startswith(("{", "[", "|")):
        return f"{key}: {text}"
    return f"{key}:\n{text if isinstance(value, list) else '  ' + _indented(text, 2)}"


def _item(value: Any) -> str:
    """Return an item of a list in block style."""
    if _is_short(value):
        return f"- {inline(value)}"
    return "- " + _indented(dump(value).rstrip("\n"), 2)


def _indented(text: str, columns: int) -> str:
    """Indent the lines of a text but the first."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * columns + line if line else line for line in rest)])
