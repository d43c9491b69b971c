"""`stop`: end a run by its `finally` alone."""

import typer

from perdure.cli.asking import Inquiry, ReasonOption, ask, asking

HELP = """Stop a run: cancel its open steps, and run only `finally`.

Compensations and `onCancel` do not run; `cancel` runs them. The run ends as
cancelled.

Exit status: 0 it was done, 1 it was refused (workers decide the run, for
instance), 2 trouble, 124 there was no answer in time.

\b
Examples:
  {program} stop order-42 --reason "wrong input"
"""


@asking
def command(context: typer.Context, asked: Inquiry, *, reason: ReasonOption = "") -> None:
    """Stop a run."""
    ask(context, "stop", {"reason": reason or None}, asked)
