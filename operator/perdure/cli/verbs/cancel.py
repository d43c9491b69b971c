"""`cancel`: ask a run to cancel itself."""

import typer

from perdure.cli.asking import Inquiry, ReasonOption, ask, asking

HELP = """Ask a run to cancel itself; its handlers run.

The answer tells that the run has heard of it, not that it has ended: follow
it with `{program} wait`. A run that is closed already is fine.

Exit status: 0 it was done, 1 it was refused (the run is closed, for
instance), 2 trouble, 124 there was no answer in time.

\b
Examples:
  {program} cancel order-42 --reason "ordered twice"
  {program} cancel --workflow-id order-42
"""


@asking
def command(
    context: typer.Context,
    asked: Inquiry,
    *,
    reason: ReasonOption = "",
) -> None:
    """Ask a run to cancel itself."""
    ask(context, "cancel", {"reason": reason or None}, asked)
