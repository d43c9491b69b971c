"""Many runs, one line each.

They are read without their steps, which lists of many runs have no time for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rich.text import Text

from perdure.api.json_values import mapping, mappings
from perdure.api.labels import ARCHIVED_ANNOTATION
from perdure.api.phases import CLOSED, listed_phase
from perdure.api.times import read_kubernetes_time
from perdure.view import tables, text
from perdure.view.page import Page, elapsed
from perdure.view.runs.failure import with_cause


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run as lists show it."""

    name: str
    namespace: str
    workflow: str | None
    """Name of the Workflow, or type; None if the run contains the definition."""
    activity: str | None
    """Type of a standalone activity; None for any other run."""
    operation: str | None
    """Service and name of a standalone Nexus operation; None for any other run."""
    workflow_id: str
    """The workflow ID; for a standalone activity or Nexus operation, its ID."""
    phase: str
    listed_phase: str
    """What lists show as its phase."""
    reason: str
    message: str
    created: datetime | None
    start: datetime | None
    end: datetime | None
    progress: str
    archived: bool = False
    """Whether it is only in the archive."""

    @property
    def closed(self) -> bool:
        """Whether the run has ended permanently."""
        return self.phase in CLOSED

    def duration(self, now: datetime) -> timedelta | None:
        """Return the total duration, or the duration so far."""
        return elapsed(self.start, self.end, now)


def read_summary(obj: Mapping[str, Any]) -> RunSummary:
    """Read a WorkflowRun."""
    metadata, spec, status = (mapping(obj.get(key)) for key in ("metadata", "spec", "status"))
    name = str(metadata.get("name") or "")
    reference, operation = mapping(spec.get("workflow")), mapping(spec.get("nexusOperation"))
    conditions = mappings(status.get("conditions"))
    succeeded = next((each for each in conditions if each.get("type") == "Succeeded"), None)
    phase = str(status.get("phase") or "Pending")
    return RunSummary(
        name=name,
        namespace=str(metadata.get("namespace") or "default"),
        workflow=reference.get("name") or reference.get("type"),
        activity=mapping(spec.get("activity")).get("type"),
        operation=f"{operation.get('service')}.{operation.get('operation')}" if operation else None,
        workflow_id=str(spec.get("workflowId") or name),
        phase=phase,
        listed_phase=listed_phase(metadata, phase),
        reason=str(succeeded.get("reason") or "") if succeeded else "",
        message=with_cause(str(succeeded.get("message") or ""), mapping(status.get("failure")))
        if succeeded
        else str(mapping(status.get("failure")).get("message") or ""),
        created=read_kubernetes_time(metadata.get("creationTimestamp")),
        start=read_kubernetes_time(status.get("startTime")),
        end=read_kubernetes_time(status.get("completionTime")),
        progress=str(status.get("progress") or ""),
        archived=ARCHIVED_ANNOTATION in mapping(metadata.get("annotations")),
    )


def table(
    runs: Sequence[RunSummary], page: Page, *, namespaces: bool = False, wide: bool = False, archived: bool = False
) -> list[Text]:
    """Show runs. Nothing is truncated, because programs also read the lines.

    Args:
        runs: The runs.
        page: The page for the output.
        namespaces: Whether their namespaces are shown.
        wide: Whether more columns are shown.
        archived: Whether a column says which of them are only in the archive.

    Returns:
        Lines; the first one is the heading.
    """
    return GrowingTable(namespaces=namespaces, wide=wide, archived=archived).lines(runs, page)


class GrowingTable:
    """A table of runs to which lines are added."""

    def __init__(self, *, namespaces: bool, wide: bool, archived: bool = False) -> None:
        self._namespaces = namespaces
        self._wide = wide
        self._archived = archived
        self._widths: list[int] = []

    def lines(self, runs: Sequence[RunSummary], page: Page) -> list[Text]:
        """Show runs in columns at least as wide as before; the first call begins with the heading."""
        heading = ["NAME", "PHASE", "PROGRESS", "REASON", "STARTED", "DURATION", "AGE"]
        if self._namespaces:
            heading.insert(0, "NAMESPACE")
        if self._archived:
            heading.append("ARCHIVED")
        if self._wide:
            heading += ["WORKFLOW", "WORKFLOW-ID", "MESSAGE"]
        rows = [self._cells(run, page) for run in runs]
        begun = bool(self._widths)
        lines = tables.table(heading, rows, page, minimum_widths=self._widths)
        self._widths = tables.widths_of((heading, *rows), self._widths)
        return lines[1:] if begun else lines

    def _cells(self, run: RunSummary, page: Page) -> list[str]:
        length = run.duration(page.now)
        cells = [
            run.name,
            run.listed_phase,
            run.progress,
            run.reason,
            tables.ago(run.start, page),
            "" if length is None else text.duration(length),
            tables.ago(run.created, page),
        ]
        if self._namespaces:
            cells.insert(0, run.namespace)
        if self._archived:
            cells.append("yes" if run.archived else "")
        if self._wide:
            cells += [run.workflow or run.activity or run.operation or "", run.workflow_id, run.message]
        return cells
