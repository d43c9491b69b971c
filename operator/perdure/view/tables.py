"""Tables: cells in columns as wide as the widest cell. Operations, Webhooks, search attributes, and artifacts are shown this way.

`rich.table` fits a table into the width of the terminal and fills its lines with spaces. Nothing is truncated here, and no line
ends with spaces, because programs also read these lines.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.cells import cell_len
from rich.text import Text

from perdure.api.json_values import mapping
from perdure.api.search_attributes import AttributeType
from perdure.api.times import read_kubernetes_time
from perdure.view import text
from perdure.view.page import Page, style_of

_GAP = "  "


def table(
    heading: Sequence[str],
    rows: Sequence[Sequence[str]],
    page: Page,
    *,
    namespaces: Iterable[str] | None = None,
    minimum_widths: Sequence[int] = (),
) -> list[Text]:
    """Lay cells out in columns.

    Args:
        heading: Names of the columns; the words of the one named PHASE are colored.
        rows: The cells; an empty cell is shown as a dash.
        page: The page for the output.
        namespaces: The namespace of each row, for a first column; None for no such column.
        minimum_widths: The minimum width of each column; empty if nothing precedes this table.

    Returns:
        Lines; the first one is the heading.
    """
    if namespaces is not None:
        heading = ["NAMESPACE", *heading]
        rows = [[namespace, *row] for namespace, row in zip(namespaces, rows, strict=True)]
    rows = [[text.one_line(cell) or page.glyphs.dash for cell in row] for row in rows]
    widths = widths_of((heading, *rows), minimum_widths)
    lines = [Text(_line(row, widths)) for row in (heading, *rows)]
    lines[0].stylize("dim")
    if "PHASE" in heading:
        phase = heading.index("PHASE")
        begin = sum(widths[:phase]) + len(_GAP) * phase
        for row, line in zip(rows, lines[1:], strict=True):
            line.stylize(style_of(row[phase]), begin, begin + len(row[phase]))
    return lines


def widths_of(rows: Sequence[Sequence[str]], minimum_widths: Sequence[int] = ()) -> list[int]:
    """Return the width of each column: the width of its widest cell, or the minimum."""
    return [max((*map(cell_len, cells), *minimum_widths[i : i + 1])) for i, cells in enumerate(zip(*rows, strict=True))]


def ago(time: datetime | None, page: Page) -> str:
    """Format the time since a time, or the time itself, depending on the page; empty for None."""
    if time is None:
        return ""
    return text.iso(time) if page.iso else text.age(page.now - time)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(text.pad(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def namespace_of(item: Mapping[str, Any]) -> str:
    """Return the namespace of an object."""
    return str(item["metadata"]["namespace"])


_SPEC_ONLY = frozenset({"target", "ttlSecondsAfterFinished"})


def operations(operations: Sequence[Mapping[str, Any]], page: Page, *, namespaces: bool, wide: bool) -> list[Text]:
    """Show Operations. Nothing is truncated, because programs also read the lines.

    Args:
        operations: The Operations from the API server.
        page: The page for the output.
        namespaces: Whether their namespaces are shown.
        wide: Whether more columns are shown.

    Returns:
        Lines; the first one is the heading.
    """
    heading = ["NAME", "VERB", "TARGET", "RUN", "PHASE", "REASON", "AGE", *(("MESSAGE",) if wide else ())]
    rows = [_operation_cells(each, page, wide=wide) for each in operations]
    return table(heading, rows, page, namespaces=map(namespace_of, operations) if namespaces else None)


def _operation_cells(operation: Mapping[str, Any], page: Page, *, wide: bool) -> list[str]:
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
        ago(read_kubernetes_time(meta.get("creationTimestamp")), page),
    ]
    return [*cells, condition.get("message", "")] if wide else cells


def webhooks(webhooks: Sequence[Mapping[str, Any]], page: Page, *, namespaces: bool, wide: bool) -> list[Text]:
    """Show Webhooks. Nothing is truncated, because programs also read the lines.

    Args:
        webhooks: The Webhooks from the API server.
        page: The page for the output.
        namespaces: Whether their namespaces are shown.
        wide: Whether more columns are shown.

    Returns:
        Lines; the first one is the heading.
    """
    heading = ["NAME", "READY", "REASON", "STARTS", "SIGNALS", "AGE", *(("PATH", "MESSAGE") if wide else ())]
    rows = [_webhook_cells(each, page, wide=wide) for each in webhooks]
    return table(heading, rows, page, namespaces=map(namespace_of, webhooks) if namespaces else None)


def _webhook_cells(webhook: Mapping[str, Any], page: Page, *, wide: bool) -> list[str]:
    meta, spec, status = webhook["metadata"], mapping(webhook.get("spec")), mapping(webhook.get("status"))
    ready: Mapping[str, Any] = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})
    workflow = mapping(mapping(spec.get("start")).get("workflow"))
    cells = [
        meta["name"],
        str(ready.get("status", "Unknown")),
        str(ready.get("reason", "")),
        str(workflow.get("name") or workflow.get("type") or ""),
        str(mapping(spec.get("signal")).get("name", "")),
        ago(read_kubernetes_time(meta.get("creationTimestamp")), page),
    ]
    return [*cells, str(status.get("path", "")), str(ready.get("message", ""))] if wide else cells


_UNKNOWN_TYPE = " (unknown type: treated as not registered)"


def search_attributes(types: Mapping[str, str], page: Page) -> list[Text]:
    """Show search attributes.

    Args:
        types: The types by name.
        page: The page for the output.

    Returns:
        Lines; the first one is the heading.
    """
    rows = [
        (name, kind if kind in set(AttributeType) else f"{kind or page.glyphs.dash}{_UNKNOWN_TYPE}")
        for name, kind in sorted(types.items())
    ]
    return table(("NAME", "TYPE"), rows, page)


_MAX_SHOWN: Final = 20
"""Maximum number of artifacts to show with a run."""


def artifacts(artifacts: Mapping[str, Any], page: Page) -> list[Text]:
    """Show artifacts, one line each.

    Args:
        artifacts: The references, by step and name.
        page: The page for the output.

    Returns:
        Lines; the first one is the heading.
    """
    fields = {"BYTES": "size", "KEY": "key"}
    if any(mapping(each).get("copy") for each in artifacts.values()):
        fields["COPY"] = "copy"
    rows = [
        (name, *(str(mapping(each).get(field, "")) for field in fields.values())) for name, each in artifacts.items()
    ]
    return table(("ARTIFACT", *fields), rows, page)


def artifact_lines(found: Mapping[str, Any], page: Page) -> Iterator[Text]:
    """Show the first artifacts of a run.

    Args:
        found: The references, by step and name.
        page: The page for the output.

    Yields:
        Indented lines; none if there are no artifacts.
    """
    if not found:
        return
    for line in artifacts(dict([*found.items()][:_MAX_SHOWN]), page):
        yield Text("  ").append_text(line)
    if len(found) > _MAX_SHOWN:
        yield Text(f"  {len(found) - _MAX_SHOWN} more; `{page.program} artifacts list` shows all")
