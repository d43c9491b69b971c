"""Decode responses of the API server object by object: an undecodable object does not affect others. Pure.

The API server stores values up to 10,000 levels deep. The depth that Python can decode depends on the decoder, the interpreter
and the recursion limit, so every decoder here may fail. Then the object is skipped and reported with its metadata.

In tables, the API server sends the printed columns and the metadata of objects, not the objects themselves.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypedDict

import msgspec
import orjson

from perdure.kube.errors import NoResponseError, UnreadableError
from perdure.runtime import status_encoding

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')
_KIND: Final = re.compile(rb'"kind":\s*"([A-Za-z]+)"')
_API_VERSION: Final = re.compile(rb'"apiVersion":\s*"([a-z0-9./-]+)"')
_METADATA: Final = re.compile(rb'"metadata":\s*(?={)')
_CONTINUE: Final = re.compile(rb'"continue":\s*"([^"\\]*)"')
_VERSION: Final = re.compile(rb'"resourceVersion":\s*"([0-9]*)"')


class UndecodableError(ValueError):
    """A value is not JSON or nests too deeply; the message says which."""


class TooDeepError(UndecodableError):
    """JSON nests too deeply for this interpreter."""


class Stored(msgspec.Struct, frozen=True):
    """The identity and the version of a stored object, from its metadata."""

    name: str
    uid: str
    version: str = msgspec.field(name="resourceVersion")
    namespace: str = ""
    labels: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecodable:
    """An object that could not be decoded, with the known part of its metadata."""

    api_version: str
    kind: str
    stored: Stored | None
    """The object's identity; None if its metadata cannot be decoded either."""
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """A page of a list; its objects are still encoded."""

    items: list[msgspec.Raw]
    kind: str
    """The kind of the objects."""
    api_version: str
    version: str
    """The resourceVersion of the list: a watch can start there."""
    following: str
    """The token of the next page; empty on the last one."""


