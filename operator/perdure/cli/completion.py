"""Names from the cluster, for the completion of arguments."""

from collections.abc import Callable
from typing import Any

import typer

VARIABLE = "_PERDURE_COMPLETE"
"""Environment variable that a shell sets when it requests completions."""
_SECONDS = 3.0
"""Maximum seconds for the response of the cluster: a shell must not hang."""

Complete = Callable[[typer.Context, str], list[str]]


def names_of(plural: str) -> Complete:
    """Create the completion of an argument that names an object.

    Args:
        plural: Resource of the object, such as `schedules`.

    Returns:
        A function that typer calls with the context and the beginning of the word.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        async def read() -> list[str]:
            import asyncio

            from perdure.cli.connection import connect

            given = ctx.params
            where = connect(context=given.get("cluster"), namespace=given.get("namespace"), program="perdure")
            async with asyncio.timeout(_SECONDS), where as cluster:
                return await cluster.names(plural)

        return [name for name in _quietly(read) if name.startswith(incomplete)]

    return complete


def contexts(incomplete: str) -> list[str]:
    """Return the contexts of the kubeconfig that begin with the word."""
    from perdure.kube.kubeconfig import Overrides, config_files, merge

    try:
        known = merge(config_files(Overrides()))["contexts"]
    except (OSError, ValueError):
        return []
    return [name for name in known if name.startswith(incomplete)]


def _quietly(read: Callable[[], Any]) -> list[str]:
    """Run a request; completion shows nothing if it fails."""
    import asyncio

    from perdure.client.errors import CliError

    try:
        found: list[str] = asyncio.run(read())
    except (CliError, TimeoutError):
        return []
    return found
