"""`query`: query the state of a run."""

import typer

from perdure.cli.inputs import json_or_text
from perdure.cli.talking import Talk, talk, talking

HELP = """Query a run.

Workflows as code answer with their query handlers, if a worker is running,
and also after they have closed. Runs of Workflows in YAML answer `steps`.
Arguments that are not JSON are text.

The query goes to the Temporal frontend: through a port-forward (requires
kubectl), or to --address. It authenticates with the token of the kubeconfig,
or as --service-account.

Exit status: 0 answered, 1 refused, 2 error, 124 timeout.

\b
Examples:
  {program} query order-42 status
  {program} query order-42 steps --output yaml
  {program} query -w order-42 items 2 --service-account me
"""


@talking
def command(context: typer.Context, given: Talk) -> None:
    """Query a run."""
    name, *arguments = given.words
    talk(context, given, lambda api, run: api.query(run, name, [*map(json_or_text, arguments)]))
