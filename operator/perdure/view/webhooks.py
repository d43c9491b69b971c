"""Formats Webhooks, one line each. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from perdure.api.lenient import mapping
from perdure.api.times import read_time
from perdure.view import columns
from perdure.view.page import Page


def table(webhooks: Sequence[Mapping[str, Any]], page: Page, *, namespaces: bool, wide: bool) -> list[Text]:
    """Show Webhooks. Nothing is truncated, because programs also read the lines.

    Args:
        webhooks: The Webhooks from the API server.
        page: The page for the output.
        namespaces: Whether their namespaces are shown.
        wide: Whether more columns are shown.

    Returns:
        Lines; the first one is the heading.
    """
    heading = ["NAME", "READY", "REASON", "STARTS", "SIGNALS", "AGE"]
    if namespaces:
        heading.insert(0, "NAMESPACE")
    if wide:
        heading += ["PATH", "MESSAGE"]
    return columns.table(
        heading, [_cells(each, namespaces=namespaces, wide=wide, page=page) for each in webhooks], page
    )


def _cells(webhook: Mapping[str, Any], *, namespaces: bool, wide: bool, page: Page) -> list[str]:
    meta, spec, status = webhook["metadata"], mapping(webhook.get("spec")), mapping(webhook.get("status"))
    ready: Mapping[str, Any] = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})
    workflow = mapping(mapping(spec.get("start")).get("workflow"))
    cells = [
        meta["name"],
        str(ready.get("status", "Unknown")),
        str(ready.get("reason", "")),
        str(workflow.get("name") or workflow.get("type") or ""),
        str(mapping(spec.get("signal")).get("name", "")),
        columns.ago(read_time(meta.get("creationTimestamp")), page),
    ]
    if namespaces:
        cells.insert(0, meta["namespace"])
    if wide:
        cells += [str(status.get("path", "")), str(ready.get("message", ""))]
    return cells
