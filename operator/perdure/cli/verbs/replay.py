"""`replay`: check a definition against a recorded history."""

import sys
from pathlib import Path

import click
from click.exceptions import Exit

from perdure.cli.command import option, verb
from perdure.cli.options import color_option
from perdure.cli.terminal import Color, Screen, page_of
from perdure.client.errors import CliError, ExitCode
from perdure.view.difference import Difference, show


@verb()
@option("--file", "-f", required=True, help="History, from `history -o json`; - for standard input")
@option("--workflow", required=True, help="Manifest of a Workflow or a WorkflowRun")
@option("--name", help="Name of the run; default: its workflow ID")
@option("--namespace", "-n", help="Namespace of the run; default: `default`")
@color_option
@click.pass_context
def replay(
    context: click.Context, *, file: str, workflow: str, name: str | None, namespace: str | None, color: Color
) -> None:
    """Check that a definition still replays a recorded history.

    Replays the history with the definition and reports the first difference,
    without a cluster. A history does not contain the name and namespace of the
    run: if expressions use them, set --name and --namespace.

    Exit status: 0 it replays, 1 it does not, 2 a file cannot be read.

    \b
    Examples:
      {program} history order-42 --output json > order-42.json
      {program} replay --file order-42.json --workflow workflow.yaml
    """
    from perdure.cli import replays

    screen = Screen(color)
    events = replays.read_history(_read(file), file)
    manifest = replays.read_manifest(_read(workflow), workflow, replays.workflow_type(events))
    found = replays.replay(events, manifest, name=name, namespace=namespace)
    if isinstance(found, Difference):
        screen.show(show(found, page_of(context, screen)))
        raise Exit(ExitCode.NO)
    if found is not None:
        click.echo(f"does not replay: {found}")
        raise Exit(ExitCode.NO)
    click.echo(f"replays: {len(events)} events")


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {error}") from error
