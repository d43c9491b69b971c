"""Many runs: a line for each."""

from collections.abc import Sequence

from rich.text import Text

from perdure.cli.view import columns, text
from perdure.cli.view.facts import ShownRun
from perdure.cli.view.page import Page


def table(runs: Sequence[ShownRun], page: Page, *, namespaces: bool = False, wide: bool = False) -> list[Text]:
    """Show runs. Nothing is cut: the lines are also read by programs.

    Args:
        runs: The runs.
        page: What they are shown on.
        namespaces: Whether their namespaces are shown.
        wide: Whether more columns are shown.

    Returns:
        Lines; the first one is the heading.
    """
    heading = ["NAME", "PHASE", "PROGRESS", "REASON", "STARTED", "DURATION", "AGE"]
    if namespaces:
        heading.insert(0, "NAMESPACE")
    if wide:
        heading += ["WORKFLOW", "WORKFLOW-ID", "MESSAGE"]
    return columns.table(heading, [_cells(run, page, namespaces=namespaces, wide=wide) for run in runs], page)


def _cells(run: ShownRun, page: Page, *, namespaces: bool, wide: bool) -> list[str]:
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
