"""`reset`: start a new run from a point in the history of a run."""

from typing import Annotated

import typer

from perdure.api.policies import ResetPoint
from perdure.cli.operations import Inquiry, ReasonOption, ask, asking

HELP = """Start a new run from a point in the history of a run.

The new run begins with the history up to that point. If the old run is open,
it is terminated. The new run gets the signals that arrived later.

Exit status: 0 done, 1 refused (for example, no such event), 2 error,
124 timeout.

\b
Examples:
  {program} reset order-42 --event-id 12 --reason "charge is fixed"
  {program} reset order-42 --type FirstWorkflowTask
  {program} reset order-42 --type LastWorkflowTask
"""


@asking
def command(
    context: typer.Context,
    inquiry: Inquiry,
    *,
    event_id: Annotated[
        int | None, typer.Option("--event-id", help="ID of the last event to keep", show_default=False)
    ] = None,
    point: Annotated[
        ResetPoint | None,
        typer.Option(
            "--type",
            help="Instead of --event-id: before the first or the last workflow task",
            show_default=False,
        ),
    ] = None,
    reapply: Annotated[
        bool, typer.Option("--reapply-signals/--no-reapply-signals", help="Send later signals to the new run")
    ] = True,
    reason: ReasonOption = "",
) -> None:
    """Start a new run from a point in the history of a run."""
    if (event_id is None) == (point is None):
        raise typer.BadParameter("set one of the two", param_hint="--event-id, --type")
    request = {"eventId": event_id, "to": point and point.value, "reapplySignals": reapply, "reason": reason or None}
    ask(context, "reset", request, inquiry)
