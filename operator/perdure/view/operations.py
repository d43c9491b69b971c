"""Formats Operations, one line each. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from perdure.api.times import read_time
from perdure.view import columns
from perdure.view.page import Page

_SPEC_ONLY = frozenset({"target", "ttlSecondsAfterFinished"})


def table(operations: Sequence[Mapping[str, Any]], page: Page, *, namespaces: bool, wide: bool) -> list[Text]:
    """Show Operations. Nothing is truncated, because programs also read the lines.

    Args:
        operations: The Operations from the API server.
        page: The page for the output.
        namespaces: Whether their namespaces are shown.
        wide: Whether more columns are shown.

    Returns:
        Lines; the first one is the heading.
    """
    heading = ["NAME", "VERB", "TARGET", "RUN", "PHASE", "REASON", "AGE"]
    if namespaces:
        heading.insert(0, "NAMESPACE")
    if wide:
        heading.append("MESSAGE")
    rows = [_cells(each, page, namespaces=namespaces, wide=wide) for each in operations]
    return columns.table(heading, rows, page)


def _cells(operation: Mapping[str, Any], page: Page, *, namespaces: bool, wide: bool) -> list[str]:
    meta, spec, status = operation["metadata"], operation["spec"], operation.get("status") or {}
    condition: Mapping[str, Any] = next((c for c in status.get("conditions") or () if c["status"] == "True"), {})
    target = spec["target"]
    cells = [
        meta["name"],
        next((key for key in spec if key not in _SPEC_ONLY), ""),
        f"{target['kind']}/{target['name']}" if "name" in target else f"workflow ID {target['workflowId']}",
        status.get("workflowRun", ""),
        status.get("phase") or "Pending",
        condition.get("reason", ""),
        columns.ago(read_time(meta.get("creationTimestamp")), page),
    ]
    if namespaces:
        cells.insert(0, meta["namespace"])
    if wide:
        cells.append(condition.get("message", ""))
    return cells
