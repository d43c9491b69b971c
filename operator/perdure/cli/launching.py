"""Creates a run and waits, if requested, for its acceptance, its logs, or its end. Shared by `start`, `rerun`, and `retry`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from perdure.api.labels import RESERVED_PREFIXES
from perdure.api.policies import WorkflowIdConflictPolicy
from perdure.cli.connection import LOG_STREAMS, connect
from perdure.cli.invocation import program_of
from perdure.cli.options import TimeFormat, seconds_of
from perdure.cli.starting import check_input, check_workflow_id, wait_for_verdict
from perdure.cli.terminal import Output, Screen, for_people, progress_screen, reference
from perdure.cli.waiting import Waiter
from perdure.client.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.client.requests import Object


class DryRun(StrEnum):
    """The mode of a dry run."""

    CLIENT = "client"
    """Print the manifest."""
    SERVER = "server"
    """Also validate the manifest with the API server."""


WaitOption = Annotated[
    bool | None,
    typer.Option(
        "--wait/--no-wait",
        "--watch",
        "-W",
        help="Show the progress until the run ends, or do not wait; default: until it is accepted",
        show_default=False,
    ),
]
LogsOption = Annotated[bool, typer.Option("--logs", "--log", help="Print the logs of the steps until the run ends")]
EndTimeoutOption = Annotated[
    str | None, typer.Option("--timeout", help="With --wait or --logs: how long, such as 5m", show_default=False)
]
DryRunOption = Annotated[
    DryRun | None,
    typer.Option(
        "--dry-run",
        metavar="[client|server]",
        help="Create nothing: print the manifest, or have the API server validate it",
        show_default=False,
    ),
]


class Where(NamedTuple):
    """The destination of the run."""

    namespace: str | None
    cluster: str | None
    """Context of the kubeconfig."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The options for creating a run, and for the return of the command."""

    wait: bool | None
    """Whether to return at the end of the run; False: immediately, None: once the run is accepted."""
    logs: bool
    timeout: str | None
    dry_run: DryRun | None
    parameters: tuple[str, ...] = ()
    """The `key=value` that the input contains."""

    @property
    def follows(self) -> bool:
        """Whether the command returns at the end of the run."""
        return bool(self.wait) or self.logs

    @staticmethod
    def of(
        *,
        wait: bool | None,
        logs: bool,
        timeout: str | None,
        dry_run: DryRun | None,
        parameters: Iterable[str] | None,
    ) -> Launch:
        """Check the options.

        Raises:
            BadParameter: Options exclude each other, or the timeout is not a duration.
        """
        if timeout is not None:
            seconds_of(timeout, "--timeout")
            if not wait and not logs:
                raise typer.BadParameter("requires --wait or --logs", param_hint="--timeout")
        if logs and wait is not None:
            raise typer.BadParameter("leave out --wait, --watch, and --no-wait", param_hint="--logs")
        return Launch(wait=wait, logs=logs, timeout=timeout, dry_run=dry_run, parameters=tuple(parameters or ()))


def labels_of(given: Iterable[str]) -> dict[str, str]:
    """Read labels of the form `KEY=VALUE`.

    Raises:
        BadParameter: A label has another form, or is reserved for the operator.
    """
    labels = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"`{text}` does not have the form KEY=VALUE", param_hint="--label")
        if key.startswith(RESERVED_PREFIXES):
            raise typer.BadParameter(f"`{key}` is reserved for the operator", param_hint="--label")
        if key in labels:
            raise typer.BadParameter(f"`{key}` is given twice", param_hint="--label")
        labels[key] = value
    return labels


def start(context: typer.Context, body: Object, where: Where, output: Output, launch: Launch) -> None:
    """Create a run, print it, and wait as the options require.

    Raises:
        CliError: The run was rejected, or does not start.
        Exit: The run did not complete, or did not complete in time.
    """
    if launch.dry_run is DryRun.CLIENT:
        namespace = {} if where.namespace is None else {"namespace": where.namespace}
        shown = {**body, "metadata": {**body["metadata"], **namespace}}
        Screen().write_object("yaml" if for_people(output) else output, shown)
        return
    made = asyncio.run(_create(context, body, where, output, launch))
    if launch.dry_run is None:
        follow(context, made["metadata"]["name"], Where(made["metadata"]["namespace"], where.cluster), output, launch)


def follow(context: typer.Context, name: str, where: Where, output: Output, launch: Launch) -> None:
    """Follow a new run as the options require. In a format for programs, print the run as it was last read.

    Raises:
        CliError: The run cannot be read.
        Exit: The run has ended, or has not ended in time.
    """
    if not launch.follows:
        return
    if launch.logs:
        status, last = asyncio.run(_logs(context, name, where, output, launch))
    else:
        waiter = Waiter(context, progress_screen(output), TimeFormat.RELATIVE, where.cluster)
        status, last = waiter.to_the_end(name, None, where.namespace, launch.timeout), waiter.run
    if last is not None and not for_people(output):
        Screen().write_object(output, last)
    raise typer.Exit(status)


async def _create(context: typer.Context, body: Object, where: Where, output: Output, launch: Launch) -> Object:
    """Create a run and print it; by default, wait until the operator accepts it."""
    dry = launch.dry_run is not None
    spec = body["spec"]
    async with connect(context=where.cluster, namespace=where.namespace, program=program_of(context)) as reached:
        workflow = spec.get("workflow", {}).get("name")
        if workflow is not None:
            given = await check_input(reached, workflow, spec.get("input"), launch.parameters)
            body = {**body, "spec": spec if given is None else {**spec, "input": given}}
        conflict = spec.get("workflowIdConflictPolicy", WorkflowIdConflictPolicy.FAIL)
        if "workflowId" in spec and conflict == WorkflowIdConflictPolicy.FAIL:
            await check_workflow_id(reached, spec["workflowId"])
        made = await reached.create("workflowruns", body, dry_run=dry)
        name = made["metadata"]["name"]
        if for_people(output) or (launch.follows and not dry):
            created = f"{reference('WorkflowRun', name)} created{' (server dry run)' if dry else ''}"
            progress_screen(output).write(created)
        else:
            Screen().write_object(output, made)
        if launch.wait is None and not launch.logs and not dry:
            await wait_for_verdict(reached, name)
        return made


async def _logs(
    context: typer.Context, name: str, where: Where, output: Output, launch: Launch
) -> tuple[ExitCode, Object | None]:
    """Follow the logs of a run until it ends; return the exit status for its outcome, and the run as it was last read."""
    seconds = None if launch.timeout is None else seconds_of(launch.timeout, "--timeout")
    last: Object | None = None
    try:
        async with (
            asyncio.timeout(seconds),
            connect(
                context=where.cluster,
                namespace=where.namespace,
                program=program_of(context),
                connections=LOG_STREAMS + 4,
            ) as reached,
        ):
            from perdure.cli.log_reader import LogReader

            last = await reached.runs.named(name)
            reader = LogReader.of(reached, last, to_stderr=not for_people(output))
            await reader.follow(required=False)
            last = await reached.runs.named(name)
    except TimeoutError:
        typer.echo(f"Error: the run `{name}` has not ended within {launch.timeout}; it keeps running", err=True)
        return ExitCode.TIMEOUT, last
    phase = (last.get("status") or {}).get("phase")
    if phase == "Completed":
        return ExitCode.YES, last
    typer.echo(f"Error: the run `{name}` ended as {phase}; `{program_of(context)} describe {name}` shows why", err=True)
    return ExitCode.NO, last