class _ListMeta(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")
    following: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None
    kind: str = ""
    apiVersion: str = ""  # noqa: N815


class _OnlyMetadata(msgspec.Struct):
    metadata: Stored


def decode(raw: bytes | memoryview) -> Any:
    """Decode one JSON value. The fast decoder fails beyond 1,024 levels, the second one at the recursion limit.

    Raises:
        UndecodableError: Neither decoder can decode the value.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        problem = str(error)
    try:
        return json.loads(bytes(raw), parse_int=_read_integer)
    except RecursionError:
        raise TooDeepError("it is nested too deeply") from None
    except ValueError:
        raise UndecodableError(f"it is not JSON: {problem}") from None


def decode_object(raw: bytes | memoryview) -> Any:
    """Decode one object. A WorkflowRun has values in place of the texts in its status.

    Raises:
        UndecodableError: As for `decode`.
    """
    value = decode(raw)
    return status_encoding.decode(value) if isinstance(value, dict) else value


def decode_answer(raw: bytes, request: str) -> Any:
    """Decode the response to a request.

    Args:
        raw: The response.
        request: The request, for messages, such as `GET /version`.

    Raises:
        UnreadableError: The response is an object that cannot be decoded.
        NoResponseError: The response is not JSON, because a proxy sent it or the connection failed.
    """
    try:
        return decode_object(raw)
    except TooDeepError as error:
        raise UnreadableError(200, "Unreadable", f"{request}: the object cannot be decoded: {error}") from error
    except UndecodableError as error:
        raise NoResponseError(f"{request}: the response is not JSON: {error}") from error


def decode_page(raw: bytes, request: str) -> ListPage:
    """Decode a page of a list, but not its objects. Arguments and exceptions are those of `decode_answer`."""
    try:
        return page_of(raw)
    except ValueError as error:
        raise NoResponseError(f"{request}: the response is not a JSON list: {error}") from error


def _read_integer(text: str) -> int | float:
    """Read an integer as the API server stores it: beyond 64 bits, as the nearest floating-point number.

    The bounds are those of orjson, which reads and writes all other values; `json` reads integers of any size.

    Raises:
        ValueError: The number is too large even for a float.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError("the number is too large")
    exact = int(text)
    return exact if -(2**63) <= exact < 2**64 else value


def metadata_of(raw: bytes | memoryview) -> Stored:
    """Read the identity and version of an object, without decoding the rest.

    Raises:
        UndecodableError: The metadata cannot be decoded.
    """
    try:
        return msgspec.json.decode(raw, type=_OnlyMetadata).metadata
    except (msgspec.DecodeError, RecursionError):
        pass
    # `metadata` comes before `spec` and `status`, which contain users' values.
    text = bytes(raw)
    begin = _METADATA.search(text)
    if begin is None:
        raise UndecodableError("it has no metadata")
    try:
        found, _ = json.JSONDecoder().raw_decode(text[begin.end() :].decode(errors="replace"))
        return msgspec.convert({"metadata": found}, _OnlyMetadata).metadata
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        raise UndecodableError("its metadata cannot be read") from error


def undecodable(raw: bytes | memoryview, problem: str, *, kind: str = "", api_version: str = "") -> Undecodable:
    """Describe an object that cannot be decoded.

    Args:
        raw: The object, or a watch event that contains it.
        problem: Why it cannot be decoded.
        kind: Its kind, if the object does not contain it.
        api_version: Its apiVersion, if the object does not contain it.
    """
    text = bytes(raw)
    try:
        stored = metadata_of(text)
    except UndecodableError:
        stored = None
    return Undecodable(
        api_version=_first(_API_VERSION, text) or api_version,
        kind=_first(_KIND, text) or kind,
        stored=stored,
        problem=problem,
    )


def page_of(raw: bytes) -> ListPage:
    """Split a list into its objects.

    Raises:
        ValueError: The text is not a Kubernetes list.
    """
    try:
        found = msgspec.json.decode(raw, type=_List)
    except RecursionError:
        found = _cut(raw)
    return ListPage(
        items=found.items or [],
        kind=found.kind.removesuffix("List"),
        api_version=found.apiVersion,
        version=found.metadata.version,
        following=found.metadata.following,
    )


def _cut(raw: bytes) -> _List:
    """Split a list by its brackets. This needs no stack, even if its objects nest deeply."""
    items = [msgspec.Raw(raw[begin:end]) for begin, end in _spans(raw)]
    if items:
        begin, end = raw.index(bytes(items[0])), raw.rindex(bytes(items[-1])) + len(bytes(items[-1]))
        rest = raw[:begin] + raw[end:]
    else:
        rest = raw
    version, following = _first(_VERSION, rest), _first(_CONTINUE, rest)
    return _List(
        metadata=_ListMeta(version=version, following=following),
        items=items,
        kind=_first(_KIND, rest),
        apiVersion=_first(_API_VERSION, rest),
    )


def _spans(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each object of a list."""
    depth, key, inside, begin = 0, b"", False, 0
    for token in _TOKEN.finditer(raw):
        first = raw[token.start()]
        if first == ord('"'):
            if depth == 1:
                key = token.group()
        elif first in b"[{":
            depth += 1
            if depth == 2:  # noqa: PLR2004
                inside = key == b'"items"' and first == ord("[")
            elif depth == 3 and inside:  # noqa: PLR2004
                begin = token.start()
        else:
            depth -= 1
            if depth == 2 and inside:  # noqa: PLR2004
                yield begin, token.end()


def _first(pattern: re.Pattern[bytes], text: bytes) -> str:
    found = pattern.search(text)
    return found.group(1).decode() if found else ""


class Metadata(TypedDict, total=False):
    """The part of an object's metadata that is decoded; large parts, such as `managedFields`, are not."""

    name: str
    namespace: str
    uid: str
    creationTimestamp: str
    deletionTimestamp: str
    labels: dict[str, str]
    annotations: dict[str, str]


@dataclass(frozen=True, slots=True)
class TableRow:
    """One object."""

    cells: dict[str, Any]
    """The values of the columns, by their titles."""
    metadata: Metadata
    """The metadata; empty if only the columns were requested."""


@dataclass(frozen=True, slots=True)
class TablePage:
    """A page of a table."""

    rows: list[TableRow]
    following: str
    """The token of the next page; empty on the last one."""


class _Object(msgspec.Struct):
    metadata: Metadata


class _Row(msgspec.Struct):
    cells: list[Any]
    object: _Object | None = None


class _Column(msgspec.Struct):
    name: str


class _Table(msgspec.Struct):
    metadata: _ListMeta
    columns: list[_Column] | None = msgspec.field(name="columnDefinitions", default=None)
    rows: list[_Row] | None = None


def table_page(raw: bytes) -> TablePage:
    """Decode a page of a table.

    Raises:
        ValueError: The text is not a table.
    """
    found = msgspec.json.decode(raw, type=_Table)
    titles = [column.name for column in found.columns or ()]
    rows = [
        TableRow(dict(zip(titles, row.cells, strict=True)), Metadata() if row.object is None else row.object.metadata)
        for row in found.rows or ()
    ]
    return TablePage(rows, found.metadata.following)
