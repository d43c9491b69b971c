"""`complete`: complete a pending activity from outside."""

from typing import Annotated, Any

import typer

from perdure.cli.inputs import value
from perdure.cli.operations import Inquiry, ask, asking

HELP = """Complete a pending activity from outside.

With --result, the activity succeeds. With --failure, the attempt fails and
the retry policy applies. With --cancelled, the activity ends as cancelled on
request. --result and --details take JSON or @FILE.

Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
124 timeout.

\b
Examples:
  {program} complete order-42 --step charge --result @receipt.json
  {program} complete order-42 --step charge --failure CardDeclined \\
    --message "declined by phone" --non-retryable
"""


@asking
def command(
    context: typer.Context,
    inquiry: Inquiry,
    *,
    step: Annotated[str, typer.Option("--step", help="Step of the activity, such as rooms[3]", show_default=False)],
    result: Annotated[str | None, typer.Option("--result", help="Succeed with this output", show_default=False)] = None,
    failure: Annotated[
        str | None, typer.Option("--failure", help="Fail with this failure type", show_default=False)
    ] = None,
    cancelled: Annotated[bool, typer.Option("--cancelled", help="Confirm the cancellation")] = False,
    message: Annotated[str, typer.Option("--message", help="Message of the failure", show_default=False)] = "",
    details: Annotated[
        str | None,
        typer.Option("--details", help="Details of the failure or cancellation", show_default=False),
    ] = None,
    final: Annotated[bool, typer.Option("--non-retryable", help="Do not retry the failure")] = False,
) -> None:
    """Complete a pending activity from outside."""
    if sum((result is not None, failure is not None, cancelled)) != 1:
        raise typer.BadParameter("set one of the three", param_hint="--result, --failure, --cancelled")
    parsed = value(details, "--details")
    carried = {} if parsed is None else {"details": parsed}
    request: dict[str, Any] = {"step": step}
    if result is not None:
        output_ = value(result, "--result")
        request["result"] = {} if output_ is None else {"output": output_}
    elif failure is not None:
        request["failure"] = {"type": failure, "message": message, "nonRetryable": final, **carried}
    else:
        request["cancelled"] = carried
    ask(context, "completeActivity", request, inquiry)
