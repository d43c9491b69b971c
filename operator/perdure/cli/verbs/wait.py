"""`wait` and `result`: wait until a run ends, and show its progress or its output."""

import asyncio
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from perdure.cli.archive import ArchiveRoute, is_archived, reads_archive
from perdure.cli.command import option, verb
from perdure.cli.connection import connect
from perdure.cli.options import (
    check_named,
    color_option,
    namespace_option,
    report_option,
    run_argument,
    seconds_of,
    time_option,
    workflow_id_option,
)
from perdure.cli.progress import Waiter
from perdure.cli.terminal import Color, Output, Screen, TimeFormat, program_of
from perdure.client.cluster import Cluster
from perdure.client.errors import ExitCode, NotFoundError
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.client import progress
    from perdure.view.runs import failure
    from perdure.view.runs import run as run_view

if TYPE_CHECKING:
    from perdure.client.requests import Object
    from perdure.view.runs.run import RunView


@verb()
@run_argument
@workflow_id_option
@namespace_option
@option("--timeout", help="How long to wait, such as 90s or 1h30m; default: no limit")
@option("--ignore-not-found", "ignore", is_flag=True, help="Succeed if the run does not exist or is deleted")
@time_option
@color_option
@reads_archive
def wait(
    context: click.Context,
    archive: ArchiveRoute,
    *,
    name: str | None,
    workflow_id: str | None,
    namespace: str | None,
    timeout: str | None,
    ignore: bool,
    times: TimeFormat,
    color: Color,
) -> None:
    """Wait until a run ends, and show its progress.

    On a terminal, shows the steps live; otherwise prints a line for each change.
    If the API server does not respond, it retries until --timeout. A run that was
    deleted from the cluster, also while you wait, is read from the archive, if the
    installation has one.

    With --ignore-not-found, a run that does not exist, or is deleted while you
    wait, is not an error.

    Exit status: 0 the run completed, 1 it ended in any other way, 2 error (no
    cluster, run not found or deleted), 124 timeout.

    \b
    Examples:
      {program} wait order-42
      {program} wait --workflow-id A-1001
      {program} wait order-42 --timeout 5m && echo shipped
      {program} wait order-42 --ignore-not-found
    """
    check_named(name, workflow_id)
    waiter = Waiter(context, Screen(color), times, archive.cluster, archive)
    try:
        raise Exit(waiter.to_the_end(name, workflow_id, namespace, timeout))
    except NotFoundError as error:
        if not ignore:
            raise
        click.echo(str(error), err=True)


@verb()
@run_argument
@workflow_id_option
@option("--timeout", help="How long to wait, such as 90s or 1h30m; default: no limit")
@namespace_option
@report_option
@reads_archive
def result(
    context: click.Context,
    archive: ArchiveRoute,
    *,
    name: str | None,
    workflow_id: str | None,
    timeout: str | None,
    namespace: str | None,
    output: Output,
) -> None:
    """Wait until a run ends, and print only its output.

    Follows the runs that continue it. If the run does not complete, prints the
    failure on stderr. A run that was deleted from the cluster is read from the
    archive, if the installation has one. To see the progress, use `wait`.

    Exit status: 0 the run completed, 1 it ended in any other way, 2 error (no
    cluster, run not found or deleted), 124 timeout.

    \b
    Examples:
      {program} result order-42
      {program} result --workflow-id A-1001 --timeout 5m
      {program} result order-42 --output json > order-42.json
    """
    check_named(name, workflow_id)
    seconds = None if timeout is None else seconds_of(timeout, "--timeout")

    async def read() -> "RunView":
        async with (
            asyncio.timeout(seconds),
            connect(context=archive.cluster, namespace=namespace, program=program_of(context)) as found,
        ):
            run = await _ended(found, archive, await archive.find(found, name, workflow_id))
            while run.chain.continued_as:
                run = await _ended(found, archive, await archive.find(found, run.chain.continued_as, None))
            return run

    try:
        run = asyncio.run(read())
    except TimeoutError:
        click.echo(f"Error: the run has not ended within {timeout}; it keeps running", err=True)
        raise Exit(ExitCode.TIMEOUT) from None
    if run.phase == "Completed":
        Screen().write_value(output, run.output)
        return

    why = failure.summary(run.failure, run.titles) if run.failure else run.message
    click.echo(f"Error: the run `{run.name}` ended as {run.phase}{why and f': {why}'}", err=True)
    raise Exit(ExitCode.NO)


async def _ended(cluster: Cluster, archive: ArchiveRoute, found: "Object") -> "RunView":
    """Wait until a run has ended; if it has failed, read its history, too, for the names of its steps.

    A run that is deleted meanwhile is read from the archive.

    Raises:
        CliError: The run was deleted or replaced by another one, or cannot be read.
    """
    if not is_archived(found):
        name = found["metadata"]["name"]
        try:
            found = await progress.ended(cluster, name, lambda text: click.echo(text, err=True))
        except NotFoundError as error:
            found = await archive.ended(cluster, found, error)
    run = run_view.read_run(found, now=clock.now())
    return await progress.view_of(cluster, found) if run.failure else run
