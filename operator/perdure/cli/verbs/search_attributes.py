"""`search-attributes`: the registered names and types for Temporal clients and workers of a namespace."""

import asyncio
from collections.abc import Iterable
from typing import Any

import click

from perdure.api.search_attributes import PREDEFINED, SYSTEM, AttributeType, unfit
from perdure.cli.command import AnyCase, argument, group, option
from perdure.cli.connection import connect
from perdure.cli.options import color_option, context_option, namespace_option, output_option
from perdure.cli.terminal import Color, Output, Screen, page_of, program_of
from perdure.client.errors import CliError, ExitCode
from perdure.client.search_attributes import change_types, read_types
from perdure.lazy import lazily

with lazily():
    from perdure.view import tables

names_argument = argument("names", metavar="NAME...", nargs=-1, required=True, help="Names of search attributes")


class _RefusedError(CliError):
    status = ExitCode.NO


@group()
def search_attributes() -> None:
    """Register search attributes for workflows as code.

    \b
    Examples:
      {program} search-attributes list
      {program} search-attributes create CustomerId --type Keyword
      {program} search-attributes remove CustomerId
    """


@search_attributes.command("list")
@namespace_option
@output_option
@color_option
@context_option
@click.pass_context
def list_(context: click.Context, *, namespace: str | None, output: Output, color: Color, cluster: str | None) -> None:
    """List the registered search attributes of a namespace.

    \b
    Examples:
      {program} search-attributes list
      {program} search-attributes list --output json
    """

    async def read() -> tuple[str, dict[str, str]]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return found.namespace, await read_types(found)

    where, types = asyncio.run(read())
    screen = Screen(color)
    screen.show_all(
        output,
        types,
        lambda: tables.search_attributes(types, page_of(context, screen)),
        otherwise=f"No search attributes are registered in namespace `{where}`.",
        names=sorted(types),
    )


@search_attributes.command("create")
@names_argument
@option("--type", "kind", type=AnyCase(AttributeType), required=True, help="Type of all of them")
@namespace_option
@context_option
@click.pass_context
def create(
    context: click.Context, *, names: tuple[str, ...], kind: AttributeType, namespace: str | None, cluster: str | None
) -> None:
    """Register search attributes of one type.

    Temporal clients and workers of the namespace can use them within 10 seconds.
    You cannot change the type of a registered search attribute.

    Exit status: 0 registered, 1 one exists with another type (none was
    registered), 2 error.

    \b
    Examples:
      {program} search-attributes create CustomerId --type Keyword
      {program} search-attributes create Amount Discount --type Double
    """
    for name in names:
        if name in SYSTEM or name in PREDEFINED:
            raise CliError(f"`{name}` is built in: every run has it, so you cannot register it")
        if (wrong := unfit({name: ""}).get(name)) is not None:
            raise CliError(f"the search attribute `{name}` {wrong}")

    def add(types: dict[str, str]) -> dict[str, str]:
        for name in names:
            if types.get(name, kind) != kind:
                raise _RefusedError(
                    f"the search attribute `{name}` has the type {types[name]}, which cannot change; "
                    "remove it first, or choose another name"
                )
        return {**types, **dict.fromkeys(names, kind.value)}

    for name, before in _change(context, cluster, namespace, add, names).items():
        click.echo(f"{name} is registered{' already' if before else ''} as {kind.value}")


@search_attributes.command("remove")
@names_argument
@namespace_option
@context_option
@click.pass_context
def remove(context: click.Context, *, names: tuple[str, ...], namespace: str | None, cluster: str | None) -> None:
    """Remove search attributes from the registry.

    Runs keep their values, but clients cannot set new ones.

    Exit status: 0 removed, 1 one is not registered (none was removed), 2 error.

    \b
    Examples:
      {program} search-attributes remove CustomerId
    """

    def drop(types: dict[str, str]) -> dict[str, str]:
        for name in names:
            if name not in types:
                raise _RefusedError(
                    f"the search attribute `{name}` is not registered; `{program_of(context)} search-attributes list` "
                    "shows those that are"
                )
        return {name: kind for name, kind in types.items() if name not in names}

    for name in _change(context, cluster, namespace, drop, names):
        click.echo(f"{name} removed")


def _change(
    context: click.Context, cluster: str | None, namespace: str | None, change: Any, names: Iterable[str]
) -> dict[str, str]:
    """Change the registry. Return the previous types of the given attributes, empty for an unregistered one."""

    async def write() -> dict[str, str]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            before = await change_types(found, change)
            return {name: before.get(name, "") for name in names}

    return asyncio.run(write())
