"""`retry`: repeat the failed work of a run."""

from typing import Annotated

import typer

from perdure.cli.operations import ANSWER_TIMEOUT, Inquiry, ReasonOption, ask_to_start
from perdure.cli.options import ContextOption, NamespaceOption, OutputOption, RunName, WorkflowIdOption
from perdure.cli.starts import EndTimeoutOption, Launch, LogsOption, WaitOption, Where, follow

HELP = """Run the failed steps of a closed run again, and keep the rest.

Starts a new run with the history up to the first failed step. It keeps the
results of all successful steps, including later ones in other branches and
items. Handlers such as `finally` and compensated steps run again. --from names
further steps to run again, with all steps that follow; with it, you can also
retry a completed run.

--output prints the Operation; with --wait or --logs, it prints the new run, as
it is at the end or after --timeout, and everything else goes to standard error.

Exit status: 0 done, 1 refused (for example, the run is open), 2 error,
124 timeout. With --wait or --logs: 0 if the new run completed, 1 if it ended
in another way.

\b
Examples:
  {program} retry order-42 --reason "charge is fixed"
  {program} retry order-42 --from charge --from 'rooms[3]'
  {program} retry order-42 --logs
"""


def command(
    context: typer.Context,
    run: RunName = None,
    *,
    workflow_id: WorkflowIdOption = None,
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
    namespace: NamespaceOption = None,
    wait: WaitOption = None,
    logs: LogsOption = False,
    timeout: EndTimeoutOption = None,
    output: OutputOption = "text",
    cluster: ContextOption = None,
) -> None:
    """Repeat the failed work of a run."""
    launch = Launch.of(wait=wait, logs=logs, timeout=timeout, dry_run=None, parameters=None)
    inquiry = Inquiry(
        name=run,
        workflow_id=workflow_id,
        namespace=namespace,
        cluster=cluster,
        wait=wait is not False,
        timeout=ANSWER_TIMEOUT,
        output=output,
    )
    request = {"from": steps or None, "reapplySignals": None if reapply else False, "reason": reason or None}
    started = ask_to_start(context, "retry", request, inquiry, follows=launch.follows)
    if started is not None:
        follow(context, started, Where(namespace, cluster), output, launch)
