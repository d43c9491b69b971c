"""`unpause`: end a pause."""

import typer

from perdure.cli.asking import Inquiry, ReasonOption, StepOption, ask, asking

HELP = """Unpause a run; one that was created paused starts.

With --step, only unpauses the activity of that step.

Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
124 timeout.

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
