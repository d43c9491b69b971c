"""The recent actions that the status shows."""

from typing import Any

from msgspec.structs import replace

from perdure.schedule.draft import ScheduleDraft
from perdure.schedule.state import Recent, Running

MAX_RECENT = 10
"""The number of recent actions in the status."""


def record_action(draft: ScheduleDraft, run: Running) -> None:
    """Add a run to the recent actions. A retry replaces the run that failed."""
    nominal = None if run.start.triggered else run.start.nominal
    entry = Recent(name=run.name, started=run.started, nominal=nominal)
    before = run.start.run_name(draft.rules.name, run.attempt - 1, run.instead) if run.attempt > 1 else ""
    recent = [entry if each.name == before else each for each in draft.state.recent]
    if entry not in recent:
        recent.append(entry)
    draft.change(recent=tuple(recent[-MAX_RECENT:]))


def change_action(draft: ScheduleDraft, run_name: str, **changes: Any) -> None:
    """Set fields of the recent action of a run, if it is still shown."""
    draft.change(recent=tuple(replace(e, **changes) if e.name == run_name else e for e in draft.state.recent))
