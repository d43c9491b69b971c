"""`stack`: the current steps of a run."""

import typer

from perdure.cli.talking import Talk, talk, talking_to_run

HELP = """Show where a run is now.

For a workflow as code, these are the call stacks of its coroutines or threads,
from one of its workers. For a Workflow in YAML, these are the open steps, with
their attempts, pods, and what they wait for.

The request goes to the Temporal frontend: through a port-forward (requires
kubectl), or to --address. It authenticates with the token of the kubeconfig,
or as --service-account.

Exit status: 0 answered, 1 refused, 2 error, 124 timeout.

\b
Examples:
  {program} stack order-42
  {program} stack -w order-42 --service-account me
"""


@talking_to_run
def command(context: typer.Context, given: Talk) -> None:
    """Show the current steps of a run."""
    talk(context, given, lambda api, run: api.query(run, "__stack_trace"))
