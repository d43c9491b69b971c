"""`wait`: follow a run until it ends."""

from typing import Annotated

import typer

from perdure.cli.options import (
    ColorOption,
    ContextOption,
    NamespaceOption,
    RunName,
    TimeOption,
    WorkflowIdOption,
    check_named,
)
from perdure.cli.progress import Waiter
from perdure.cli.terminal import Color, Screen, TimeFormat
from perdure.client.errors import GoneError

HELP = """Wait until a run ends, and show its progress.

On a terminal, shows the steps live; otherwise prints a line for each change.
If the API server does not respond, it retries until --timeout.

With --ignore-not-found, a run that does not exist, or is deleted while you
wait, is not an error.

Exit status: 0 the run completed, 1 it ended in any other way, 2 error (no
cluster, run not found or deleted), 124 timeout.

\b
Examples:
  {program} wait order-42
  {program} wait --workflow-id A-1001
  {program} wait order-42 --timeout 5m && echo shipped
  {program} wait order-42 --ignore-not-found
"""


def command(
    context: typer.Context,
    name: RunName = None,
    *,
    workflow_id: WorkflowIdOption = None,
    namespace: NamespaceOption = None,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", help="How long to wait, such as 90s or 1h30m; default: no limit", show_default=False),
    ] = None,
    ignore: Annotated[
        bool, typer.Option("--ignore-not-found", help="Succeed if the run does not exist or is deleted")
    ] = False,
    times: TimeOption = TimeFormat.RELATIVE,
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """Follow a run until it ends."""
    check_named(name, workflow_id)
    waiter = Waiter(context, Screen(color), times, cluster)
    try:
        raise typer.Exit(waiter.to_the_end(name, workflow_id, namespace, timeout))
    except GoneError as error:
        if not ignore:
            raise
        typer.echo(str(error), err=True)
