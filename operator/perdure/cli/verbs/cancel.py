"""`cancel`: request the cancellation of runs."""

from perdure.cli.stopping import stopping

HELP = """Request the cancellation of a run, or of all open runs with some labels.

The handlers of the run run. Returns once the run has recorded the request,
before it ends: follow it with `{program} wait`.

Exit status: 0 done, 1 refused (such as: the run is closed), 2 error,
124 timeout.

\b
Examples:
  {program} cancel order-42 --reason "ordered twice"
  {program} cancel --workflow-id order-42
  {program} cancel --selector team=shop --dry-run
  {program} cancel --selector team=shop --yes
"""

command = stopping("cancel")
