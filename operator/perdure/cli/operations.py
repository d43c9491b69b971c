"""Requests to runs and Schedules: creates Operations, waits for their results, and prints them.

A request goes to one run or Schedule, to several objects that the command finds, or to all open runs with some labels.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click
from click.exceptions import Exit

from perdure.api.names import schedule_name
from perdure.api.phases import CLOSED, Phase
from perdure.api.reasons import ConditionReason
from perdure.cli.command import Decimal, argument, option, packed
from perdure.cli.completion import names_of
from perdure.cli.connection import connect
from perdure.cli.options import KINDS, Named, check_named, context_option, namespace_option, output_option, seconds_of
from perdure.cli.selection import Choice, selector_option, workflow_option, yes_option
from perdure.cli.starts import wait_for_verdict
from perdure.cli.terminal import Output, Screen, is_for_users, program_of, progress_screen, reference
from perdure.client.cluster import Cluster
from perdure.client.errors import ClientError, ExitCode
from perdure.client.operations import answered, manifest, wait_for_results
from perdure.client.requests import Object

OPEN_PHASES = frozenset(Phase) - CLOSED
"""The phases of open runs."""

DONE = {
    "backfill": "backfilled",
    "cancel": "cancelled",
    "completeActivity": "completed",
    "delete": "deleted",
    "pause": "paused",
    "redrive": "re-driven",
    "reset": "reset",
    "resetActivity": "updated",
    "retry": "retried",
    "signal": "signaled",
    "signalWithStart": "signaled",
    "stop": "stopped",
    "terminate": "terminated",
    "trigger": "triggered",
    "unpause": "unpaused",
    "updateActivityOptions": "updated",
    "updateOptions": "updated",
}
"""The past participle for messages, by the field of the request in the spec of an Operation."""


_STARTING = frozenset({"redrive", "reset", "retry", "signalWithStart", "trigger"})
"""The requests that start a run."""

ANSWER_TIMEOUT = "30s"
"""How long commands wait for the answer to a request by default."""

schedule_argument = argument(
    "name",
    metavar="NAME",
    type=Named("Schedule", schedule_name),
    shell_complete=names_of("schedules"),
    help="Name of the Schedule, or the ID from the Temporal client that created it",
)
reason_option = option(
    "--reason", default="", show_default=False, help="The reason, shown in Events and in the history"
)
step_option = option("--step", help="Only the activity of this step, such as rooms[3]")

_sending_options = (
    namespace_option,
    option("--wait/--no-wait", default=True, help="Wait for the answer, or only send the request"),
    option("--timeout", default=ANSWER_TIMEOUT, help="How long to wait for the answer"),
    output_option,
    context_option,
)
"""The common options of verbs that send requests, after their own options."""
_batch_options = (
    workflow_option,
    selector_option,
    yes_option,
    option("--dry-run", is_flag=True, help="Print the runs, and change nothing"),
    option("--rps", metavar="N", type=Decimal(min=0.01), help="At most N requests per second to several runs"),
)
"""The options of verbs that can send a request to many runs, after their own options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """The options for sending a request."""

    namespace: str | None
    cluster: str | None
    wait: bool
    timeout: str
    output: Output


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions(RequestOptions):
    """The options for sending a request, and its target."""

    name: str | None
    workflow_id: str | None
    kind: str = "WorkflowRun"
    """Kind of the target."""

    @property
    def as_object(self) -> Object:
        """Return the target in the form of an Operation.

        Raises:
            BadParameter: No target or two targets are given.
        """
        check_named(self.name, self.workflow_id)
        which = {"workflowId": self.workflow_id} if self.name is None else {"name": self.name}
        return {"kind": self.kind, **which}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions(RequestOptions):
    """The options for sending a request, and its targets."""

    names: tuple[str, ...]
    workflow_id: str | None
    workflow: str | None
    selector: str | None
    yes: bool
    dry_run: bool
    rps: float | None

    @property
    def choice(self) -> Choice:
        """Return the runs."""
        return Choice(**{key: getattr(self, key) for key in ("names", "workflow_id", "workflow", "selector", "yes")})

    @property
    def one(self) -> TargetOptions:
        """Return the options for sending the request to one run.

        Raises:
            BadParameter: No run or two runs are given.
        """
        if len(self.names) > 1:
            raise click.BadParameter("set one NAME")
        name = self.names[0] if self.names else None
        check_named(name, self.workflow_id)
        shared = {key: getattr(self, key) for key in RequestOptions.__slots__}
        return TargetOptions(name=name, workflow_id=self.workflow_id, **shared)


