"""`unpause`: end a pause."""

import typer

from perdure.cli.asking import Inquiry, ReasonOption, StepOption, ask, asking

HELP = """End a pause; a run that was created paused starts.

With --step, only the pause of the activity of that step.

Exit status: 0 it was done, 1 it was refused (the run is closed, for
instance), 2 trouble, 124 there was no answer in time.

\b
Examples:
  {program} unpause order-42
  {program} unpause order-42 --step charge
"""


@asking
def command(
    context: typer.Context,
    asked: Inquiry,
    *,
    step: StepOption = None,
    reason: ReasonOption = "",
) -> None:
    """End a pause."""
    ask(context, "unpause", {"step": step, "reason": reason or None}, asked)
