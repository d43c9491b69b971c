"""`retry`: repeat the failed work of a run."""

from typing import Annotated

import typer

from perdure.cli.asking import Inquiry, ReasonOption, ask_to_start, asking

HELP = """Run the failed steps of a closed run again, and keep the rest.

Starts a new run with the history up to the first failed step. It keeps the
results of all successful steps, including later ones in other branches and
items. Handlers such as `finally` and compensated steps run again. --from names
further steps to run again, with all steps that follow; with it, you can also
retry a completed run.

Exit status: 0 done, 1 refused (for example, the run is open), 2 error,
124 timeout.

\b
Examples:
  {program} retry order-42 --reason "charge is fixed"
  {program} retry order-42 --from charge --from 'rooms[3]'
"""


@asking
def command(
    context: typer.Context,
    asked: Inquiry,
    *,
    steps: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="Run this step and all that follow again; repeatable",
            metavar="STEP",
            show_default=False,
        ),
    ] = None,
    reapply: Annotated[
        bool, typer.Option("--reapply-signals/--no-reapply-signals", help="Send later signals to the new run")
    ] = True,
    reason: ReasonOption = "",
) -> None:
    """Repeat the failed work of a run."""
    said = {"from": steps or None, "reapplySignals": None if reapply else False, "reason": reason or None}
    ask_to_start(context, "retry", said, asked)
