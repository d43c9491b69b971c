"""`pause`: pause runs, or an activity."""

import typer

from perdure.cli.operations import BatchInquiry, ReasonOption, StepOption, ask_runs, asking_runs

HELP = """Pause a run, or all open runs with some labels.

Running activities continue, and nothing new starts. With --step, pauses only
the activity of that step: no new attempts start.

Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
124 timeout.

\b
Examples:
  {program} pause order-42 --reason "the bank is down"
  {program} pause order-42 --step charge
  {program} pause --selector team=shop --yes
"""


@asking_runs
def command(
    context: typer.Context,
    given: BatchInquiry,
    *,
    step: StepOption = None,
    reason: ReasonOption = "",
) -> None:
    """Pause a run, or one of its activities."""
    ask_runs(context, "pause", {"step": step, "reason": reason or None}, given)
