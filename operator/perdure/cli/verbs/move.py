"""`move`: take a namespace with its open runs to another cluster."""

import asyncio
import json
import sys
from pathlib import Path

import click

from perdure.cli.command import group, option
from perdure.cli.connection import connect
from perdure.cli.options import context_option, namespace_option
from perdure.cli.terminal import Screen, program_of
from perdure.client.errors import CliError
from perdure.client.requests import Object
from perdure.lazy import lazily

with lazily():
    from perdure.client import moves


@group()
def move() -> None:
    """Move a namespace with its open runs to another cluster.

    \b
    Examples:
      {program} move export --namespace shop > shop.json
      {program} move import --file shop.json --context other
    """


@move.command("export")
@option("--skip", is_flag=True, help="Leave out what cannot be moved, and say why on standard error")
@namespace_option
@context_option
@click.pass_context
def export(context: click.Context, *, skip: bool, namespace: str | None, cluster: str | None) -> None:
    """Write the definitions, Schedules, and open runs of a namespace as JSON.

    Everything must be paused, and no attempt may be running: otherwise both
    clusters would work on the same run. What cannot be moved is listed, and
    nothing is written unless --skip is set. The namespace is not changed.

    \b
    Examples:
      {program} list -n shop --running --output name | xargs {program} pause -n shop
      {program} move export --namespace shop > shop.json
      {program} move export --namespace shop --skip > shop.json
    """

    def report(why: str) -> None:
        click.echo(f"left out: {why}", err=True)

    async def read() -> Object:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await moves.export(found, skip=report if skip else None)

    Screen().write_data("json", asyncio.run(read()))


@move.command("import")
@option("--file", "-f", required=True, help="File from `move export`; - for standard input")
@namespace_option
@context_option
@click.pass_context
def import_(context: click.Context, *, file: str, namespace: str | None, cluster: str | None) -> None:
    """Create in this cluster what `move export` has written.

    Runs continue from the state that they had, with a new run ID. They and the
    Schedules stay paused: delete them in the other cluster before you unpause them
    here. Nothing that exists is changed.

    \b
    Examples:
      {program} move import --file shop.json --context other --namespace shop
      {program} unpause order-42 --context other --namespace shop
    """

    async def create() -> tuple[int, str]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await moves.import_(found, _exported(file), report=click.echo), found.namespace

    count, where = asyncio.run(create())
    click.echo(
        f"{count} runs are in namespace {where} and paused. Delete them in the other cluster, and unpause them here.",
        err=True,
    )


def _exported(file: str) -> Object:
    try:
        found = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CliError(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise CliError(f"{file} is not a list of objects; write it with `perdure move export`")
    return found
