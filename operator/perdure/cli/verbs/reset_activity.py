"""`reset-activity`: reset the attempts of an activity to 1."""

from typing import Annotated

import typer

from perdure.cli.asking import StepOption
from perdure.cli.talking import Talk, talk, talking_to_run

HELP = """Count the attempts of a pending activity from 1 again.

A retry that is due later starts immediately, and the retry policy permits its
maximum number of attempts again. A running attempt continues. The activity is
named by its step; for a workflow as code, by its activity ID.

The request goes to the Temporal frontend: through a port-forward (requires
kubectl), or to --address. It authenticates with the token of the kubeconfig,
or as --service-account. To pause one activity, use `{program} pause --step`.

Exit status: 0 done, 1 refused, 2 error, 124 timeout.

\b
Examples:
  {program} reset-activity order-42 --step charge
  {program} reset-activity order-42 --step 'rooms[3]' --reset-heartbeats
"""


@talking_to_run
def command(
    context: typer.Context,
    given: Talk,
    *,
    step: StepOption = None,
    heartbeats: Annotated[
        bool, typer.Option("--reset-heartbeats", help="Also discard the details of the last heartbeat")
    ] = False,
    keep_paused: Annotated[bool, typer.Option("--keep-paused", help="Do not unpause the activity")] = False,
) -> None:
    """Reset an activity."""
    if not step:
        raise typer.BadParameter("requires the step of the activity", param_hint="--step")
    talk(context, given, lambda api, run: api.reset_activity(run, step, heartbeat=heartbeats, keep_paused=keep_paused))
