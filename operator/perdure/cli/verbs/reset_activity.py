"""`reset-activity`: reset the attempts of an activity to 1."""

from typing import Annotated

import typer

from perdure.cli.operations import Inquiry, ask, asking

HELP = """Count the attempts of a pending activity from 1 again.

A retry that is due later starts immediately, and the retry policy permits its
maximum number of attempts again. A running attempt continues. The activity is
named by its step; for a workflow as code, by its activity ID.

Exit status: 0 done, 1 refused (for example, the activity has ended), 2 error,
124 timeout.

\b
Examples:
  {program} reset-activity order-42 --step charge
  {program} reset-activity order-42 --step 'rooms[3]' --reset-heartbeats
"""


@asking
def command(
    context: typer.Context,
    inquiry: Inquiry,
    *,
    step: Annotated[str, typer.Option("--step", help="Step of the activity, such as rooms[3]", show_default=False)],
    heartbeat: Annotated[
        bool,
        typer.Option("--reset-heartbeats", help="Also discard the details of the last heartbeat"),
    ] = False,
    keep_paused: Annotated[bool, typer.Option("--keep-paused", help="Do not unpause the activity")] = False,
) -> None:
    """Reset an activity."""
    ask(context, "resetActivity", {"step": step, "resetHeartbeat": heartbeat, "keepPaused": keep_paused}, inquiry)
