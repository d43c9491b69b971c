"""`search-attributes`: the registered names and types for Temporal clients and workers of a namespace."""

import asyncio
from typing import Annotated, Any

import typer

from perdure.api.search_attributes import PREDEFINED, REGISTRY, SYSTEM, AttributeType, unfit
from perdure.cli.connection import connect
from perdure.cli.options import ColorOption, ContextOption, NamespaceOption, OutputOption, word_of, words_shown
from perdure.cli.terminal import Color, Screen, for_people, page_of, program_of
from perdure.client.errors import CliError, ExitCode

HELP = """Register search attributes for workflows as code.

\b
Examples:
  {program} search-attributes list
  {program} search-attributes create CustomerId --type Keyword
  {program} search-attributes remove CustomerId
"""

LIST_HELP = """List the registered search attributes of a namespace.

\b
Examples:
  {program} search-attributes list
  {program} search-attributes list --output json
"""

CREATE_HELP = """Register search attributes of one type.

Temporal clients and workers of the namespace can use them within 10 seconds.
You cannot change the type of a registered search attribute.

Exit status: 0 registered, 1 one exists with another type (none was
registered), 2 error.

\b
Examples:
  {program} search-attributes create CustomerId --type Keyword
  {program} search-attributes create Amount Discount --type Double
"""

REMOVE_HELP = """Remove search attributes from the registry.

Runs keep their values, but clients cannot set new ones.

Exit status: 0 removed, 1 one is not registered (none was removed), 2 error.

\b
Examples:
  {program} search-attributes remove CustomerId
"""

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of search attributes", show_default=False)]


class _RefusedError(CliError):
    status = ExitCode.NO


def list_(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    output: OutputOption = "text",
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """List search attributes."""

    async def read() -> tuple[str, dict[str, str]]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return found.namespace, _types(await found.config_maps.read(REGISTRY))

    where, types = asyncio.run(read())
    screen = Screen(color)
    if not for_people(output):
        screen.write_data(output, types, sorted(types))
    elif not types:
        typer.echo(f"No search attributes are registered in namespace `{where}`.", err=True)
    else:
        from perdure.view.tables import search_attributes

        screen.show(search_attributes(types, page_of(context, screen)))


def create(
    context: typer.Context,
    names: Names,
    *,
    kind: Annotated[
        AttributeType,
        typer.Option(
            "--type", help="Type of all of them", parser=word_of(AttributeType), metavar=words_shown(AttributeType)
        ),
    ],
    namespace: NamespaceOption = None,
    cluster: ContextOption = None,
) -> None:
    """Register search attributes."""
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
        typer.echo(f"{name} is registered{' already' if before else ''} as {kind.value}")


def remove(
    context: typer.Context,
    names: Names,
    *,
    namespace: NamespaceOption = None,
    cluster: ContextOption = None,
) -> None:
    """Remove search attributes."""

    def drop(types: dict[str, str]) -> dict[str, str]:
        for name in names:
            if name not in types:
                raise _RefusedError(
                    f"the search attribute `{name}` is not registered; `{program_of(context)} search-attributes list` "
                    "shows those that are"
                )
        return {name: kind for name, kind in types.items() if name not in names}

    for name in _change(context, cluster, namespace, drop, names):
        typer.echo(f"{name} removed")


def _change(
    context: typer.Context, cluster: str | None, namespace: str | None, change: Any, names: list[str]
) -> dict[str, str]:
    """Change the registry. Return the previous types of the given attributes, empty for an unregistered one."""

    async def write() -> dict[str, str]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            stored = await found.config_maps.read(REGISTRY)
            before = _types(stored)
            after = change(before)
            if after != before:
                empty = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": REGISTRY}}
                await found.config_maps.store({**(stored or empty), "data": after})
            return {name: before.get(name, "") for name in names}

    return asyncio.run(write())


def _types(stored: dict[str, Any] | None) -> dict[str, str]:
    return dict((stored or {}).get("data") or {})


COMMANDS = {
    "list": (list_, LIST_HELP),
    "create": (create, CREATE_HELP),
    "remove": (remove, REMOVE_HELP),
}
