"""Values of declared types as JSON, and back: arguments and results of flows and activities.

Dataclasses, enums, dates, durations, and pydantic models are encoded by pydantic; types with Structs of msgspec, by msgspec.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.api.files import MARK, StoredValue

if TYPE_CHECKING:
    from collections.abc import Callable


class ValueTypeError(TypeError):
    """A value does not fit its declared type, or JSON cannot represent it."""


@dataclass(frozen=True, slots=True)
class Codec:
    """Encodes and decodes the values of one declared type."""

    _to_json: Callable[[Any], Any]
    _from_json: Callable[[Any], Any]
    has_files: bool
    """Whether its values can contain files or folders of an artifact store."""

    def encode(self, value: Any, subject: str) -> Any:
        """Return a value as JSON.

        Args:
            value: The value.
            subject: What it is, for the message, such as "argument `day` of extract".

        Raises:
            ValueTypeError: The value does not fit the type, or JSON cannot represent it.
        """
        try:
            found = self._to_json(value)
            json.dumps(found, ensure_ascii=False, allow_nan=False).encode()  # refuses NaN, and half a surrogate pair
        except (TypeError, ValueError) as error:
            raise ValueTypeError(f"{subject}: {_reason(error)}") from error
        return found

    def decode(self, value: Any, subject: str) -> Any:
        """Return a value of the type.

        Args:
            value: The JSON.
            subject: What it is, for the message.

        Raises:
            ValueTypeError: The JSON does not fit the type.
        """
        try:
            return self._from_json(value)
        except (TypeError, ValueError) as error:
            raise ValueTypeError(f"{subject}: {_reason(error)}") from error


def codec_of(hint: Any) -> Codec:
    """Return the codec of a declared type.

    Args:
        hint: The type; Any for a value without a declared type.

    Raises:
        TypeError: Neither pydantic nor msgspec can represent the type.
    """
    from pydantic import PydanticUserError, TypeAdapter  # noqa: PLC0415 - 0.1 s of each import of flows

    try:
        adapter = TypeAdapter(hint)
    except PydanticUserError as error:  # a type that it does not know, or a TypedDict before Python 3.12
        return _msgspec_codec(hint, error)

    def to_json(value: Any) -> Any:
        valid = adapter.validate_python(value)
        return adapter.dump_python(valid, mode="json", by_alias=True)

    def from_json(value: Any) -> Any:
        return adapter.validate_json(json.dumps(value))

    return Codec(to_json, from_json, _mentions_files(adapter.core_schema))


def _mentions_files(schema: Any) -> bool:
    """Return whether a schema of pydantic has that of a file in it."""
    if isinstance(schema, dict):
        return MARK in (schema.get("metadata") or ()) or any(_mentions_files(each) for each in schema.values())
    return isinstance(schema, list | tuple) and any(_mentions_files(each) for each in schema)


def _msgspec_codec(hint: Any, reason: Exception) -> Codec:
    try:
        import msgspec  # noqa: PLC0415 - only for its own types
    except ImportError:
        raise TypeError(f"{hint!r} cannot be passed between a flow and its activities") from reason

    files: list[type[StoredValue]] = []

    def to_json(value: Any) -> Any:
        plain = msgspec.to_builtins(value, enc_hook=_plain)
        msgspec.convert(plain, hint, dec_hook=lambda kind, _: object.__new__(kind))
        return plain

    def from_json(value: Any) -> Any:
        return msgspec.convert(value, hint, dec_hook=_from_plain)

    def schema_of(kind: type) -> dict[str, Any]:
        if not issubclass(kind, StoredValue):
            raise NotImplementedError
        files.append(kind)
        return {"type": "object"}

    try:
        msgspec.json.schema(hint, schema_hook=schema_of)
    except (TypeError, NotImplementedError):
        raise TypeError(f"{hint!r} cannot be passed between a flow and its activities") from reason
    return Codec(to_json, from_json, bool(files))


def _plain(value: Any) -> Any:
    """Return what msgspec encodes in place of a value of a type that it does not know."""
    if isinstance(value, StoredValue):
        return value.to_reference()
    raise NotImplementedError(f"{type(value).__name__} cannot be encoded")


def _from_plain(kind: type, value: Any) -> Any:
    """Return a value of a type that msgspec does not know."""
    return kind.from_reference(value) if issubclass(kind, StoredValue) else value


def _reason(error: Exception) -> str:
    """Return the messages of an error in one line, each with the place in the value."""
    details = getattr(error, "errors", None)
    if not callable(details):
        return str(error)
    places = [(".".join(str(part) for part in each["loc"]), each["msg"]) for each in details()]
    return "; ".join(f"{place}: {message}" if place else message for place, message in places)
