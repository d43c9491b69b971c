"""`cancel`: request the cancellation of runs."""

import typer

from perdure.cli.operations import BatchInquiry, ReasonOption, ask_runs, asking_runs

HELP = """Request the cancellation of a run, or of all open runs with some labels.

The run executes its handlers (`onCancel`, `finally`) before it ends. The
command returns as soon as the run has recorded the request; to wait for the
end, use `{program} wait`.

Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
124 timeout.

\b
Examples:
  {program} cancel order-42 --reason "ordered twice"
  {program} cancel --workflow-id order-42
  {program} cancel --selector team=shop --dry-run
  {program} cancel --selector team=shop --yes
"""


@asking_runs
def command(context: typer.Context, given: BatchInquiry, *, reason: ReasonOption = "") -> None:
    """Request the cancellation of a run."""
    ask_runs(context, "cancel", {"reason": reason or None}, given)
