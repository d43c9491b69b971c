"""`test`: check workflows against the expectations of their scenarios."""

from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.options import ColorOption, ReportOption
from perdure.cli.terminal import Color, Screen, page_of
from perdure.client.errors import ExitCode

HELP = """Simulate every scenario of a folder, and report differences.

A scenario lists its manifests in `files`, relative to itself, and the expected
outcome in `expect`. Files that are manifests are skipped.

Exit status: 0 all scenarios pass, 1 one fails, 2 a file is invalid, or there
are none.

\b
Examples:
  {program} test scenarios/
  {program} test scenarios/declined.yaml --output json
"""


def command(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with scenarios, or one scenario")],
    *,
    output: ReportOption = "text",
    color: ColorOption = Color.AUTO,
) -> None:
    """Simulate every scenario of a folder, and print the unmet expectations."""
    from perdure.cli.scenarios import scenarios_in
    from perdure.simulation.cast import BadFileError
    from perdure.view import simulation as view

    screen = Screen(color)
    try:
        files = scenarios_in(folder)
    except BadFileError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(ExitCode.TROUBLE) from error
    if not files:
        typer.echo(f"Error: {folder} has no scenarios: YAML files without `kind`, with `files` and `expect`", err=True)
        raise typer.Exit(ExitCode.TROUBLE)
    page = page_of(context, screen)
    results = []
    for file in files:
        results.append(_play(file))
        if output == "text":
            screen.show(view.verdict(results[-1], page))
    count = {word: sum(result["verdict"] == word for result in results) for word in ("Met", "Unmet", "Bad")}
    if output != "text":
        screen.write_data(output, {"scenarios": results, **{word.lower(): number for word, number in count.items()}})
    else:
        screen.show([view.summary(count, page)])
    raise typer.Exit(ExitCode.TROUBLE if count["Bad"] else ExitCode.NO if count["Unmet"] else ExitCode.YES)


def _play(file: Path) -> dict[str, Any]:
    """Simulate one scenario and return a summary of its result."""
    from perdure.cli.scenarios import play
    from perdure.simulation.cast import BadFileError

    try:
        scenario, report = play([], str(file))
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