FindTargets = Callable[[Cluster], Awaitable[Iterable[Object]]]
"""Finds the targets, in the form of Operations."""


request_to_run = packed(TargetOptions, *_sending_options)
"""Let a verb send a request to a run: it takes the context from Click, the `TargetOptions`, and its own options by keyword."""

request_to_runs = packed(BatchOptions, *_batch_options, *_sending_options)
"""Let a verb send a request to one run or to many; like `request_to_run`, with the `BatchOptions`."""

request_to_schedule = packed(TargetOptions, *_sending_options, kind="Schedule", workflow_id=None)
"""Let a verb send a request to a Schedule, like `request_to_run`."""

requests = packed(RequestOptions, *_sending_options)
"""Let a verb send requests to targets that it finds itself; like `request_to_run`, with the `RequestOptions`."""


def send(
    context: click.Context, verb: str, request: Mapping[str, Any], target: TargetOptions, *, follows: bool = False
) -> Object:
    """Create an Operation, wait for its result, and print it.

    Args:
        context: The context from Click.
        verb: The field of the request in the spec, such as `signal`.
        request: The value of that field; None values are omitted.
        target: The options for sending, and the target.
        follows: Whether the command then prints the run that the Operation has started, in place of the Operation.

    Returns:
        The Operation.

    Raises:
        CliError: The request could not be sent.
        Exit: The result is negative or missing.
    """
    whom = target.as_object

    async def find_targets(_: Cluster) -> list[Object]:
        return [whom]

    found: list[Object] = []
    asyncio.run(_send(context, verb, request, target, find_targets, found=found))
    for each in found:
        if follows and _started(each) is not None:
            _show(each, progress_screen(target.output), "text")
        else:
            _show(each, Screen(), target.output)
    _end(context, found, target)
    return found[0]


def send_to_start(
    context: click.Context, verb: str, request: Mapping[str, Any], target: TargetOptions, *, follows: bool = False
) -> str | None:
    """Create an Operation that may start a run, wait for its result, then until the operator accepts the run.

    Args:
        context: The context from Click.
        verb: The field of the request in the spec, such as `trigger`.
        request: The value of that field.
        target: The options for sending, and the target.
        follows: Whether the command then prints the run, in place of the Operation.

    Returns:
        The name of the new run; None if there is none, or if the result was not waited for.

    Raises:
        CliError: The request could not be sent, or the run does not start.
        Exit: The result is negative or missing.
    """
    name = _started(send(context, verb, request, target, follows=follows))
    if name is not None:
        asyncio.run(_accepted(context, name, target))
    return name


def _started(operation: Object) -> str | None:
    """Return the name of the run that an Operation has started; None if there is none."""
    result = _status(operation).get("result") or {}
    return str(result["workflowRun"]) if result.get("workflowRun") and result.get("started", True) else None


async def _accepted(context: click.Context, run: str, options: RequestOptions) -> None:
    async with connect(context=options.cluster, namespace=options.namespace, program=program_of(context)) as cluster:
        await wait_for_verdict(cluster, run)


def send_several(
    context: click.Context,
    verb: str,
    request: Mapping[str, Any],
    options: RequestOptions,
    find_targets: FindTargets,
    *,
    pause: float = 0.0,
) -> int:
    """Create an Operation for each target, wait for all results, and print them.

    If an Operation cannot be created, the ones created before it are also printed.

    Args:
        context: The context from Click.
        verb: The field of the request in the spec, such as `redrive`.
        request: The value of that field; None values are omitted.
        options: The options for sending.
        find_targets: Finds the targets.
        pause: Seconds between two requests.

    Returns:
        The number of requests.

    Raises:
        CliError: A request could not be sent.
        Exit: A result is negative or missing; the status of a rejection takes precedence over that of a missing result.
    """
    found: list[Object] = []
    try:
        asyncio.run(_send(context, verb, request, options, find_targets, found=found, pause=pause))
    except ClientError:
        if found:
            _show_all(found, options.output)
        raise
    _show_all(found, options.output)
    _end(context, found, options)
    return len(found)


