"""Outcomes of creating a run's WorkflowRun: created, rejected, or the name belongs to another WorkflowRun."""

import hashlib

from msgspec.structs import replace

from perdure.api.reasons import EventReason
from perdure.schedule import inputs as inp
from perdure.schedule.draft import ScheduleDraft
from perdure.schedule.recent import change_action

MAX_RENAMES = 5
"""How often a run is renamed because a WorkflowRun that the schedule did not create has its name."""
_MAX_REFUSAL = 1024
"""Length to which a message of the API server is truncated, in characters."""


def record_created(draft: ScheduleDraft, created: inp.RunMade) -> None:
    """Record the run ID of a run that exists now."""
    draft.change_run(created.name, lambda run: replace(run, run_id=created.run_id))
    change_action(draft, created.name, run_id=created.run_id)
    draft.change(refused="")


def record_refused(draft: ScheduleDraft, name: str, message: str) -> None:
    """Drop a run that the API server rejected, and emit one Event per reason."""
    draft.change(running=tuple(run for run in draft.state.running if run.name != name))
    change_action(draft, name, status="Refused")
    # The name differs for each time, the reason does not.
    reason = message.replace(name, f"{draft.rules.name}-…")[:_MAX_REFUSAL]
    if reason != draft.state.refused:
        draft.note(EventReason.RUN_REFUSED, f"Run `{name}` was rejected: {message}", warning=True)
        draft.change(refused=reason)


def rename(draft: ScheduleDraft, taken: inp.NameTaken) -> None:
    """Rename a run, so that its time is not lost when another client has used the name."""
    run = next((run for run in draft.state.running if run.name == taken.name), None)
    if run is None:
        return
    if run.renamed == MAX_RENAMES:
        message = f"this name and {MAX_RENAMES} others belong to WorkflowRuns that this Schedule did not create"
        record_refused(draft, taken.name, message)
        return
    instead = hashlib.sha256(taken.uid.encode()).hexdigest()[:4]
    name = run.start.run_name(draft.rules.name, run.attempt, instead)
    draft.change_run(taken.name, lambda run: replace(run, name=name, instead=instead, renamed=run.renamed + 1))
    change_action(draft, taken.name, name=name)
    text = f"WorkflowRun `{taken.name}` exists and was not created by this Schedule; the run starts as `{name}` instead"
    draft.note(EventReason.RUN_NAME_TAKEN, text, warning=True)
