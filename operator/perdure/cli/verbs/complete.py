"""`complete`: answer for an open activity."""

from typing import Annotated, Any

import typer

from perdure.cli.asking import Inquiry, ask, asking, value

HELP = """Answer for an open activity, in place of what does it.

With --result it succeeds; with --failure the attempt fails, and is tried
again as its retry policy says; with --cancelled it has stopped as it was
asked to. What stands in --result or --details is JSON, or @FILE.

Exit status: 0 it was done, 1 it was refused (the run is closed, for
instance), 2 trouble, 124 there was no answer in time.

\b
Examples:
  {program} complete order-42 --step charge --result @receipt.json
  {program} complete order-42 --step charge --failure CardDeclined \\
    --message "declined by phone" --non-retryable
"""


@asking
def command(
    context: typer.Context,
    asked: Inquiry,
    *,
    step: Annotated[str, typer.Option("--step", help="Step of the activity, such as rooms[3]", show_default=False)],
    result: Annotated[
        str | None, typer.Option("--result", help="It succeeded, with this output", show_default=False)
    ] = None,
    failure: Annotated[
        str | None, typer.Option("--failure", help="It failed; type of the failure", show_default=False)
    ] = None,
    cancelled: Annotated[bool, typer.Option("--cancelled", help="It was cancelled")] = False,
    message: Annotated[str, typer.Option("--message", help="Of the failure, for people", show_default=False)] = "",
    details: Annotated[
        str | None,
        typer.Option("--details", help="Of the failure or cancellation, for programs", show_default=False),
    ] = None,
    final: Annotated[bool, typer.Option("--non-retryable", help="The failure is not tried again")] = False,
) -> None:
    """Answer for an open activity."""
    if sum((result is not None, failure is not None, cancelled)) != 1:
        raise typer.BadParameter("one of the three has to be given", param_hint="--result, --failure, --cancelled")
    told = value(details, "--details")
    carried = {} if told is None else {"details": told}
    said: dict[str, Any] = {"step": step}
    if result is not None:
        output_ = value(result, "--result")
        said["result"] = {} if output_ is None else {"output": output_}
    elif failure is not None:
        said["failure"] = {"type": failure, "message": message, "nonRetryable": final, **carried}
    else:
        said["cancelled"] = carried
    ask(context, "completeActivity", said, asked)