async def _send(
    context: click.Context,
    verb: str,
    request: Mapping[str, Any],
    options: RequestOptions,
    find_targets: FindTargets,
    *,
    found: list[Object],
    pause: float = 0.0,
) -> None:
    """Create the Operations and wait for their results; `found` contains the last state of each, even after an error."""
    seconds = seconds_of(options.timeout, "--timeout")
    async with connect(context=options.cluster, namespace=options.namespace, program=program_of(context)) as cluster:
        for target in await find_targets(cluster):
            if found and pause:
                await asyncio.sleep(pause)
            made = await cluster.create("operations", manifest(verb, request, target))
            found.append(made)
        if options.wait:
            await wait_for_results(cluster, found, seconds)
            for each in found:
                if not answered(each) and (why := await _why_unanswered(cluster, each)):
                    click.echo(f"Warning: {why}", err=True)


async def _why_unanswered(cluster: Cluster, operation: Object) -> str:
    """Say why an Operation waits: an older operator cannot read it or its target; empty if that is not known."""
    if why := _newer_state(operation, "Operation"):
        return why
    target = operation["spec"]["target"]
    name, kind = target.get("name") or _status(operation).get("workflowRun"), target["kind"]
    if not name or kind not in KINDS:
        return ""
    try:
        found = await cluster.read(kind, KINDS[kind][0], name)
    except ClientError:
        return ""
    return _newer_state(found, kind)


def _newer_state(obj: Object, kind: str) -> str:
    """What an older operator reports that cannot read an object; empty if there is no report."""
    conditions = _status(obj).get("conditions") or ()
    newer = next((each for each in conditions if each.get("reason") == ConditionReason.NEWER_STATE), None)
    return (
        f"{reference(kind, obj['metadata']['name'])} is {newer['reason']}: {newer.get('message', '')}" if newer else ""
    )


def _end(context: click.Context, found: Iterable[Object], options: RequestOptions) -> None:
    """Exit with the status of the results; does nothing if all have succeeded.

    Raises:
        Exit: A request was rejected, or a result did not arrive in time.
    """
    for each in found:
        doubtful = _condition(each, "SignalNotAwaited")
        if doubtful is not None:
            click.echo(f"Warning: {doubtful.get('message', '')}", err=True)
    failed = [each for each in found if _status(each).get("phase") == "Failed"]
    late = [each["metadata"]["name"] for each in found if options.wait and not answered(each)]
    if late:
        click.echo(
            f"Error: timed out after {options.timeout} waiting for {', '.join(f'Operation `{name}`' for name in late)}; it stays "
            f"pending and runs when possible; check it with `{program_of(context)} operations`, or delete it",
            err=True,
        )
    if failed:
        raise Exit(ExitCode.TROUBLE if all(_condition(each, "TargetNotFound") for each in failed) else ExitCode.NO)
    if late:
        raise Exit(ExitCode.TIMEOUT)


def _condition(operation: Object, reason: str) -> Object | None:
    return next((each for each in _status(operation).get("conditions") or () if each["reason"] == reason), None)


def _show_all(operations: list[Object], output: Output) -> None:
    """Print Operations on several targets."""
    screen = Screen()
    if not is_for_users(output) and output != "name":
        screen.write_objects(output, operations)
        return
    for each in operations:
        _show(each, screen, output)


