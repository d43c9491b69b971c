"""`explain`: the meaning of a field or a reason."""

from typing import Annotated

import typer


def _complete(incomplete: str) -> list[str]:
    from perdure.cli.explanations import topics

    return [each for each in topics() if each.startswith(incomplete)]


HELP = """Explain a field of a kind, or a reason of a condition or an Event.

Needs no cluster. For fields, shows what kubectl explain shows of the installed
CRDs; for reasons, what happened and what to do.

\b
Examples:
  {program} explain workflowrun
  {program} explain workflow.spec.activities.retryPolicy
  {program} explain NoWorker
"""


def command(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Kind, path of a field, or reason", autocompletion=_complete)
    ],
) -> None:
    """Explain a field or a reason."""
    from perdure.cli.explanations import explain

    for line in explain(topic):
        typer.echo(line)
