"""`stop`: end runs with only their `finally`."""

import typer

from perdure.cli.operations import BatchInquiry, ReasonOption, ask_runs, asking_runs

HELP = """Stop a run: cancel its open steps, and run only `finally`.

Compensations and `onCancel` do not run; use `cancel` to run them. The run ends
as cancelled.

Exit status: 0 done, 1 refused (for example, SDK workers run it), 2 error,
124 timeout.

\b
Examples:
  {program} stop order-42 --reason "wrong input"
  {program} stop --selector team=shop --yes
"""


@asking_runs
def command(context: typer.Context, given: BatchInquiry, *, reason: ReasonOption = "") -> None:
    """Stop a run."""
    ask_runs(context, "stop", {"reason": reason or None}, given)
