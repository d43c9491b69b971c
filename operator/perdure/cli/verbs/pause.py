"""`pause`: pause a run, or one of its activities."""

import typer

from perdure.cli.asking import (
    Asked,
    Output,
    OutputOption,
    ReasonOption,
    StepOption,
    TargetArgument,
    TimeoutOption,
    WaitOption,
    WorkflowIdOption,
    ask,
)
from perdure.cli.options import ContextOption, NamespaceOption

HELP = """Pause a run: what is under way goes on, nothing new begins.

With --step, only the activity of that step: no new attempt begins.

Exit status: 0 it was done, 1 it was refused (the run is closed, for
instance), 2 trouble, 124 there was no answer in time.

\b
Examples:
  {program} pause order-42 --reason "the bank is down"
  {program} pause order-42 --step charge
"""


def command(
    context: typer.Context,
    name: TargetArgument = None,
    *,
    workflow_id: WorkflowIdOption = None,
    step: StepOption = None,
    reason: ReasonOption = "",
    namespace: NamespaceOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = "30s",
    output: OutputOption = Output.TEXT,
    cluster: ContextOption = None,
) -> None:
    """Pause a run, or one of its activities."""
    asked = Asked(
        name=name,
        workflow_id=workflow_id,
        namespace=namespace,
        cluster=cluster,
        wait=wait,
        timeout=timeout,
        output=output,
    )
    ask(context, "pause", {"step": step, "reason": reason or None}, asked)
