"""`reset`: start a run anew from a point in its history."""

from typing import Annotated

import typer

from perdure.api.operation import ResetPoint
from perdure.cli.asking import Inquiry, ReasonOption, ask, asking

HELP = """Start a run anew from a point in its history.

A new run begins with the history up to that point, and this one is
terminated if it is open. Signals that came later are given to the new run.

Exit status: 0 it was done, 1 it was refused (the run is closed, for
instance), 2 trouble, 124 there was no answer in time.

\b
Examples:
  {program} reset order-42 --event-id 12 --reason "charge was mended"
  {program} reset order-42 --type FirstWorkflowTask
  {program} reset order-42 --type LastWorkflowTask
"""


@asking
def command(
    context: typer.Context,
    asked: Inquiry,
    *,
    event_id: Annotated[
        int | None, typer.Option("--event-id", help="The last event that is kept", show_default=False)
    ] = None,
    point: Annotated[
        ResetPoint | None,
        typer.Option(
            "--type",
            help="Instead of --event-id: before the first decision of the steps, or before the last one",
            show_default=False,
        ),
    ] = None,
    reapply: Annotated[
        bool, typer.Option("--reapply-signals/--no-reapply-signals", help="Give later signals to the new run")
    ] = True,
    reason: ReasonOption = "",
) -> None:
    """Start a run anew from a point in its history."""
    if (event_id is None) == (point is None):
        raise typer.BadParameter("one of the two has to be given", param_hint="--event-id, --type")
    said = {"eventId": event_id, "to": point and point.value, "reapplySignals": reapply, "reason": reason or None}
    ask(context, "reset", said, asked)