def _show(operation: Object, screen: Screen, output: Output) -> None:
    """Print the result of an Operation, or the Operation itself in a format for programs; failures go to stderr.

    The name is that of the run that the Operation has started, if there is one: the input of other commands.
    """
    started = _started(operation) if request_of(operation) in _STARTING else None
    if output == "name" and started is not None:
        screen.write(reference("WorkflowRun", started))
        return
    if not is_for_users(output):
        screen.write_object(output, operation)
        return
    status, whom, done = _status(operation), _target(operation), DONE[request_of(operation)]
    if "cancel" in operation["spec"] and operation["spec"]["target"]["kind"] == "Schedule":
        whom += ": backfill"
    answer = next((each for each in status.get("conditions") or () if each["status"] == "True"), None)
    if answer is None:
        screen.write(f"{reference('Operation', operation['metadata']['name'])} created: {whom}")
    elif status["phase"] == "Failed":
        click.echo(f"Error: {whom} not {done}: {answer['reason']}: {answer.get('message', '')}", err=True)
    else:
        later = "not yet " if answer["reason"] == ConditionReason.DEFERRED else ""
        screen.write(f"{whom} {later}{done}: {answer.get('message', '')}")


def request_of(operation: Object) -> str:
    """Return the field of the request in the spec, such as `cancel`."""
    return next(key for key in DONE if key in operation["spec"])


def _target(operation: Object) -> str:
    """Return the target of an Operation, as kubectl prints it; a run without a known name by its workflow ID."""
    target = operation["spec"]["target"]
    name = target.get("name") or _status(operation).get("workflowRun")
    return reference(target["kind"], name) if name else f"workflow ID `{target['workflowId']}`"


def _status(operation: Object) -> Object:
    status: Object = operation.get("status") or {}
    return status


def send_to_runs(context: click.Context, verb: str, request: Mapping[str, Any], options: BatchOptions) -> None:
    """Send a request to the named runs, or to all open runs that match after a confirmation.

    Args:
        context: The context from Click.
        verb: The field of the request in the spec, such as `cancel`.
        request: The value of that field; None values are omitted.
        options: The options for sending, and the targets.

    Raises:
        BadParameter: The options exclude each other.
        CliError: A request could not be sent.
        Exit: A result is negative or missing.
    """
    choice = options.choice
    if not choice.single:
        send_to_choice(
            context, verb, request, options, choice, phases=OPEN_PHASES, dry_run=options.dry_run, rps=options.rps
        )
        return
    if options.rps is not None:
        raise click.BadParameter("requires several runs, by name, --workflow, or --selector", param_hint="--rps")
    if options.dry_run:
        asyncio.run(_show_one(context, verb, options.one))
    else:
        send(context, verb, request, options.one)


def send_to_choice(
    context: click.Context,
    verb: str,
    request: Mapping[str, Any],
    options: RequestOptions,
    choice: Choice,
    *,
    phases: Iterable[Phase],
    dry_run: bool,
    rps: float | None = None,
) -> None:
    """Send a request to several runs: those that are named, or all that match after a confirmation.

    Args:
        context: The context from Click.
        verb: The field of the request in the spec, such as `cancel`.
        request: The value of that field; None values are omitted.
        options: The options for sending.
        choice: The runs.
        phases: The phases of runs that match; a named run can be in any.
        dry_run: Whether to print the runs, and send nothing.
        rps: Maximum requests per second; None for no limit.

    Raises:
        CliError: A request could not be sent.
        Exit: A result is negative or missing.
    """

    async def find_targets(cluster: Cluster) -> list[Object]:
        if choice.matching:
            runs = await choice.matches(cluster, phases)
        else:
            runs = [{"metadata": {"name": name}} for name in dict.fromkeys(choice.names)]
        if not runs:
            click.echo(f"No {'open' if phases is OPEN_PHASES else 'failed'} run matches.", err=True)
        if dry_run:
            _show_dry_run(verb, runs)
            return []
        if choice.matching:
            choice.confirm(verb, runs)
        return [{"kind": "WorkflowRun", "name": run["metadata"]["name"]} for run in runs]

    send_several(context, verb, request, options, find_targets, pause=0.0 if rps is None else 1 / rps)


async def _show_one(context: click.Context, verb: str, target: TargetOptions) -> None:
    async with connect(context=target.cluster, namespace=target.namespace, program=program_of(context)) as cluster:
        _show_dry_run(verb, [await cluster.runs.find(target.name, target.workflow_id)])


def _show_dry_run(verb: str, runs: Iterable[Object]) -> None:
    for run in runs:
        Screen().write(f"{reference('WorkflowRun', run['metadata']['name'])} {DONE[verb]} (dry run)")
