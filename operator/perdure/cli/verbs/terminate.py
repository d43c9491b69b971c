"""`terminate`: close a run at once."""

import typer

from perdure.cli.asking import Inquiry, ReasonOption, ask, asking

HELP = """Close a run at once: no handlers run, and its pods are killed.

Exit status: 0 it was done, 1 it was refused (the run is closed, for
instance), 2 trouble, 124 there was no answer in time.

\b
Examples:
  {program} terminate order-42 --reason "runs in circles"
  {program} terminate --workflow-id order-42
"""


@asking
def command(
    context: typer.Context,
    asked: Inquiry,
    *,
    reason: ReasonOption = "",
) -> None:
    """Close a run at once."""
    ask(context, "terminate", {"reason": reason or None}, asked)
