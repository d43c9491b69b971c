"""`terminate`: close runs immediately."""

import typer

from perdure.cli.operations import BatchInquiry, ReasonOption, ask_runs, asking_runs

HELP = """Close a run immediately, without handlers, and delete its pods.

Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
124 timeout.

\b
Examples:
  {program} terminate order-42 --reason "runs in circles"
  {program} terminate --workflow-id order-42
  {program} terminate --selector team=shop --yes
"""


@asking_runs
def command(context: typer.Context, given: BatchInquiry, *, reason: ReasonOption = "") -> None:
    """Terminate a run."""
    ask_runs(context, "terminate", {"reason": reason or None}, given)
