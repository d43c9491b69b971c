"""Explains fields of the kinds, from the CRDs, and reasons of conditions and Events. Pure."""

import re
import textwrap
from collections.abc import Iterator
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from perdure.api.crdgen import KINDS, member_docs, structural_schema
from perdure.api.models import Resource
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.client.errors import CliError

_WIDTH = 80
_SOURCES: tuple[tuple[str, type[StrEnum]], ...] = (
    ("Type of a condition", ConditionType),
    ("Reason of a condition", ConditionReason),
    ("Reason of an Event", EventReason),
)
_OF_KIND = re.compile(rf" ?\b({'|'.join(kind.__name__ for kind in KINDS)}): ")


def explain(topic: str) -> Iterator[str]:
    """Explain a kind, a field of a kind, or a reason.

    Args:
        topic: Any name of a kind, optionally followed by the path of a field, such as `wfr.spec.input`; or a reason.

    Yields:
        Lines.

    Raises:
        CliError: The kind, field, or reason does not exist.
    """
    name, _, path = topic.partition(".")
    kind = _kinds().get(name.casefold())
    if kind is not None:
        return _field(kind, path)
    return _reason(topic)


def topics() -> list[str]:
    """List the names of the kinds, and the reasons."""
    words = {str(word) for _, source in _SOURCES for word in source}
    return [*(kind.__name__.lower() for kind in KINDS), *sorted(words)]


def _kinds() -> dict[str, type[Resource]]:
    """Return the kinds by each of their names, in lower case."""
    return {name: kind for kind in KINDS for name in (kind.__name__.lower(), kind.info.plural, kind.info.short_name)}


def _field(kind: type[Resource], path: str) -> Iterator[str]:
    schema, walked = structural_schema(kind), list[str]()
    for name in filter(None, path.split(".")):
        fields = _fields(schema)
        if name not in fields:
            near = get_close_matches(name, fields, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"its fields are {', '.join(fields) or 'not described'}"
            where = ".".join((kind.__name__, *walked))
            raise CliError(f"`{where}` has no field `{name}`; {hint}")
        walked, schema = [*walked, name], fields[name]
    yield f"KIND:   {kind.__name__}"
    if walked:
        yield f"FIELD:  {'.'.join(walked)} <{_type(schema)}>"
    yield ""
    yield from _wrapped(str(schema.get("description") or ""), "")
    fields, required = _fields(schema), set(_inner(schema).get("required") or ())
    if fields:
        yield ""
        yield "FIELDS:"
    for name, each in fields.items():
        yield f"  {name} <{_type(each)}>{' -required-' if name in required else ''}"
        yield from _wrapped(str(each.get("description") or ""), "    ")


def _inner(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the items of a list, or of the values of a map; any other schema as it is."""
    inner = schema.get("items") or schema.get("additionalProperties")
    return inner if isinstance(inner, dict) else schema


def _fields(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _inner(schema).get("properties") or {}
    return found


def _type(schema: dict[str, Any]) -> str:
    if "items" in schema:
        return f"[]{_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map[string]{_type(schema['additionalProperties'])}"
    return str(schema.get("type") or "any")


def _reason(word: str) -> Iterator[str]:
    found = [
        (title, name, doc)
        for title, source in _SOURCES
        for name, doc in member_docs(source).items()
        if name.casefold() == word.casefold()
    ]
    if not found:
        by_name = {each.casefold(): each for each in (*topics(), *_kinds())}
        near = [by_name[each] for each in get_close_matches(word.casefold(), by_name, 1)]
        hint = f"did you mean `{near[0]}`?" if near else "pass a kind, the path of a field, or a reason"
        raise CliError(f"there is no kind or reason `{word}`; {hint}")
    for index, (title, name, doc) in enumerate(found):
        if index:
            yield ""
        yield f"{name}: {title[0].lower()}{title[1:]}"
        general, *special = _OF_KIND.split(doc)
        yield from _wrapped(general, "  ")
        for kind, text in zip(special[::2], special[1::2], strict=True):
            yield from _wrapped(f"{kind}: {text}", "  ")


def _wrapped(text: str, indent: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from textwrap.wrap(line, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)
