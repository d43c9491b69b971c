"""The page of chart values, from values.yaml and values.schema.json."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from reference.markdown import page, table

CHART: Final = Path(__file__).resolve().parents[2] / "charts" / "perdure"
REQUIRED: Final = "charts/perdure/files/required-values.txt"
"""The list of `required`, which a template of the chart checks."""
_WIDTH: Final = 40
"""Characters of a default that the table shows."""
_HEAD: Final = """\
Set these values with `helm --set` or in a file with `helm --values`. The chart rejects unknown names and values of
the wrong type. [Install, upgrade, and uninstall](../installing.md) shows the most common settings."""


def pages() -> dict[str, str]:
    """Write the page."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = [(f"`{path}`", _default(defaults, path) or type_, text) for path, type_, text in leaves(schema, "")]
    source = "charts/perdure/values.yaml and values.schema.json"
    return {"values.md": page("Chart values", source, _HEAD, table(("value", "default, or type", "meaning"), rows))}


def required() -> str:
    """List the values without which templates do not work, one in each line.

    `helm upgrade --reuse-values` drops the values that the earlier chart did not have, and a null drops the value, too. Templates
    take a missing text or list that is empty by default as empty, and an object without fields of its own as well.
    """
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return "".join(f"{path}\n" for path in _required(schema, defaults, ""))


def _required(schema: dict[str, Any], defaults: dict[str, Any], path: str) -> Iterator[str]:
    for name, each in schema["properties"].items():
        default, type_ = defaults.get(name), each.get("type", "")
        if "properties" in each:
            yield from _required(each, default or {}, f"{path}{name}.")
        elif default not in (None, "", []) and type_ != "object" and "null" not in type_:
            yield f"{path}{name}"


def leaves(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    """Yield the path, type and description of each value that is not a group of others."""
    for name, each in schema.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        if "properties" in each:
            yield from leaves(each, inner)
        else:
            yield inner, _type(each), _choices(each)


def _type(schema: dict[str, Any]) -> str:
    types = schema.get("type", "any")
    return " or ".join(types) if isinstance(types, list) else str(types)


def _choices(schema: dict[str, Any]) -> str:
    choices = ", ".join(f"`{each}`" for each in schema.get("enum", ()))
    text = str(schema["description"])
    return f"{text} One of {choices}." if choices else text


def _default(defaults: Any, path: str) -> str:
    for key in path.split("."):
        if key not in defaults:
            return ""
        defaults = defaults[key]
    text = json.dumps(defaults, ensure_ascii=False)
    if defaults in (None, "", [], {}):
        return ""
    return f"`{text}`" if len(text) <= _WIDTH else "see values.yaml"
