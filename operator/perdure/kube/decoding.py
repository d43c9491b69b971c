"""Decode what the API server sends, one object at a time: an object that cannot be decoded affects no other. Pure.

The API server stores values that nest 10,000 levels deep. How deep Python can decode depends on the decoder, the interpreter and
the recursion limit, so every decoder here may give up. Then the object is skipped and reported with what its metadata says.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from perdure.kube.errors import UnreadableError

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')
_KIND: Final = re.compile(rb'"kind":\s*"([A-Za-z]+)"')
_API_VERSION: Final = re.compile(rb'"apiVersion":\s*"([a-z0-9./-]+)"')
_METADATA: Final = re.compile(rb'"metadata":\s*(?={)')
_CONTINUE: Final = re.compile(rb'"continue":\s*"([^"\\]*)"')
_VERSION: Final = re.compile(rb'"resourceVersion":\s*"([0-9]*)"')


class UndecodableError(ValueError):
    """Not JSON, or too deep; the message says which."""


class TooDeepError(UndecodableError):
    """JSON that nests too deep for this interpreter."""


class Stored(msgspec.Struct, frozen=True):
    """What an object's metadata says: which object is stored, and in which version."""

    name: str
    uid: str
    version: str = msgspec.field(name="resourceVersion")
    namespace: str = ""
    labels: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecodable:
    """An object that could not be decoded, as far as its metadata says which."""

    api_version: str
    kind: str
    stored: Stored | None
    """None if not even the metadata can be read."""
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """A page of a list; its objects are still encoded."""

    items: list[msgspec.Raw]
    kind: str
    """Of the objects."""
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
    """Decode one JSON value. The fast decoder gives up beyond 1,024 levels, the second one at the recursion limit.

    Raises:
        UndecodableError: neither can decode it.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        problem = str(error)
    try:
        return json.loads(bytes(raw), parse_int=_read_integer)
    except RecursionError:
        raise TooDeepError("it nests too deep") from None
    except ValueError:
        raise UndecodableError(f"it is not JSON: {problem}") from None


def decode_answer(raw: bytes, request: str, unreached: type[Exception]) -> Any:
    """Decode the answer to a request.

    Args:
        raw: The answer.
        request: The request, for messages, such as `GET /version`.
        unreached: Raised if the answer is not JSON: a proxy in between has sent it, or the connection broke.

    Raises:
        UnreadableError: It is an object that cannot be decoded.
    """
    try:
        return decode(raw)
    except TooDeepError as error:
        raise UnreadableError(200, "Unreadable", f"{request}: the object cannot be decoded: {error}") from error
    except UndecodableError as error:
        raise unreached(f"{request}: the answer is not JSON: {error}") from error


def decode_page(raw: bytes, request: str, unreached: type[Exception]) -> ListPage:
    """Decode a page of a list, but not its objects; parameters and exceptions are those of `decode_answer`."""
    try:
        return page_of(raw)
    except ValueError as error:
        raise unreached(f"{request}: the answer is not JSON of a list: {error}") from error


def _read_integer(text: str) -> int | float:
    """Read a whole number as the API server keeps it: beyond 64 bits, as the nearest floating-point number.

    The bounds are those of orjson, which reads and writes everything else; to `json`, numbers of any size are integers.

    Raises:
        ValueError: It is too large even for a floating-point number.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError("the number is too large")
    exact = int(text)
    return exact if -(2**63) <= exact < 2**64 else value


def metadata_of(raw: bytes | memoryview) -> Stored:
    """The identity and version of an object, without decoding the rest of it.

    Raises:
        UndecodableError: the metadata cannot be read.
    """
    try:
        return msgspec.json.decode(raw, type=_OnlyMetadata).metadata
    except (msgspec.DecodeError, RecursionError):
        pass
    # `metadata` comes before `spec` and `status`, in which users' values are.
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
        raw: The object, or a watch event that holds it.
        problem: What is wrong with it.
        kind: Its kind, if the object itself does not say.
        api_version: Its apiVersion, likewise.
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
    """Cut a list into its objects.

    Raises:
        ValueError: it is not a list of Kubernetes.
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
    """Cut a list by its brackets: that needs no stack, however deep its objects nest."""
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
    """Where the objects of a list begin and end."""
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
