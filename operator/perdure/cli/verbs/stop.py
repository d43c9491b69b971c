"""`stop`: end a run by its `finally` alone."""

import typer

from perdure.cli.asking import Inquiry, ReasonOption, ask, asking

HELP = """Stop a run: cancel its open steps, and run only `finally`.

Compensations and `onCancel` do not run; use `cancel` to run them. The run ends
as cancelled.

Exit status: 0 done, 1 refused (such as: a run of SDK workers), 2 error,
124 timeout.

\b
Examples:
  {program} stop order-42 --reason "wrong input"
"""


@asking
def command(context: typer.Context, asked: Inquiry, *, reason: ReasonOption = "") -> None:
    """Stop a run."""
    ask(context, "stop", {"reason": reason or None}, asked)
