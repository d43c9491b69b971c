"""`simulate` and `test`: run workflows in virtual time, and check them against the expectations of scenarios."""

from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from perdure.cli.command import argument, option, verb
from perdure.cli.inputs import value
from perdure.cli.options import color_option, report_option, time_option
from perdure.cli.terminal import Color, Output, Screen, TimeFormat, page_of
from perdure.client.errors import ExitCode


@verb()
@option(
    "--file",
    "-f",
    multiple=True,
    help="Manifests of Workflow, WorkflowRun, RetryPolicy; - for standard input; repeatable",
)
@option("--scenario", help="Scenario: what happens, and the expected outcome")
@option("--input", "-i", "given", help="Input: JSON, @FILE, or @- for standard input")
@report_option
@time_option
@color_option
@click.pass_context
def simulate(
    context: click.Context,
    *,
    file: tuple[str, ...],
    scenario: str | None,
    given: str | None,
    output: Output,
    times: TimeFormat,
    color: Color,
) -> None:
    """Run a workflow in virtual time, without a cluster.

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
    from perdure.cli.scenarios import simulate_scenario
    from perdure.simulation.manifests import BadFileError
    from perdure.view import simulation as view

    if not file and scenario is None:
        raise click.BadParameter("set a manifest, or a scenario that names one", param_hint="--file")
    screen = Screen(color)
    try:
        wanted, report = simulate_scenario(file or [], scenario, value(given, "--input"))
    except BadFileError as error:
        for line in str(error).splitlines():
            click.echo(f"Error: {line}", err=True)
        raise Exit(ExitCode.TROUBLE) from error
    unmet = report.unmet(wanted.expect) if wanted.expect else None
    if output != "text":
        screen.write_data(output, report.as_json() | ({} if unmet is None else {"unmet": unmet}))
    else:
        screen.show(view.show(report, unmet, page_of(context, screen, times=times)))
    raise Exit(ExitCode.NO if unmet else ExitCode.YES)


@verb()
@argument("folder", metavar="DIR", type=click.Path(path_type=Path), help="Folder with scenarios, or one scenario")
@report_option
@color_option
@click.pass_context
def test(context: click.Context, *, folder: Path, output: Output, color: Color) -> None:
    """Simulate every scenario of a folder, and report differences.

    A scenario lists its manifests in `files`, relative to itself, and the expected
    outcome in `expect`. Files that are manifests are skipped.

    Exit status: 0 all scenarios pass, 1 one fails, 2 a file is invalid, or there
    are none.

    \b
    Examples:
      {program} test scenarios/
      {program} test scenarios/declined.yaml --output json
    """
    from perdure.cli.scenarios import scenarios_in
    from perdure.simulation.manifests import BadFileError
    from perdure.view import simulation as view

    screen = Screen(color)
    try:
        files = scenarios_in(folder)
    except BadFileError as error:
        click.echo(f"Error: {error}", err=True)
        raise Exit(ExitCode.TROUBLE) from error
    if not files:
        click.echo(f"Error: {folder} has no scenarios: YAML files without `kind`, with `files` and `expect`", err=True)
        raise Exit(ExitCode.TROUBLE)
    page = page_of(context, screen)
    results = []
    for file in files:
        results.append(_simulate(file))
        if output == "text":
            screen.show(view.verdict(results[-1], page))
    count = {word: sum(result["verdict"] == word for result in results) for word in ("Met", "Unmet", "Bad")}
    if output != "text":
        screen.write_data(output, {"scenarios": results, **{word.lower(): number for word, number in count.items()}})
    else:
        screen.show([view.summary(count, page)])
    raise Exit(ExitCode.TROUBLE if count["Bad"] else ExitCode.NO if count["Unmet"] else ExitCode.YES)


def _simulate(file: Path) -> dict[str, Any]:
    """Simulate one scenario and return a summary of its result."""
    from perdure.cli.scenarios import simulate_scenario
    from perdure.simulation.manifests import BadFileError

    try:
        scenario, report = simulate_scenario([], str(file))
    except BadFileError as error:
        return {"file": str(file), "verdict": "Bad", "errors": str(error).splitlines()}
    unmet = report.unmet(scenario.expect) if scenario.expect else []
    return {
        "file": str(file),
        "verdict": "Unmet" if unmet else "Met",
        "expects": scenario.expect is not None,
        "phase": report.phase,
        "elapsed": report.elapsed.total_seconds(),
        "unmet": unmet,
    }
