"""`lint`: the mistakes in manifests, without a cluster."""

from typing import Annotated

import typer

from perdure.cli.options import ColorOption, ReportOption
from perdure.cli.terminal import Color, Screen, page_of
from perdure.client.errors import ExitCode

HELP = """Check manifests without a cluster.

Finds undefined names, invalid expressions, type errors, steps that never run,
infinite loops, and waits without a timeout. The operator runs the same checks
and reports them in the condition Ready of a Workflow.

Exit status: 0 no errors, 1 errors (with --strict also warnings), 2 a file
cannot be read, or there is nothing to check.

\b
Examples:
  {program} lint -f order.yaml
  {program} lint -f workflows/ -f policies.yaml --strict
  helm template shop | {program} lint -f - --output json
"""


def command(
    context: typer.Context,
    *,
    file: Annotated[
        list[str],
        typer.Option(
            "--file",
            "-f",
            help="Manifests: a file, a folder (recursive), or - for standard input; repeatable",
            show_default=False,
        ),
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors")] = False,
    output: ReportOption = "text",
    color: ColorOption = Color.AUTO,
) -> None:
    """Check manifests without a cluster."""
    from perdure.cli.lint import findings, lint
    from perdure.language.program import Severity

    screen = Screen(color)
    linted = lint(file)
    count = {severity: linted.count(severity) for severity in Severity}
    if output != "text":
        screen.write_data(
            output,
            {
                "findings": [found.as_json() for found in linted.found],
                "objects": linted.objects,
                "errors": count[Severity.ERROR],
                "warnings": count[Severity.WARNING],
                "notes": count[Severity.NOTE],
                "unreadable": linted.unreadable,
            },
        )
    elif linted.objects:
        screen.show(findings(linted, page_of(context, screen)))
    for sentence in linted.unreadable:
        typer.echo(f"Error: {sentence}", err=True)
    if linted.unreadable:
        raise typer.Exit(ExitCode.TROUBLE)
    if not linted.objects:
        typer.echo("Error: there is nothing to check: the files contain no Perdure manifests", err=True)
        raise typer.Exit(ExitCode.TROUBLE)
    bad = count[Severity.ERROR] + (count[Severity.WARNING] if strict else 0)
    raise typer.Exit(ExitCode.NO if bad else ExitCode.YES)
