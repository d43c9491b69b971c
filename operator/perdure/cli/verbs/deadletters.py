"""`deadletters`: permanently failed activities, stored as DeadLetters."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from perdure.api.times import parse_duration
from perdure.cli.completion import names_of
from perdure.cli.connection import connect
from perdure.cli.operations import How, ask_several, asking_several
from perdure.cli.options import ColorOption, ContextOption, NamespaceOption, OutputOption
from perdure.cli.terminal import Color, Screen, for_people, page_of, program_of, reference
from perdure.client.cluster import Cluster
from perdure.client.errors import CliError, ExitCode
from perdure.client.requests import Object
from perdure.kube import clock

HELP = """List, show, re-drive, and delete DeadLetters.

\b
Examples:
  {program} deadletters list
  {program} deadletters show order-42-7-3fa91c
  {program} deadletters redrive order-42-7-3fa91c
"""

LIST_HELP = """List DeadLetters, newest first.

\b
Examples:
  {program} deadletters list --all-namespaces
  {program} deadletters list --activity charge --output name
"""

SHOW_HELP = """Show a DeadLetter: what failed, why, and its re-drives.

\b
Examples:
  {program} deadletters show order-42-7-3fa91c
  {program} deadletters show order-42-7-3fa91c --output json
"""

REDRIVE_HELP = """Run activities again, with the same input.

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

DELETE_HELP = """Delete DeadLetters and the runs of their re-drives.

\b
Examples:
  {program} deadletters delete order-42-7-3fa91c
  {program} deadletters delete --redriven
  {program} deadletters delete --older-than 30d
"""

KIND, PLURAL = "DeadLetter", "deadletters"


ActivityOption = Annotated[
    str | None, typer.Option("--activity", help="Only DeadLetters of this activity", show_default=False)
]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...", help="Names of DeadLetters", show_default=False, autocompletion=names_of("deadletters")
    ),
]


def list_(
    context: typer.Context,
    *,
    activity: ActivityOption = None,
    namespace: NamespaceOption = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List DeadLetters of all namespaces")
    ] = False,
    output: OutputOption = "text",
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """List DeadLetters."""

    async def read() -> list[dict[str, Any]]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await found.list(PLURAL, everywhere=everywhere)

    letters = sorted(_of(asyncio.run(read()), activity), key=_failed_time, reverse=True)
    screen = Screen(color)
    if not for_people(output):
        screen.write_objects(output, letters)
    elif not letters:
        typer.echo("There are no DeadLetters.", err=True)
    else:
        from perdure.view.deadletters import table

        screen.show(table(letters, page_of(context, screen), namespaces=everywhere))


def show(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name of the DeadLetter", show_default=False, autocompletion=names_of("deadletters")
        ),
    ],
    *,
    namespace: NamespaceOption = None,
    output: OutputOption = "text",
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """Show a DeadLetter."""

    async def read() -> dict[str, Any]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await found.read(KIND, PLURAL, name)

    letter, screen = asyncio.run(read()), Screen(color)
    if not for_people(output):
        screen.write_object(output, letter)
    else:
        from perdure.view.deadletters import describe

        screen.show(describe(letter, page_of(context, screen)))


@asking_several
def redrive(
    context: typer.Context,
    how: How,
    *,
    names: Names = None,
    every: Annotated[bool, typer.Option("--all", help="All that have not been re-driven successfully")] = False,
    activity: ActivityOption = None,
) -> None:
    """Re-drive DeadLetters."""
    if bool(names) == every:
        raise CliError("set either NAME or --all")

    async def choose(cluster: Cluster) -> list[Object]:
        chosen = list(dict.fromkeys(names or ()))
        if every:
            letters = _of(await cluster.list(PLURAL), activity)
            from perdure.view.deadletters import redriven

            chosen = [each["metadata"]["name"] for each in letters if redriven(each) not in {"True", "Unknown"}]
        return [{"kind": KIND, "name": name} for name in chosen]

    if not ask_several(context, "redrive", {}, how, choose):
        typer.echo("There is nothing to re-drive.", err=True)


def delete(
    context: typer.Context,
    names: Names = None,
    *,
    done: Annotated[bool, typer.Option("--redriven", help="DeadLetters whose re-drive succeeded")] = False,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", help="DeadLetters that failed longer ago, such as 30d", show_default=False),
    ] = None,
    namespace: NamespaceOption = None,
    cluster: ContextOption = None,
) -> None:
    """Delete DeadLetters."""
    if bool(names) == (done or older_than is not None):
        raise CliError("set NAME, --redriven or --older-than")
    age = _age(older_than)

    async def remove() -> Sequence[str]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            chosen = list(names or ())
            if not names:
                letters = await found.list(PLURAL)
                from perdure.view.deadletters import redriven

                chosen = [
                    each["metadata"]["name"]
                    for each in letters
                    if (not done or redriven(each) == "True")
                    and (age is None or _failed_time(each) < clock.now() - age)
                ]
            for each in chosen:
                await found.delete(KIND, PLURAL, each)
            return chosen

    gone = asyncio.run(remove())
    for name in gone:
        typer.echo(f"{reference(KIND, name)} deleted")
    if not gone:
        typer.echo("There is nothing to delete.", err=True)
        raise typer.Exit(ExitCode.NO)


COMMANDS = {
    "list": (list_, LIST_HELP),
    "show": (show, SHOW_HELP),
    "redrive": (redrive, REDRIVE_HELP),
    "delete": (delete, DELETE_HELP),
}


def _age(text: str | None) -> timedelta | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise CliError(f"--older-than: {error}") from error


def _of(letters: Sequence[dict[str, Any]], activity: str | None) -> list[dict[str, Any]]:
    return [each for each in letters if activity is None or each["spec"].get("activity") == activity]


def _failed_time(letter: dict[str, Any]) -> datetime:
    given = letter["spec"].get("failedTime")
    return datetime.fromisoformat(given) if given else datetime.min.replace(tzinfo=UTC)
