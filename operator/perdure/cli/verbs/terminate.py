"""`terminate`: close a run at once."""

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

HELP = """Close a run at once: no handlers run, and its pods are killed.

Exit status: 0 it was done, 1 it was refused (the run is closed, for
instance), 2 trouble, 124 there was no answer in time.

\b
Examples:
  {program} terminate order-42 --reason "runs in circles"
  {program} terminate --workflow-id order-42
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
    """Close a run at once."""
    asked = Asked(
        name=name,
        workflow_id=workflow_id,
        namespace=namespace,
        cluster=cluster,
        wait=wait,
        timeout=timeout,
        output=output,
    )
    ask(context, "terminate", {"reason": reason or None}, asked)
