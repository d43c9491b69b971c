"""Tables of the in-memory API server: what kubectl prints, with the columns of the CRDs."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from perdure.api.crdgen import KINDS
from perdure.api.models import AGE, Column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jsonpath import JSONPath

    from perdure.simulation.cluster.storage import Object

_ESCAPED: Final = re.compile(r"\.([^.]+)\\\.([^.]+)")
"""A name with a dot in a path, such as ``.perdure\\.dev/run``."""

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "y": 365 * 86_400}
"""The seconds of each unit."""
_AGES: Final = (
    (120, "s", ""),
    (600, "m", "s"),
    (3 * 3600, "m", ""),
    (8 * 3600, "h", "m"),
    (48 * 3600, "h", ""),
    (8 * 86_400, "d", "h"),
    (2 * 365 * 86_400, "d", ""),
    (8 * 365 * 86_400, "y", "d"),
)
"""The units of ages below a number of seconds."""


def as_table(plural: str, objects: Iterable[Object], meta: Object, now: datetime, *, metadata: bool) -> Object:
    """Convert a list of custom objects to a table.

    Args:
        plural: The resource of the objects.
        objects: The objects.
        meta: The metadata of the list.
        now: The time.
        metadata: Whether the rows contain the metadata of the objects.
    """
    columns = _columns(plural)
    name = {"name": "Name", "type": "string", "format": "name", "description": "Name of the object", "priority": 0}
    definitions = [
        {
            "name": each.name,
            "type": each.type,
            "format": "",
            "description": each.description,
            "priority": int(each.wide),
        }
        for each, _ in columns
    ]
    rows: list[Object] = []
    for obj in objects:
        row: Object = {"cells": [obj["metadata"]["name"], *(_cell(*each, obj, now) for each in columns)]}
        if metadata:
            partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            row["object"] = {**partial, "metadata": obj["metadata"]}
        rows.append(row)
    table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
    return {**table, "columnDefinitions": [name, *definitions], "rows": rows}


@cache
def _columns(plural: str) -> list[tuple[Column, JSONPath]]:
    """The columns of a kind, with their compiled paths."""
    import jsonpath  # noqa: PLC0415 - slow to import, and rarely needed

    info = next(kind.info for kind in KINDS if kind.info.plural == plural)
    found = []
    for column in (*info.columns, AGE):
        path = jsonpath.compile("$" + _ESCAPED.sub(lambda name: f"['{name[1]}.{name[2]}']", column.path))
        assert isinstance(path, jsonpath.JSONPath), column.path
        found.append((column, path))
    return found


def _cell(column: Column, path: JSONPath, obj: Object, now: datetime) -> Any:
    """The first value of a path; None if there is none. A date becomes its age."""
    value: Any = next((match.value for match in path.finditer(obj)), None)
    if column.type == "date":
        return "<unknown>" if value is None else _age((now - datetime.fromisoformat(value)) // timedelta(seconds=1))
    return value if value is None or column.type != "string" else str(value)


def _age(seconds: int) -> str:
    """Format an age with one or two units (k8s.io/apimachinery/pkg/util/duration: HumanDuration)."""
    unit, smaller = next(((large, small) for less, large, small in _AGES if seconds < less), ("y", ""))
    whole, rest = divmod(max(seconds, 0), _UNITS[unit])
    part = rest // _UNITS[smaller] if smaller else 0
    return f"{whole}{unit}" + (f"{part}{smaller}" if part else "")
