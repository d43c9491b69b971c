"""Formats many runs, one line each."""

from collections.abc import Sequence

from rich.text import Text

from perdure.view import columns, text
from perdure.view.listed_run import ListedRun
from perdure.view.page import Page


def table(runs: Sequence[ListedRun], page: Page, *, namespaces: bool = False, wide: bool = False) -> list[Text]:
    """Show runs. Nothing is truncated, because programs also read the lines.

    Args:
        runs: The runs.
        page: The page for the output.
        namespaces: Whether their namespaces are shown.
        wide: Whether more columns are shown.

    Returns:
        Lines; the first one is the heading.
    """
    return GrowingTable(namespaces=namespaces, wide=wide).lines(runs, page)


class GrowingTable:
    """A table of runs to which lines are added."""

    def __init__(self, *, namespaces: bool, wide: bool) -> None:
        self._namespaces = namespaces
        self._wide = wide
        self._widths: list[int] = []

    def lines(self, runs: Sequence[ListedRun], page: Page) -> list[Text]:
        """Show runs in columns at least as wide as before; the first call begins with the heading."""
        heading = ["NAME", "PHASE", "PROGRESS", "REASON", "STARTED", "DURATION", "AGE"]
        if self._namespaces:
            heading.insert(0, "NAMESPACE")
        if self._wide:
            heading += ["WORKFLOW", "WORKFLOW-ID", "MESSAGE"]
        rows = [_cells(run, page, namespaces=self._namespaces, wide=self._wide) for run in runs]
        begun = bool(self._widths)
        lines = columns.table(heading, rows, page, least=self._widths)
        self._widths = columns.widths_of((heading, *rows), self._widths)
        return lines[1:] if begun else lines


def _cells(run: ListedRun, page: Page, *, namespaces: bool, wide: bool) -> list[str]:
    length = run.duration(page.now)
    cells = [
        run.name,
        run.phase,
        run.progress,
        run.reason,
        columns.ago(run.start, page),
        "" if length is None else text.duration(length),
        columns.ago(run.created, page),
    ]
    if namespaces:
        cells.insert(0, run.namespace)
    if wide:
        cells += [run.workflow or run.activity or run.operation or "", run.workflow_id, run.message]
    return cells
