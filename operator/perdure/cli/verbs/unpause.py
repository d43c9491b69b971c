"""`unpause`: end a pause."""

import typer

from perdure.cli.operations import BatchInquiry, ReasonOption, StepOption, ask_runs, asking_runs

HELP = """Unpause a run, or all open runs with some labels.

A run that was created paused starts. With --step, unpauses only the activity
of that step.

Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
124 timeout.

\b
Examples:
  {program} unpause order-42
  {program} unpause order-42 --step charge
  {program} unpause --selector team=shop --yes
"""


@asking_runs
def command(
    context: typer.Context,
    given: BatchInquiry,
    *,
    step: StepOption = None,
    reason: ReasonOption = "",
) -> None:
    """End a pause."""
    ask_runs(context, "unpause", {"step": step, "reason": reason or None}, given)
