"""The form of everything that the operator stores, and of the messages between operators: JSON, read without losing anything.

An operator that does not know a field would drop it with its next write, and sign the loss. So an unknown field is an error: a
newer version wrote it, and the operator does nothing with the object. The functions of this module read the known part of such
values, to show it, or to decide about another object; values that are damaged count as missing. The result is never stored.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import orjson
from msgspec import inspect

from perdure.api.json_values import mapping, nests_deeper


class StoredStruct(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """Base of stored values: camelCase in JSON without defaults; an unknown field or value is a `msgspec.ValidationError`."""


class MessageStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of values in messages between operators; an unknown field or value is a `msgspec.ValidationError`."""


_Kind = TypeVar("_Kind")


def convert(value: Any, kind: type[_Kind]) -> _Kind | None:
    """Convert JSON to a value of a type, without the fields that only a newer version knows, or return None."""
    try:
        return None if value is None else msgspec.convert(value, kind)
    except msgspec.ValidationError:
        with suppress(msgspec.ValidationError):
            return msgspec.convert(_known(value, inspect.type_info(kind)), kind)
        return None


def decode_known(raw: str, kind: Any) -> Any:
    """Decode a JSON text, without the fields that only a newer version knows.

    Raises:
        msgspec.MsgspecError: It is not JSON, or not a value of the type.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError:
        return msgspec.convert(_known(msgspec.json.decode(raw), inspect.type_info(kind)), kind)


def is_known(raw: str, kind: Any) -> bool:
    """Whether this version knows everything in a JSON text, so that it can write the value again."""
    try:
        msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        return False
    return True


def _known(value: Any, info: inspect.Type) -> Any:
    """The part of a JSON value that a type has a place for."""
    if isinstance(info, inspect.UnionType):
        return _known(value, next((each for each in info.types if _fits(value, each)), inspect.AnyType()))
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        fields = {each.encode_name: each.type for each in info.fields}
        kept = {name: _known(each, fields[name]) for name, each in value.items() if name in fields}
        return kept if info.tag_field is None else {info.tag_field: value.get(info.tag_field), **kept}
    if isinstance(info, inspect.DictType) and isinstance(value, dict):
        return {key: _known(each, info.value_type) for key, each in value.items()}
    if isinstance(info, (inspect.ListType, inspect.VarTupleType)) and isinstance(value, list):
        return [_known(each, info.item_type) for each in value]
    return value


def _fits(value: Any, info: inspect.Type) -> bool:
    """Whether a member of a union may describe a value that has fields or entries."""
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        return info.tag_field is None or value.get(info.tag_field) == info.tag
    return isinstance(info, inspect.DictType if isinstance(value, dict) else inspect.CollectionType)


def convert_all(value: Any, kind: type[_Kind]) -> dict[str, _Kind]:
    """Convert the entries of an object; those that are not valid are left out."""
    entries = ((key, convert(entry, kind)) for key, entry in mapping(value).items())
    return {key: entry for key, entry in entries if entry is not None}


def name_in(annotation: Any) -> str:
    """Return the `name` in an annotation that is a JSON object; an empty string if it has none."""
    try:
        return str(mapping(msgspec.json.decode(annotation)).get("name") or "")
    except (TypeError, msgspec.DecodeError, RecursionError):
        return ""


def read_annotation(obj: Mapping[str, Any], key: str, kind: type[_Kind]) -> _Kind | None:
    """Read an annotation as JSON.

    Args:
        obj: The object.
        key: Name of the annotation.
        kind: Type of the value.

    Returns:
        None if the annotation does not exist, is not valid, or nests deeper than a status can.
    """
    return convert(_annotation(obj, key), kind)


def newer_annotation(obj: Mapping[str, Any], key: str, kind: type[Any]) -> str:
    """Say what only a newer version can read in an annotation that only operators write; empty if there is nothing.

    An annotation that is not valid in another way counts as missing: no operator has written it.

    Args:
        obj: The object.
        key: Name of the annotation.
        kind: Type of the value.
    """
    found = _annotation(obj, key)
    try:
        if isinstance(found, dict):
            msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        # Otherwise, it has an unknown value of a field that has only some, and `convert` cannot read it.
        is_newer = convert(found, kind) is not None or str(error).startswith(("Invalid enum value", "Invalid value"))
        return f"annotation `{key}`: {error}" if is_newer else ""
    return ""


def _annotation(obj: Mapping[str, Any], key: str) -> Any:
    """The JSON in an annotation; None if it does not exist, is not valid, or nests deeper than a status can."""
    text = (obj["metadata"].get("annotations") or {}).get(key)
    if not text:
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return None if nests_deeper(found) else found
