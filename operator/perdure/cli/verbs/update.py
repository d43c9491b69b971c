"""`update`: change a run, and wait for the result."""

from typing import Annotated

import typer

from perdure.cli.inputs import json_or_text
from perdure.cli.talking import Talk, talk, talking

HELP = """Update a run of a workflow as code, and print the result.

The workflow validates the update, and may refuse it. Arguments that are not
JSON are text. For runs of Workflows in YAML, use `{program} signal`.

The update goes to the Temporal frontend: through a port-forward (requires
kubectl), or to --address. It authenticates with the token of the kubeconfig,
or as --service-account.

Exit status: 0 done, 1 refused or failed, 2 error, 124 timeout.

\b
Examples:
  {program} update order-42 set_amount 7
  {program} update -w order-42 approve true --service-account me
  {program} update order-42 ship --update-id ship-1 --timeout 5m
"""

IdOption = Annotated[
    str | None,
    typer.Option(
        "--update-id",
        metavar="ID",
        help="Send the update with this ID at most once; default: a new ID",
        show_default=False,
    ),
]


@talking
def command(context: typer.Context, given: Talk, *, update_id: IdOption = None) -> None:
    """Update a run."""
    name, *arguments = given.words
    values = [*map(json_or_text, arguments)]
    talk(context, given, lambda api, run: api.update(run, name, values, update_id))
