"""Checks the shapes of foreign fields once, so that the conversion can rely on them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from perdure.importing.field_reader import ConversionReport, shown


@dataclass(frozen=True, slots=True)
class Shapes:
    """The fields that are maps or lists of maps, at any depth."""

    maps: Collection[str]
    lists: Collection[str]
    opaque: Collection[str] = ()
    """Fields with arbitrary content of the user."""

    def checked(self, value: Any, path: str, report: ConversionReport) -> Any:
        """Remove and report the fields with another shape, and return the value without them."""
        if isinstance(value, list):
            return [self.checked(each, f"{path}[{i}]", report) for i, each in enumerate(value)]
        if not isinstance(value, dict):
            return value
        made = {}
        for key, each in value.items():
            where = f"{path}.{key}" if path else key
            if each is None and key not in self.maps:
                continue
            if key in self.opaque:
                made[key] = each
            elif self._fits(key, each):
                made[key] = self.checked({} if each is None else each, where, report)
            else:
                expected = "a map" if key in self.maps else "a list of maps"
                report.gap(where, f"must be {expected}, not {shown(each)}")
        return made

    def _fits(self, key: str, value: Any) -> bool:
        if key in self.maps:
            return value is None or isinstance(value, dict)
        return key not in self.lists or (isinstance(value, list) and all(isinstance(each, dict) for each in value))
