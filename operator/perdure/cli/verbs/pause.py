"""`pause`: pause a run, or one of its activities."""

import typer

from perdure.cli.asking import Inquiry, ReasonOption, StepOption, ask, asking

HELP = """Pause a run: what is under way goes on, nothing new begins.

With --step, only the activity of that step: no new attempt begins.

Exit status: 0 it was done, 1 it was refused (the run is closed, for
instance), 2 trouble, 124 there was no answer in time.

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
