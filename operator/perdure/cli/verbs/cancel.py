"""`cancel`: ask a run to cancel itself."""

import typer

from perdure.cli.asking import Inquiry, ReasonOption, ask, asking

HELP = """Request the cancellation of a run; its handlers run.

Returns once the run has recorded the request, before it ends: follow it with
`{program} wait`. If the run is already closed, nothing happens.

Exit status: 0 done, 1 refused (such as: the run is closed), 2 error,
124 timeout.

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
