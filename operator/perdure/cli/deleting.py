"""Delete runs, and wait until they no longer exist."""

import asyncio
import time
from collections.abc import Iterable

import typer

from perdure.cli.terminal import Screen, reference
from perdure.client.cluster import Cluster
from perdure.client.errors import ExitCode, GoneError, UnreachableError
from perdure.client.requests import Object

_PAUSE = 0.25
"""Seconds between two reads."""


async def delete(cluster: Cluster, runs: Iterable[Object], *, wait_seconds: float | None) -> None:
    """Delete runs with their dependents, and print their names.

    Args:
        cluster: The cluster; the runs are in its namespace.
        runs: The runs.
        wait_seconds: Maximum wait until they no longer exist, in seconds; None to return immediately.

    Raises:
        CliError: A run must not be deleted.
        Exit: A run still exists after that time.
    """
    remaining, screen = {}, Screen()
    for run in runs:
        meta = run["metadata"]
        await cluster.delete("WorkflowRun", "workflowruns", meta["name"], uid=meta["uid"])
        screen.write(f"{reference('WorkflowRun', meta['name'])} deleted")
        remaining[meta["name"]] = meta["uid"]
    if wait_seconds is None:
        return
    deadline = time.monotonic() + wait_seconds
    while remaining := {name: uid for name, uid in remaining.items() if await _exists(cluster, name, uid)}:
        if time.monotonic() > deadline:
            names = ", ".join(f"`{name}`" for name in remaining)
            typer.echo(
                f"Error: these runs still exist after {wait_seconds:g}s: {names}; they are marked for deletion, and the operator "
                "deletes their pods first",
                err=True,
            )
            raise typer.Exit(ExitCode.TIMEOUT)
        await asyncio.sleep(_PAUSE)


async def _exists(cluster: Cluster, name: str, uid: str) -> bool:
    try:
        found = await cluster.runs.named(name)
    except GoneError:
        return False
    except UnreachableError:
        return True
    return str(found["metadata"]["uid"]) == uid
