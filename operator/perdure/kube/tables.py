"""Decode tables: the API server sends the printed columns and the metadata of objects, not the objects themselves. Pure."""

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec


class Metadata(TypedDict, total=False):
    """The part of an object's metadata that is decoded; large parts, such as `managedFields`, are not."""

    name: str
    namespace: str
    uid: str
    creationTimestamp: str
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


class _ListMeta(msgspec.Struct):
    following: str = msgspec.field(name="continue", default="")


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
