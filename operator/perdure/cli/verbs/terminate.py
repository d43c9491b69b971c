"""`terminate`: close runs immediately."""

from perdure.cli.stopping import stopping

HELP = """Close a run immediately, without handlers, and delete its pods.

Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
124 timeout.

\b
Examples:
  {program} terminate order-42 --reason "runs in circles"
  {program} terminate --workflow-id order-42
  {program} terminate --selector team=shop --yes
"""

command = stopping("terminate")
