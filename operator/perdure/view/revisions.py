"""The revisions of a Workflow as a table, and the differences between two definitions."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from rich.text import Text

from perdure.api.times import read_kubernetes_time
from perdure.view import tables, text
from perdure.view.page import Page

_STYLES = {"+": "green", "-": "red", "@": "dim"}


def table(
    revisions: Sequence[Mapping[str, Any]], current: str, runs: Mapping[str, tuple[int, int]], page: Page
) -> list[Text]:
    """Lay the revisions of a Workflow out in columns.

    Args:
        revisions: The WorkflowRevisions, in the order of the rows.
        current: Name of the one of the definition that the Workflow has now.
        runs: How many open and closed runs refer to each, by name.
        page: The page for the output.
    """
    rows = []
    for each in revisions:
        meta = each["metadata"]
        still_open, closed = runs.get(meta["name"], (0, 0))
        time = read_kubernetes_time(meta.get("creationTimestamp"))
        age = text.duration(page.now - time) if time is not None else ""
        is_current = "yes" if meta["name"] == current else ""
        rows.append([str(each["spec"].get("number")), meta["name"], is_current, str(still_open), str(closed), age])
    return tables.table(["REVISION", "NAME", "CURRENT", "OPEN RUNS", "CLOSED RUNS", "AGE"], rows, page)


def differences(before: tuple[str, Any], after: tuple[str, Any]) -> Iterator[Text]:
    """Compare two definitions, each with its name, as YAML; yields the lines of a unified diff, none if they are the same."""
    (first, old), (second, new) = before, after
    for line in difflib.unified_diff(_lines(old), _lines(new), first, second, lineterm=""):
        yield Text(line, style="bold" if line.startswith(("---", "+++")) else _STYLES.get(line[:1], ""))


def _lines(definition: Any) -> list[str]:
    return str(yaml.safe_dump(definition, sort_keys=False, allow_unicode=True, width=100)).splitlines()
