"""`lint`: the mistakes in manifests, without a cluster."""

import click
from click.exceptions import Exit

from perdure.cli.command import option, verb
from perdure.cli.options import color_option, report_option
from perdure.cli.terminal import Color, Output, Screen, page_of
from perdure.client.errors import ExitCode


@verb()
@option(
    "--file",
    "-f",
    multiple=True,
    required=True,
    help="Manifests: a file, a folder (recursive), or - for standard input; repeatable",
)
@option("--strict", is_flag=True, help="Treat warnings as errors")
@report_option
@color_option
@click.pass_context
def lint(context: click.Context, *, file: tuple[str, ...], strict: bool, output: Output, color: Color) -> None:
    """Check manifests without a cluster.

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
        click.echo(f"Error: {sentence}", err=True)
    if linted.unreadable:
        raise Exit(ExitCode.TROUBLE)
    if not linted.objects:
        click.echo("Error: there is nothing to check: the files contain no Perdure manifests", err=True)
        raise Exit(ExitCode.TROUBLE)
    bad = count[Severity.ERROR] + (count[Severity.WARNING] if strict else 0)
    raise Exit(ExitCode.NO if bad else ExitCode.YES)
