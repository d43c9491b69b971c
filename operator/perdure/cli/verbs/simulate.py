"""`simulate`: run a workflow in virtual time."""

from typing import Annotated

import typer

from perdure.cli.inputs import value
from perdure.cli.options import ColorOption, ReportOption, TimeOption
from perdure.cli.terminal import Color, Screen, TimeFormat, page_of
from perdure.client.errors import ExitCode

HELP = """Run a workflow in virtual time, without a cluster.

Uses the real engine and interpreter. Activities behave as the scenario says,
or complete immediately. 30 days pass in milliseconds.

Exit status: 0 the run ended (with any outcome), 1 it does not match the
scenario, 2 a file is invalid or the run does not end.

\b
Examples:
  {program} simulate --file order.yaml --input @order.json
  {program} simulate --file order.yaml --scenario declined.yaml
  {program} simulate --scenario declined.yaml --output json
"""


def command(
    context: typer.Context,
    *,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            help="Manifests of Workflow, WorkflowRun, RetryPolicy; - for standard input; repeatable",
            show_default=False,
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option("--scenario", help="Scenario: what happens, and the expected outcome", show_default=False),
    ] = None,
    given: Annotated[
        str | None,
        typer.Option("--input", "-i", help="Input: JSON, @FILE, or @- for standard input", show_default=False),
    ] = None,
    output: ReportOption = "text",
    times: TimeOption = TimeFormat.RELATIVE,
    color: ColorOption = Color.AUTO,
) -> None:
    """Run a workflow in virtual time, without a cluster."""
    from perdure.cli.scenarios import play
    from perdure.simulation.cast import BadFileError
    from perdure.view import simulation as view

    if not file and scenario is None:
        raise typer.BadParameter("set a manifest, or a scenario that names one", param_hint="--file")
    screen = Screen(color)
    try:
        wanted, report = play(file or [], scenario, value(given, "--input"))
    except BadFileError as error:
        for line in str(error).splitlines():
            typer.echo(f"Error: {line}", err=True)
        raise typer.Exit(ExitCode.TROUBLE) from error
    unmet = report.unmet(wanted.expect) if wanted.expect else None
    if output != "text":
        screen.write_data(output, report.as_json() | ({} if unmet is None else {"unmet": unmet}))
    else:
        screen.show(view.show(report, unmet, page_of(context, screen, times=times)))
    raise typer.Exit(ExitCode.NO if unmet else ExitCode.YES)
