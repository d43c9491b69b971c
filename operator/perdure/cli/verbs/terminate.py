"""`terminate`: close a run immediately."""

import typer

from perdure.cli.asking import Inquiry, ReasonOption, ask, asking

HELP = """Close a run immediately, without handlers, and delete its pods.

Exit status: 0 done, 1 refused (such as: the run is closed), 2 error,
124 timeout.

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
    """Close a run immediately."""
    ask(context, "terminate", {"reason": reason or None}, asked)
