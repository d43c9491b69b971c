"""`fleet`: the operators that share the work."""

import asyncio
from typing import Annotated, Any, Final

import typer

from perdure.cli.connection import connect
from perdure.cli.options import ColorOption, ContextOption, OutputOption
from perdure.cli.terminal import Color, Screen, for_people, page_of, program_of

_DEFAULT: Final = "perdure-system"

HELP = """List the operators that share the work.

Shows the shards of each operator, when it last renewed its Lease, the version
that it runs, and the operators among which it divides the work. All of them
must name the same operators, apart from the seconds after a change.

A single operator does all the work, and has no Lease.

\b
Examples:
  {program} fleet
  {program} fleet --namespace perdure-system --output json
  {program} fleet --owner-of shop/order-7
"""


def command(
    context: typer.Context,
    *,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the operators")] = _DEFAULT,
    owner_of: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/WORKFLOW_ID", help="Show only the operator that reconciles the runs of this workflow ID"
        ),
    ] = "",
    output: OutputOption = "text",
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """List the operators that share the work."""
    of, separator, workflow_id = owner_of.partition("/")
    if owner_of and not (of and separator and workflow_id):
        raise typer.BadParameter("must have the form NAMESPACE/WORKFLOW_ID", param_hint="--owner-of")

    async def read() -> list[dict[str, Any]]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await found.leases()

    leases = asyncio.run(read())
    from perdure.view.fleet import as_json, members_of, owners_of, table

    screen = Screen(color)
    page = page_of(context, screen)
    members = members_of(leases, page.now)
    if owner_of:
        members = owners_of(members, of, workflow_id)
    if not for_people(output):
        screen.write_data(output, as_json(members), (member.name for member in members))
    elif not members:
        typer.echo(f"No operators share the work in namespace `{namespace}`.", err=True)
    else:
        screen.show(table(members, page))
