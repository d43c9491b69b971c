"""`workflow`: the revisions of a Workflow."""

import asyncio
from typing import Any

import click

from perdure.cli.command import argument, group, option
from perdure.cli.completion import names_of
from perdure.cli.connection import connect
from perdure.cli.options import Named, color_option, context_option, namespace_option, output_option
from perdure.cli.terminal import Color, Output, Screen, page_of, program_of
from perdure.client.errors import CliError, NotFoundError
from perdure.client.requests import Object
from perdure.client.revisions import RevisionHistory, written
from perdure.lazy import lazily

with lazily():
    from perdure.api import yaml_text
    from perdure.view import revisions as view


@group()
def workflow() -> None:
    """Show and compare the revisions of a Workflow, and roll it back.

    \b
    Examples:
      {program} workflow history order-flow
      {program} workflow diff order-flow 2 3
      {program} workflow rollback order-flow --to 2
    """


_name_argument = argument(
    "name", metavar="NAME", type=Named("Workflow"), shell_complete=names_of("workflows"), help="Name of the Workflow"
)


@workflow.command("history")
@_name_argument
@output_option
@color_option
@namespace_option
@context_option
@click.pass_context
def history(
    context: click.Context, *, name: str, output: Output, color: Color, namespace: str | None, cluster: str | None
) -> None:
    """List the revisions of a Workflow, newest first, and how many runs use each.

    A revision is a definition that runs of the Workflow can use, with what it
    copies from other Workflows. It is kept while a run refers to it; of an existing
    Workflow, the newest ones are kept in any case. A Workflow that was deleted has
    revisions as long as runs need them.

    \b
    Examples:
      {program} workflow history order-flow
      {program} workflow history order-flow --output yaml
      {program} list --workflow order-flow --revision 3
    """
    screen = Screen(color)

    async def read() -> tuple[RevisionHistory, dict[str, tuple[int, int]]]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as reached:
            return await reached.revisions.history(name), await reached.revisions.runs(name)

    found, runs = asyncio.run(read())
    screen.show_all(
        output,
        found.revisions,
        lambda: view.table(found.revisions, found.current, runs, page_of(context, screen)),
        otherwise=f"Workflow {name} has no revisions: it is not ready, or the operators are being upgraded.",
    )


@workflow.command("diff")
@_name_argument
@argument("before", metavar="[REV]", required=False, help="Number or name of a revision; default: the previous one")
@argument("after", metavar="[REV]", required=False, help="What to compare it with; default: the Workflow as it is")
@color_option
@namespace_option
@context_option
@click.pass_context
def diff(
    context: click.Context,
    *,
    name: str,
    before: str | None,
    after: str | None,
    color: Color,
    namespace: str | None,
    cluster: str | None,
) -> None:
    """Show the differences between two revisions, or a revision and the Workflow.

    Compares the definitions as they were written. If a Workflow copies parts of
    others (`from`), a revision can differ in what it has copied: compare
    `{program} workflow history NAME --output yaml`.

    \b
    Examples:
      {program} workflow diff order-flow
      {program} workflow diff order-flow 2
      {program} workflow diff order-flow 2 3
    """
    screen = Screen(color)

    async def read() -> tuple[tuple[str, Any], tuple[str, Any]]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as reached:
            found = await reached.revisions.history(name)
            first = found.previous() if before is None else found.find(before)
            if after is not None:
                return _named(first), _named(found.find(after))
            return _named(first), (f"Workflow {name}", (await reached.revisions.workflow(name))["spec"])

    first, second = asyncio.run(read())
    lines = list(view.differences(first, second))
    screen.show(lines)
    if not lines:
        click.echo(f"{first[0]} and {second[0]} are the same.", err=True)


def _named(revision: Object) -> tuple[str, Object]:
    return f"revision {revision['spec'].get('number')} ({revision['metadata']['name']})", written(revision)


@workflow.command("rollback")
@_name_argument
@option("--to", metavar="REV", help="Number or name of the revision; default: the one before the current one")
@option("--dry-run", is_flag=True, help="Print the spec, and change nothing")
@namespace_option
@context_option
@click.pass_context
def rollback(
    context: click.Context, *, name: str, to: str | None, dry_run: bool, namespace: str | None, cluster: str | None
) -> None:
    """Give a Workflow the definition of an earlier revision.

    Runs that start from now on use it; runs that have started keep theirs. A
    Workflow that was deleted is created again. If a tool such as Argo CD applies
    the Workflow, change its source instead.

    \b
    Examples:
      {program} workflow rollback order-flow
      {program} workflow rollback order-flow --to 2
      {program} workflow rollback order-flow --to 2 --dry-run
    """

    async def change() -> tuple[Object, bool]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as reached:
            found = await reached.revisions.history(name)
            chosen = found.previous() if to is None else found.find(to)
            try:
                same = (await reached.revisions.workflow(name))["spec"] == written(chosen)
            except NotFoundError:
                same = False
            if not (dry_run or same):
                await reached.revisions.roll_back(name, written(chosen))
            return chosen, same

    chosen, same = asyncio.run(change())
    number = chosen["spec"].get("number")
    if dry_run:
        click.echo(yaml_text.dump_blocks(written(chosen)).rstrip("\n"))
    elif same:
        raise CliError(f"Workflow `{name}` already has the definition of revision {number}")
    else:
        click.echo(f"Workflow {name} has the definition of revision {number}; runs that start from now on use it.")
