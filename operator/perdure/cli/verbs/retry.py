"""`retry`: do again what failed in a run."""

from typing import Annotated

import typer

from perdure.cli.asking import Inquiry, ReasonOption, ask_to_start, asking

HELP = """Do again what failed in a closed run, and keep what succeeded.

A new run begins with the history up to the first step that failed. Results
of steps that succeeded are kept, also those that came later in other branches
and items; handlers such as `finally` run again, and so do steps that were
compensated. --from names steps that are done again too, with all that comes
after them; with it, a run that completed can be retried.

Exit status: 0 it was done, 1 it was refused (the run is open, for instance),
2 trouble, 124 there was no answer in time.

\b
Examples:
  {program} retry order-42 --reason "charge was mended"
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
            help="Do this step again too, and what comes after it; may be given several times",
            metavar="STEP",
            show_default=False,
        ),
    ] = None,
    reapply: Annotated[
        bool, typer.Option("--reapply-signals/--no-reapply-signals", help="Give later signals to the new run")
    ] = True,
    reason: ReasonOption = "",
) -> None:
    """Do again what failed in a run."""
    said = {"from": steps or None, "reapplySignals": None if reapply else False, "reason": reason or None}
    ask_to_start(context, "retry", said, asked)
