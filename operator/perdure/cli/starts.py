"""Starts runs: checks the request before a run is created, and waits for the operator's decision afterwards.

`start`, `rerun`, and `retry` then follow the run until it is accepted, or until it ends, with its progress or its logs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from perdure.api.json_values import mapping
from perdure.api.labels import RESERVED_PREFIXES, SCHEDULE_TIMES_ANNOTATION
from perdure.api.policies import WorkflowIdConflictPolicy
from perdure.api.reasons import ConditionReason
from perdure.cli.command import Words, option, packed
from perdure.cli.connection import connect
from perdure.cli.options import context_option, namespace_option, output_option, seconds_of
from perdure.cli.progress import Waiter
from perdure.cli.terminal import Output, Screen, TimeFormat, is_for_users, program_of, progress_screen, reference
from perdure.client.connection import LOG_STREAMS
from perdure.client.errors import CliError, ExitCode, NotFoundError, NotStartedError, UnreachableError
from perdure.client.progress import VERDICT_SECONDS, verdict
from perdure.lazy import lazily

with lazily():
    import pydantic

    from perdure.api.kinds import workflow as workflow_kind
    from perdure.api.kinds import workflowrun
    from perdure.client import logs as log_reader
    from perdure.language import checks, compiler
    from perdure.language import program as programs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object


_WAITS = frozenset(
    {
        ConditionReason.INVALID_WORKFLOW,
        ConditionReason.LIMIT_NOT_FOUND,
        ConditionReason.LIMIT_REACHED,
        ConditionReason.RETRY_POLICY_NOT_FOUND,
        ConditionReason.WORKFLOW_ID_IN_USE,
        ConditionReason.WORKFLOW_NOT_FOUND,
        ConditionReason.NO_WORKER,
    }
)
"""The conditions that a new run may wait for."""


async def check_input(
    cluster: Cluster,
    workflow: str,
    value: Any,
    parameters: Iterable[str] = (),
    *,
    may_wait: str | None = None,
    scheduled: bool = False,
) -> Any:
    """Validate the input of a new run; warn of expressions in it, and of those in its Workflow that require a Schedule.

    Args:
        cluster: The cluster of the new run.
        workflow: Name of the Workflow of the run.
        value: The input; None for no input.
        parameters: The `key=value` that the input contains. Their values stay texts if the Workflow declares texts.
        may_wait: The option that lets the run wait for a missing Workflow; empty if it may wait, None if it never may.
        scheduled: Whether the run has the values of a Schedule.

    Returns:
        The input.

    Raises:
        NotStartedError: The input does not match the schema of the Workflow, or the Workflow does not exist.
    """
    if "${" in str(value):  # the checks take long to import
        for warning in await asyncio.to_thread(_expression_warnings, workflow, value):
            click.echo(f"Warning: {warning}", err=True)
    where, _, name = workflow.rpartition("/")
    home = cluster.within(where) if where else cluster
    try:
        found = await home.read("Workflow", "workflows", name)
    except NotFoundError:
        problem = f"there is no Workflow `{name}` in namespace `{home.namespace}`"
        if may_wait != "":
            advice = f"create it first, or pass {may_wait}" if may_wait else "create it first"
            raise NotStartedError(f"{problem}; nothing was created: {advice}") from None
        click.echo(f"Warning: {problem} yet; its runs wait until it exists", err=True)
        return value
    except CliError:
        return value  # the user has no permission
    value = _with_texts(found.get("spec"), value, parameters)
    findings, doubts = await asyncio.to_thread(_findings, found.get("spec"), value)
    for doubt in () if scheduled else doubts:
        click.echo(f"Warning: Workflow `{workflow}`: {doubt}", err=True)
    if findings:
        problem = "; ".join(findings)
        raise NotStartedError(f"the input is not valid for Workflow `{workflow}`: {problem}; nothing was created")
    return value


def _expression_warnings(workflow: str, value: Any) -> list[str]:
    """Return the warnings about expressions in an input, which is used unchanged."""
    spec = workflowrun.WorkflowRunSpec.parse({"workflow": {"name": workflow}, "input": value})
    return [str(finding) for finding in checks.unevaluated(spec)]


def _with_texts(definition: Any, value: Any, parameters: Iterable[str]) -> Any:
    """Return the input with texts for the parameters that are texts in the schema or the default, such as `1.10`."""
    declared = mapping(mapping(definition).get("input"))
    default, properties = mapping(declared.get("default")), mapping(mapping(declared.get("schema")).get("properties"))
    texts = {}
    for parameter in parameters:
        key, _, text = parameter.partition("=")
        kinds = mapping(properties.get(key)).get("type")
        is_nullable = isinstance(kinds, list) and set(kinds) == {"string", "null"}
        is_text = kinds == "string" or isinstance(default.get(key), str) or (is_nullable and value[key] is not None)
        if is_text and not isinstance(value[key], str):
            texts[key] = text
    return {**value, **texts} if texts else value


def _findings(definition: Any, value: Any) -> tuple[list[str], list[str]]:
    """Return the errors of an input, and what fails in a run without a Schedule.

    Both are empty if the definition does not compile, because the operator reports that.
    """
    try:
        program = compiler.compile_program(workflow_kind.WorkflowSpec.parse(definition))
    except (pydantic.ValidationError, programs.InvalidWorkflowError):
        return [], []
    doubts = checks.reads_schedule(program) if "schedule" in str(definition) else ()  # the checks take long to import
    errors = program.check_input(programs.with_defaults(program, value))
    return list(map(str, errors)), list(map(str, doubts))


async def check_workflow_id(cluster: Cluster, workflow_id: str) -> None:
    """Check that no open run has a workflow ID.

    Raises:
        NotStartedError: An open run has the workflow ID.
    """
    name = await cluster.runs.open_run(workflow_id)
    if name is not None:
        raise NotStartedError(
            f"the open run `{name}` has workflow ID `{workflow_id}`; choose another one, or set --id-conflict-policy; "
            "nothing was created"
        )


async def wait_for_verdict(cluster: Cluster, name: str, seconds: float = VERDICT_SECONDS) -> None:
    """Wait until the operator has decided whether a run starts; warn with the reason if it waits.

    Args:
        cluster: The cluster of the run.
        name: The name of the run.
        seconds: Maximum wait.

    Raises:
        NotStartedError: The run does not start.
        Exit: The operator does not decide in time.
    """
    condition = await verdict(cluster, name, seconds)
    if condition is None:
        click.echo(
            f"Error: the operator has not processed the run `{name}` within {seconds:.0f}s; the run is kept, and "
            "starts when an operator runs",
            err=True,
        )
        raise Exit(ExitCode.TIMEOUT)
    if condition["reason"] in _WAITS:
        click.echo(f"Warning: the run `{name}` waits: {condition.get('message') or condition['reason']}", err=True)


class DryRun(StrEnum):
    """The mode of a dry run."""

    CLIENT = "client"
    """Print the manifest."""
    SERVER = "server"
    """Also validate the manifest with the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The options for creating a run, and for the return of the command."""

    namespace: str | None
    wait: bool | None
    """Whether to return at the end of the run; False: immediately, None: once the run is accepted."""
    logs: bool
    timeout: str | None
    output: Output
    cluster: str | None
    """Context of the kubeconfig."""
    dry_run: DryRun | None = None
    parameters: tuple[str, ...] = ()
    """The `key=value` that the input contains."""
    wait_for_workflow: bool = False
    """Whether the run may wait for a Workflow that does not exist."""

    @property
    def follows(self) -> bool:
        """Whether the command returns at the end of the run."""
        return bool(self.wait) or self.logs

    def check(self) -> None:
        """Check the options.

        Raises:
            BadParameter: Options exclude each other, or the timeout is not a duration.
        """
        if self.timeout is not None:
            seconds_of(self.timeout, "--timeout")
            if not self.follows:
                raise click.BadParameter("requires --wait or --logs", param_hint="--timeout")
        if self.logs and self.wait is not None:
            raise click.BadParameter("leave out --wait, --watch, and --no-wait", param_hint="--logs")


_following_options = (
    namespace_option,
    option(
        "--wait/--no-wait",
        "--watch",
        "-W",
        default=None,
        help="Show the progress until the run ends, or do not wait; default: until it is accepted",
    ),
    option("--logs", "--log", is_flag=True, help="Print the logs of the steps until the run ends"),
    option("--timeout", help="With --wait or --logs: how long, such as 5m"),
)
_WAIT_FOR_WORKFLOW = "--wait-for-workflow"
_dry_run_option = option(
    "--dry-run",
    type=Words(DryRun),
    is_flag=False,
    flag_value=DryRun.CLIENT.value,
    help="Create nothing: print the manifest (client, the default), or have the API server validate it (server)",
)
_workflow_option = option(
    _WAIT_FOR_WORKFLOW, is_flag=True, help="If the Workflow does not exist, let the run wait for it"
)

starts_run = packed(Launch, *_following_options, _workflow_option, _dry_run_option, output_option, context_option)
"""Let a verb start a run: it takes the context from Click, the `Launch`, and its own options by keyword."""

restarts_run = packed(Launch, *_following_options, output_option, context_option)
"""Let a verb have a run started by a request; like `starts_run`, without a dry run."""


def labels_of(texts: Iterable[str]) -> dict[str, str]:
    """Read labels of the form `KEY=VALUE`.

    Raises:
        BadParameter: A label has another form, or is reserved for the operator.
    """
    labels = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"`{text}` does not have the form KEY=VALUE", param_hint="--label")
        if key.startswith(RESERVED_PREFIXES):
            raise click.BadParameter(f"`{key}` is reserved for the operator", param_hint="--label")
        if key in labels:
            raise click.BadParameter(f"`{key}` is given twice", param_hint="--label")
        labels[key] = value
    return labels


def start_run(context: click.Context, body: Object, launch: Launch) -> None:
    """Create a run, print it, and wait as the options require.

    Raises:
        CliError: The run was rejected, or does not start.
        Exit: The run did not complete, or did not complete in time.
    """
    if launch.dry_run is DryRun.CLIENT:
        namespace = {} if launch.namespace is None else {"namespace": launch.namespace}
        shown = {**body, "metadata": {**body["metadata"], **namespace}}
        Screen().write_object("yaml" if is_for_users(launch.output) else launch.output, shown)
        return
    made = asyncio.run(_create(context, body, launch))
    if launch.dry_run is None:
        follow(context, made["metadata"]["name"], replace(launch, namespace=made["metadata"]["namespace"]))


def start_runs(context: click.Context, bodies: Iterable[Object], launch: Launch) -> None:
    """Create several runs, print them, and wait until each is accepted. One that is not started does not stop the others.

    Raises:
        CliError: The cluster does not respond.
        Exit: A run was rejected, or does not start.
    """
    made: list[Object] = []
    statuses = []
    if launch.dry_run is DryRun.CLIENT:
        Screen().write_objects("yaml" if is_for_users(launch.output) else launch.output, [*bodies])
        return

    async def create_all() -> None:
        async with connect(context=launch.cluster, namespace=launch.namespace, program=program_of(context)) as reached:
            for body in bodies:
                try:
                    await _create_in(reached, body, launch, made)
                except Exit as exit_:  # reported already
                    statuses.append(exit_.exit_code)
                except UnreachableError:
                    raise
                except CliError as error:
                    click.echo(f"Error: {error}", err=True)
                    statuses.append(ExitCode.NO)

    asyncio.run(create_all())
    if not is_for_users(launch.output):
        Screen().write_objects(launch.output, made)
    elif not made and not statuses:
        click.echo("No failed run matches.", err=True)
    if statuses:
        raise Exit(ExitCode.NO if ExitCode.NO in statuses else statuses[0])


def follow(context: click.Context, name: str, launch: Launch) -> None:
    """Follow a new run as the options require. In a format for programs, print the run as it was last read.

    Raises:
        CliError: The run cannot be read.
        Exit: The run has ended, or has not ended in time.
    """
    if not launch.follows:
        return
    if launch.logs:
        status, last = asyncio.run(_logs(context, name, launch))
    else:
        waiter = Waiter(context, progress_screen(launch.output), TimeFormat.RELATIVE, launch.cluster)
        status, last = waiter.to_the_end(name, None, launch.namespace, launch.timeout), waiter.run
    if last is not None and not is_for_users(launch.output):
        Screen().write_object(launch.output, last)
    raise Exit(status)


async def _create(context: click.Context, body: Object, launch: Launch) -> Object:
    """Create a run and print it; by default, wait until the operator accepts it."""
    made: list[Object] = []
    async with connect(context=launch.cluster, namespace=launch.namespace, program=program_of(context)) as reached:
        await _create_in(reached, body, launch, made, single=True)
    return made[0]


async def _create_in(
    reached: Cluster, body: Object, launch: Launch, made: list[Object], *, single: bool = False
) -> None:
    """Create a run, add it to `made`, and wait as the options require. In a format for programs, print a single one."""
    dry, output = launch.dry_run is not None, launch.output
    spec = body["spec"]
    workflow = spec.get("workflow", {}).get("name")
    if workflow is not None:
        may_wait = "" if launch.wait_for_workflow else _WAIT_FOR_WORKFLOW
        scheduled = SCHEDULE_TIMES_ANNOTATION in (body["metadata"].get("annotations") or {})
        checked = await check_input(
            reached, workflow, spec.get("input"), launch.parameters, may_wait=may_wait, scheduled=scheduled
        )
        body = {**body, "spec": spec if checked is None else {**spec, "input": checked}}
    conflict = spec.get("workflowIdConflictPolicy", WorkflowIdConflictPolicy.FAIL)
    if "workflowId" in spec and conflict == WorkflowIdConflictPolicy.FAIL:
        await check_workflow_id(reached, spec["workflowId"])
    run = await reached.create("workflowruns", body, dry_run=dry)
    made.append(run)
    name = run["metadata"]["name"]
    if is_for_users(output) or (launch.follows and not dry):
        created = f"{reference('WorkflowRun', name)} created{' (server dry run)' if dry else ''}"
        progress_screen(output).write(created)
    elif single:
        Screen().write_object(output, run)
    if launch.wait is None and not launch.logs and not dry:
        await wait_for_verdict(reached, name)


async def _logs(context: click.Context, name: str, launch: Launch) -> tuple[ExitCode, Object | None]:
    """Follow the logs of a run until it ends; return the exit status for its outcome, and the run as it was last read."""
    seconds = None if launch.timeout is None else seconds_of(launch.timeout, "--timeout")
    last: Object | None = None
    try:
        async with (
            asyncio.timeout(seconds),
            connect(
                context=launch.cluster,
                namespace=launch.namespace,
                program=program_of(context),
                connections=LOG_STREAMS + 4,
            ) as reached,
        ):
            last = await reached.runs.get(name)
            to_stderr = not is_for_users(launch.output)
            reader = log_reader.LogReader(
                cluster=reached,
                run=last,
                write=lambda log, text: click.echo(f"{log.title()}: {text}", err=to_stderr),
                report=lambda text: click.echo(text, err=True),
            )
            await reader.follow(required=False)
            last = await reached.runs.get(name)
    except TimeoutError:
        click.echo(f"Error: the run `{name}` has not ended within {launch.timeout}; it keeps running", err=True)
        return ExitCode.TIMEOUT, last
    phase = (last.get("status") or {}).get("phase")
    if phase == "Completed":
        return ExitCode.YES, last
    click.echo(f"Error: the run `{name}` ended as {phase}; `{program_of(context)} describe {name}` shows why", err=True)
    return ExitCode.NO, last
