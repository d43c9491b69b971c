"""`pause`: pause a run, or one of its activities."""

import typer

from perdure.cli.asking import Inquiry, ReasonOption, StepOption, ask, asking

HELP = """Pause a run: running activities continue, nothing new starts.

With --step, only pauses the activity of that step: no new attempts start.

Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
124 timeout.

\b
Examples:
  {program} pause order-42 --reason "the bank is down"
  {program} pause order-42 --step charge
"""


@asking
def command(
    context: typer.Context,
    asked: Inquiry,
    *,
    step: StepOption = None,
    reason: ReasonOption = "",
) -> None:
    """Pause a run, or one of its activities."""
    ask(context, "pause", {"step": step, "reason": reason or None}, asked)
