"""`cancel`: ask a run to cancel itself."""

import typer

from perdure.cli.asking import (
    Asked,
    Output,
    OutputOption,
    ReasonOption,
    TargetArgument,
    TimeoutOption,
    WaitOption,
    WorkflowIdOption,
    ask,
)
from perdure.cli.options import ContextOption, NamespaceOption

HELP = """Ask a run to cancel itself; its handlers run.

The answer tells that the run has heard of it, not that it has ended: follow
it with `{program} wait`. A run that is closed already is fine.

Exit status: 0 it was done, 1 it was refused (the run is closed, for
instance), 2 trouble, 124 there was no answer in time.

\b
Examples:
  {program} cancel order-42 --reason "ordered twice"
  {program} cancel --workflow-id order-42
"""


def command(
    context: typer.Context,
    name: TargetArgument = None,
    *,
    workflow_id: WorkflowIdOption = None,
    reason: ReasonOption = "",
    namespace: NamespaceOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = "30s",
    output: OutputOption = Output.TEXT,
    cluster: ContextOption = None,
) -> None:
    """Ask a run to cancel itself."""
    asked = Asked(
        name=name,
        workflow_id=workflow_id,
        namespace=namespace,
        cluster=cluster,
        wait=wait,
        timeout=timeout,
        output=output,
    )
    ask(context, "cancel", {"reason": reason or None}, asked)
