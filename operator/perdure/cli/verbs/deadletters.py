"""`deadletters`: permanently failed activities, stored as DeadLetters."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from click.exceptions import Exit

from perdure.api.times import parse_duration
from perdure.cli.command import argument, group, option
from perdure.cli.completion import names_of
from perdure.cli.connection import connect
from perdure.cli.operations import RequestOptions, requests, send_several
from perdure.cli.options import Named, color_option, context_option, everywhere_option, namespace_option, output_option
from perdure.cli.terminal import Color, Output, Screen, is_for_users, page_of, program_of, reference
from perdure.client.cluster import Cluster
from perdure.client.errors import CliError, ExitCode
from perdure.client.requests import Object
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.view import deadletters as view

KIND, PLURAL = "DeadLetter", "deadletters"


activity_option = option("--activity", help="Only DeadLetters of this activity")


names_argument = argument(
    "names",
    metavar="[NAME]...",
    type=Named(KIND),
    nargs=-1,
    required=False,
    shell_complete=names_of("deadletters"),
    help="Names of DeadLetters",
)


@group()
def deadletters() -> None:
    """List, show, re-drive, and delete DeadLetters.

    \b
    Examples:
      {program} deadletters list
      {program} deadletters show order-42-7-3fa91c
      {program} deadletters redrive order-42-7-3fa91c
    """


@deadletters.command("list")
@activity_option
@namespace_option
@everywhere_option("List DeadLetters of all namespaces")
@output_option
@color_option
@context_option
@click.pass_context
def list_(
    context: click.Context,
    *,
    activity: str | None,
    namespace: str | None,
    everywhere: bool,
    output: Output,
    color: Color,
    cluster: str | None,
) -> None:
    """List DeadLetters, newest first.

    \b
    Examples:
      {program} deadletters list --all-namespaces
      {program} deadletters list --activity charge --output name
    """

    async def read() -> list[dict[str, Any]]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await found.list(PLURAL, everywhere=everywhere)

    letters = sorted(_of(asyncio.run(read()), activity), key=_failed_time, reverse=True)
    screen = Screen(color)
    screen.show_all(
        output,
        letters,
        lambda: view.table(letters, page_of(context, screen), namespaces=everywhere),
        otherwise="There are no DeadLetters.",
    )


@deadletters.command("show")
@argument(
    "name", metavar="NAME", type=Named(KIND), shell_complete=names_of("deadletters"), help="Name of the DeadLetter"
)
@namespace_option
@output_option
@color_option
@context_option
@click.pass_context
def show(
    context: click.Context, *, name: str, namespace: str | None, output: Output, color: Color, cluster: str | None
) -> None:
    """Show a DeadLetter: what failed, why, and its re-drives.

    \b
    Examples:
      {program} deadletters show order-42-7-3fa91c
      {program} deadletters show order-42-7-3fa91c --output json
    """

    async def read() -> dict[str, Any]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await found.read(KIND, PLURAL, name)

    letter, screen = asyncio.run(read()), Screen(color)
    if not is_for_users(output):
        screen.write_object(output, letter)
    else:
        screen.show(view.describe(letter, page_of(context, screen)))


@deadletters.command("redrive")
@names_argument
@option("--all", "every", is_flag=True, help="All that have not been re-driven successfully")
@activity_option
@requests
def redrive(
    context: click.Context, options: RequestOptions, *, names: tuple[str, ...], every: bool, activity: str | None
) -> None:
    """Run activities again, with the same input.

    Creates an Operation for each; the operator starts a run of one step. Returns
    once the run has started, before it ends. --all skips those that are running
    again or have succeeded.

    Exit status: 0 all started, 1 one was refused (for example, it has succeeded),
    2 error, 124 timeout.

    \b
    Examples:
      {program} deadletters redrive order-42-7-3fa91c
      {program} deadletters redrive --all --activity charge
    """
    if bool(names) == every:
        raise CliError("set either NAME or --all")

    async def find_targets(cluster: Cluster) -> list[Object]:
        chosen = list(dict.fromkeys(names or ()))
        if every:
            letters = _of(await cluster.list(PLURAL), activity)

            chosen = [each["metadata"]["name"] for each in letters if view.redriven(each) not in {"True", "Unknown"}]
        return [{"kind": KIND, "name": name} for name in chosen]

    if not send_several(context, "redrive", {}, options, find_targets):
        click.echo("There is nothing to re-drive.", err=True)


@deadletters.command("delete")
@names_argument
@option("--redriven", "done", is_flag=True, help="DeadLetters whose re-drive succeeded")
@option("--older-than", help="DeadLetters that failed longer ago, such as 30d")
@namespace_option
@context_option
@click.pass_context
def delete(
    context: click.Context,
    *,
    names: tuple[str, ...],
    done: bool,
    older_than: str | None,
    namespace: str | None,
    cluster: str | None,
) -> None:
    """Delete DeadLetters and the runs of their re-drives.

    \b
    Examples:
      {program} deadletters delete order-42-7-3fa91c
      {program} deadletters delete --redriven
      {program} deadletters delete --older-than 30d
    """
    if bool(names) == (done or older_than is not None):
        raise CliError("set NAME, --redriven or --older-than")
    age = _age(older_than)

    async def remove() -> Sequence[str]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            chosen = list(names or ())
            if not names:
                letters = await found.list(PLURAL)

                chosen = [
                    each["metadata"]["name"]
                    for each in letters
                    if (not done or view.redriven(each) == "True")
                    and (age is None or _failed_time(each) < clock.now() - age)
                ]
            for each in chosen:
                await found.delete(KIND, PLURAL, each)
            return chosen

    gone = asyncio.run(remove())
    for name in gone:
        click.echo(f"{reference(KIND, name)} deleted")
    if not gone:
        click.echo("There is nothing to delete.", err=True)
        raise Exit(ExitCode.NO)


def _age(text: str | None) -> timedelta | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise CliError(f"--older-than: {error}") from error


def _of(letters: Sequence[dict[str, Any]], activity: str | None) -> list[dict[str, Any]]:
    return [each for each in letters if activity is None or each["spec"].get("activity") == activity]


def _failed_time(letter: dict[str, Any]) -> datetime:
    failed = letter["spec"].get("failedTime")
    return datetime.fromisoformat(failed) if failed else datetime.min.replace(tzinfo=UTC)
