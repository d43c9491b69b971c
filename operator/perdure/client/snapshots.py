"""A run at one point in time, as notebooks, terminals, and programs show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.api.kinds import workflowrun
    from perdure.view import page as pages
    from perdure.view.runs import describe, notebook

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from perdure.api.json_values import Json
    from perdure.client.requests import Object
    from perdure.view.runs.run import RunView
    from perdure.view.runs.steps import StepView


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run as it was read. Printing it shows what `perdure describe` shows; notebooks show its graph."""

    object: Object
    """The WorkflowRun, as the API server has it."""
    view: RunView
    """All that is known of the run."""

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.view.name

    @property
    def phase(self) -> str:
        """Its phase, such as `Running` or `Completed`."""
        return self.view.phase

    @property
    def reason(self) -> str:
        """The reason of its condition `Succeeded`; empty if no operator has processed it."""
        return self.view.reason

    @property
    def message(self) -> str:
        """The message of that condition."""
        return self.view.message

    @property
    def closed(self) -> bool:
        """Whether the run has ended."""
        return self.view.closed

    @property
    def progress(self) -> str:
        """How many steps have ended, of how many; empty for flows, whose steps are not known before they start."""
        return self.view.progress

    @property
    def started(self) -> datetime | None:
        """When it started; None if it has not started."""
        return self.view.start

    @property
    def ended(self) -> datetime | None:
        """When it ended; None while it is open."""
        return self.view.end

    @property
    def output(self) -> Any:
        """Its output, as JSON; None if there is none."""
        return self.view.output

    @property
    def failure(self) -> Json | None:
        """Its failure, as JSON; None if there is none."""
        return self.view.failure

    def steps(self) -> Iterator[StepView]:
        """Yield its steps, including nested ones: their path, kind, state, and attempt. A flow has those that have started."""
        return self.view.every_step()

    def __str__(self) -> str:
        """Return what `perdure describe` shows."""
        page = pages.Page(now=clock.now(), width=100)
        return "\n".join(line.plain for line in describe.describe(self.view, page))

    def _repr_html_(self) -> str:
        """Return the run for a notebook: its state, the graph of its steps, and its failure."""
        return notebook.as_html(self.view, workflowrun.definition_of(self.object), clock.now())
