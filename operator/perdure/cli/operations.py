"""Requests to runs and Schedules: creates Operations, waits for their results, and prints them.

A request goes to one run or Schedule, to several objects that the command finds, or to all open runs with some labels.
"""

import asyncio
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from perdure.cli.completion import names_of
from perdure.cli.connection import connect
from perdure.cli.options import (
    ContextOption,
    NamespaceOption,
    OpenWorkflowIdOption,
    OutputOption,
    RunName,
    check_named,
    seconds_of,
)
from perdure.cli.selection import SelectorOption, chosen, newest
from perdure.cli.starts import wait_for_verdict
from perdure.cli.terminal import Output, Screen, for_people, program_of, progress_screen, reference
from perdure.client.cluster import Cluster
from perdure.client.errors import CliError, ExitCode
from perdure.client.operations import answered, manifest, wait_for_results
from perdure.client.requests import Object
from perdure.kube import clock

DONE = {
    "backfill": "backfilled",
    "cancel": "cancelled",
    "completeActivity": "completed",
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
}
"""The past participle for messages, by the field of the request in the spec of an Operation."""


def _schedule_name(text: str) -> str:
    from perdure.api.names import schedule_name

    return schedule_name(text)


ScheduleName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the Schedule, or the ID from the Temporal client that created it",
        parser=_schedule_name,
        show_default=False,
        autocompletion=names_of("schedules"),
    ),
]
ReasonOption = Annotated[
    str, typer.Option("--reason", help="The reason, shown in Events and in the history", show_default=False)
]
_Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answer, or only send the request")]
_Timeout = Annotated[str, typer.Option("--timeout", help="How long to wait for the answer")]
StepOption = Annotated[
    str | None, typer.Option("--step", help="Only the activity of this step, such as rooms[3]", show_default=False)
]


ANSWER_TIMEOUT = "30s"
"""How long commands wait for the answer to a request by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """The options for sending a request."""

    namespace: str | None
    cluster: str | None
    wait: bool
    timeout: str
    output: Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry(How):
    """The options for sending a request, and its target."""

    name: str | None
    workflow_id: str | None
    kind: str = "WorkflowRun"
    """Kind of the target."""

    @property
    def target(self) -> Object:
        """Return the target in the form of an Operation.

        Raises:
            BadParameter: No target or two targets are given.
        """
        check_named(self.name, self.workflow_id)
        which = {"workflowId": self.workflow_id} if self.name is None else {"name": self.name}
        return {"kind": self.kind, **which}


Choose = Callable[[Cluster], Awaitable[Iterable[Object]]]
"""Finds the targets, in the form of Operations."""

_SHARED = {
    "namespace": (NamespaceOption, None),
    "wait": (_Wait, True),
    "timeout": (_Timeout, ANSWER_TIMEOUT),
    "output": (OutputOption, "text"),
    "cluster": (ContextOption, None),
}
"""The common options of verbs that send requests, after their own options."""


def asking(verb: Callable[..., None]) -> Callable[..., None]:
    """Create the command of a verb that sends a request to a run, with the options that all such verbs share.

    Args:
        verb: Takes the context from typer, an `Inquiry`, and its own options by keyword.

    Returns:
        The command.
    """
    return asking_with(verb, Inquiry, {})


def asking_with(
    verb: Callable[..., None], inquiry: Callable[..., How], more: Mapping[str, tuple[Any, Any]]
) -> Callable[..., None]:
    """Create the command of a verb that sends requests to runs, with options that some such verbs share, like `asking`.

    Args:
        verb: Takes the context from typer, an inquiry, and its own options by keyword.
        inquiry: Makes the inquiry from the name, the workflow ID, and the shared options.
        more: Annotation and default of further shared options, by their names.

    Returns:
        The command.
    """
    shared = {**more, **_SHARED}

    @functools.wraps(verb)
    def command(context: typer.Context, name: str | None = None, **options: Any) -> None:
        given = {key: options.pop(key) for key in ("workflow_id", *shared)}
        verb(context, inquiry(name=name, **given), **options)

    whom = [parameter("name", RunName, None, first=True), parameter("workflow_id", OpenWorkflowIdOption, None)]
    return with_options(command, verb, whom, shared)


def asking_schedule(verb: Callable[..., None]) -> Callable[..., None]:
    """Create the command of a verb that sends a request to a Schedule, like `asking`."""

    @functools.wraps(verb)
    def command(context: typer.Context, name: str, **options: Any) -> None:
        shared = {key: options.pop(key) for key in _SHARED}
        verb(context, Inquiry(kind="Schedule", name=name, workflow_id=None, **shared), **options)

    return with_options(command, verb, [parameter("name", ScheduleName, first=True)], _SHARED)


def asking_several(verb: Callable[..., None]) -> Callable[..., None]:
    """Create the command of a verb that finds its targets itself, like `asking`.

    Args:
        verb: Takes the context from typer, a `How`, and its own options by keyword.

    Returns:
        The command.
    """

    @functools.wraps(verb)
    def command(context: typer.Context, **options: Any) -> None:
        how = How(**{key: options.pop(key) for key in _SHARED})
        verb(context, how, **options)

    return with_options(command, verb, (), _SHARED)


def with_options(
    command: Callable[..., None],
    verb: Callable[..., None],
    first: Iterable[inspect.Parameter],
    shared: Mapping[str, tuple[Any, Any]],
) -> Callable[..., None]:
    """Set the parameters of a verb for typer: its own and the shared ones.

    Args:
        command: The function that typer calls.
        verb: The function with its own options after the first two parameters.
        first: The parameters that come first.
        shared: Annotation and default of the options that come last, by their names.

    Returns:
        The command.
    """
    own = list(inspect.signature(verb, eval_str=True).parameters.values())[2:]
    last = [parameter(key, kind, default) for key, (kind, default) in shared.items()]
    context = parameter("context", typer.Context, first=True)
    command.__signature__ = inspect.Signature([context, *first, *own, *last])  # type: ignore[attr-defined]
    return command


def parameter(
    name: str, kind: Any, default: Any = inspect.Parameter.empty, *, first: bool = False
) -> inspect.Parameter:
    """Return a parameter for `with_options`; the first ones can be positional."""
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD if first else inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, place, annotation=kind, default=default)


def ask(
    context: typer.Context, verb: str, request: Mapping[str, Any], inquiry: Inquiry, *, follows: bool = False
) -> Object:
    """Create an Operation, wait for its result, and print it.

    Args:
        context: The context from typer.
        verb: The field of the request in the spec, such as `signal`.
        request: The value of that field; None values are omitted.
        inquiry: The options for sending, and the target.
        follows: Whether the command then prints the run that the Operation has started, in place of the Operation.

    Returns:
        The Operation.

    Raises:
        CliError: The request could not be sent.
        Exit: The result is negative or missing.
    """
    target = inquiry.target

    async def choose(_: Cluster) -> list[Object]:
        return [target]

    found: list[Object] = []
    asyncio.run(_ask(context, verb, request, inquiry, choose, found=found))
    for each in found:
        if follows and _started(each) is not None:
            _show(each, progress_screen(inquiry.output), "text")
        else:
            _show(each, Screen(), inquiry.output)
    _end(context, found, inquiry)
    return found[0]


def ask_to_start(
    context: typer.Context, verb: str, request: Mapping[str, Any], inquiry: Inquiry, *, follows: bool = False
) -> str | None:
    """Create an Operation that may start a run, wait for its result, then until the operator accepts the run.

    Args:
        context: The context from typer.
        verb: The field of the request in the spec, such as `trigger`.
        request: The value of that field.
        inquiry: The options for sending, and the target.
        follows: Whether the command then prints the run, in place of the Operation.

    Returns:
        The name of the new run; None if there is none, or if the result was not waited for.

    Raises:
        CliError: The request could not be sent, or the run does not start.
        Exit: The result is negative or missing.
    """
    name = _started(ask(context, verb, request, inquiry, follows=follows))
    if name is not None:
        asyncio.run(_accepted(context, name, inquiry))
    return name


def _started(operation: Object) -> str | None:
    """Return the name of the run that an Operation has started; None if there is none."""
    result = _status(operation).get("result") or {}
    return str(result["workflowRun"]) if result.get("workflowRun") and result.get("started", True) else None


async def _accepted(context: typer.Context, run: str, how: How) -> None:
    async with connect(context=how.cluster, namespace=how.namespace, program=program_of(context)) as cluster:
        await wait_for_verdict(cluster, run)


def ask_several(
    context: typer.Context,
    verb: str,
    request: Mapping[str, Any],
    how: How,
    choose: Choose,
    *,
    pause: float = 0.0,
) -> int:
    """Create an Operation for each target, wait for all results, and print them.

    If an Operation cannot be created, the ones created before it are also printed.

    Args:
        context: The context from typer.
        verb: The field of the request in the spec, such as `redrive`.
        request: The value of that field; None values are omitted.
        how: The options for sending.
        choose: Finds the targets.
        pause: Seconds between two requests.

    Returns:
        The number of requests.

    Raises:
        CliError: A request could not be sent.
        Exit: A result is negative or missing; the status of a rejection takes precedence over that of a missing result.
    """
    found: list[Object] = []
    try:
        asyncio.run(_ask(context, verb, request, how, choose, found=found, pause=pause))
    except CliError:
        if found:
            _show_all(found, how.output)
        raise
    _show_all(found, how.output)
    _end(context, found, how)
    return len(found)


async def _ask(
    context: typer.Context,
    verb: str,
    request: Mapping[str, Any],
    how: How,
    choose: Choose,
    *,
    found: list[Object],
    pause: float = 0.0,
) -> None:
    """Create the Operations and wait for their results; `found` contains the last state of each, even after an error."""
    seconds = seconds_of(how.timeout, "--timeout")
    async with connect(context=how.cluster, namespace=how.namespace, program=program_of(context)) as cluster:
        for target in await choose(cluster):
            if found and pause:
                await asyncio.sleep(pause)
            made = await cluster.create("operations", manifest(verb, request, target))
            found.append(made)
        if how.wait:
            await wait_for_results(cluster, found, seconds)


def _end(context: typer.Context, found: Iterable[Object], how: How) -> None:
    """Exit with the status of the results; does nothing if all have succeeded.

    Raises:
        Exit: A request was rejected, or a result did not arrive in time.
    """
    for each in found:
        doubtful = _condition(each, "SignalNotAwaited")
        if doubtful is not None:
            typer.echo(f"Warning: {doubtful.get('message', '')}", err=True)
    failed = [each for each in found if _status(each).get("phase") == "Failed"]
    late = [each["metadata"]["name"] for each in found if how.wait and not answered(each)]
    if late:
        typer.echo(
            f"Error: timed out after {how.timeout} waiting for {', '.join(f'Operation `{name}`' for name in late)}; it stays "
            f"pending and runs when possible; check it with `{program_of(context)} operations`, or delete it",
            err=True,
        )
    if failed:
        raise typer.Exit(
            ExitCode.TROUBLE if all(_condition(each, "TargetNotFound") for each in failed) else ExitCode.NO
        )
    if late:
        raise typer.Exit(ExitCode.TIMEOUT)


def _condition(operation: Object, reason: str) -> Object | None:
    return next((each for each in _status(operation).get("conditions") or () if each["reason"] == reason), None)


def _show_all(operations: list[Object], output: Output) -> None:
    """Print Operations on several targets."""
    screen = Screen()
    if not for_people(output):
        screen.write_objects(output, operations)
        return
    for each in operations:
        _show(each, screen, output)


def _show(operation: Object, screen: Screen, output: Output) -> None:
    """Print the result of an Operation, or the Operation itself in a format for programs; failures go to stderr."""
    if not for_people(output):
        screen.write_object(output, operation)
        return
    status, whom, verb = _status(operation), _target(operation), request_of(operation)
    answer = next((each for each in status.get("conditions") or () if each["status"] == "True"), None)
    if answer is None:
        screen.write(f"{reference('Operation', operation['metadata']['name'])} created: {whom}")
    elif status["phase"] == "Failed":
        typer.echo(f"Error: {whom} not {DONE[verb]}: {answer['reason']}: {answer.get('message', '')}", err=True)
    else:
        screen.write(f"{whom} {DONE[verb]}: {answer.get('message', '')}")


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


_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the runs, and change nothing")]
_Rps = Annotated[
    float | None,
    typer.Option(
        "--rps", metavar="N", min=0.01, help="At most N requests per second; requires --selector", show_default=False
    ),
]

_OPTIONS = {
    "selector": (SelectorOption, None),
    "yes": (_Yes, False),
    "dry_run": (_DryRun, False),
    "rps": (_Rps, None),
}
"""The options of verbs that can send a request to many runs, after their own options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInquiry(How):
    """The options for sending a request, and its targets."""

    name: str | None
    workflow_id: str | None
    selector: str | None
    yes: bool
    dry_run: bool
    rps: float | None

    @property
    def one(self) -> Inquiry:
        """Return the options for sending the request to one run.

        Raises:
            BadParameter: No run or two runs are given.
        """
        check_named(self.name, self.workflow_id)
        shared = {key: getattr(self, key) for key in How.__slots__}
        return Inquiry(name=self.name, workflow_id=self.workflow_id, **shared)


def asking_runs(verb: Callable[..., None]) -> Callable[..., None]:
    """Create the command of a verb that sends a request to one run or to many, like `asking`.

    Args:
        verb: Takes the context from typer, a `BatchInquiry`, and its own options by keyword.

    Returns:
        The command.
    """
    return asking_with(verb, BatchInquiry, _OPTIONS)


def ask_runs(context: typer.Context, verb: str, request: Mapping[str, Any], given: BatchInquiry) -> None:
    """Send a request to the named run, or to all open runs with the labels after a confirmation.

    Args:
        context: The context from typer.
        verb: The field of the request in the spec, such as `cancel`.
        request: The value of that field; None values are omitted.
        given: The options for sending, and the targets.

    Raises:
        BadParameter: The options exclude each other.
        CliError: A request could not be sent.
        Exit: A result is negative or missing.
    """
    if given.selector is not None:
        if given.name is not None or given.workflow_id is not None:
            raise typer.BadParameter("leave out NAME and --workflow-id", param_hint="--selector")
        _ask_selected(context, verb, request, given)
        return
    if given.rps is not None:
        raise typer.BadParameter("requires --selector", param_hint="--rps")
    one = given.one
    if given.dry_run:
        asyncio.run(_show_one(context, verb, one))
    else:
        ask(context, verb, request, one)


def _ask_selected(context: typer.Context, verb: str, request: Mapping[str, Any], given: BatchInquiry) -> None:
    choice = chosen(selector=given.selector, running=True)

    async def choose(cluster: Cluster) -> list[Object]:
        runs = newest(await choice.read_briefly(cluster, clock.now()), None)
        if given.dry_run:
            _show_dry_run(verb, runs)
            return []
        if runs and not given.yes:
            _confirm(verb, runs)
        return [{"kind": "WorkflowRun", "name": run["metadata"]["name"]} for run in runs]

    pause = 0.0 if given.rps is None else 1 / given.rps
    count = ask_several(context, verb, request, given, choose, pause=pause)
    if not count and not given.dry_run:
        typer.echo("No open run matches.", err=True)


async def _show_one(context: typer.Context, verb: str, inquiry: Inquiry) -> None:
    async with connect(context=inquiry.cluster, namespace=inquiry.namespace, program=program_of(context)) as cluster:
        _show_dry_run(verb, [await cluster.runs.chosen(inquiry.name, inquiry.workflow_id)])


def _show_dry_run(verb: str, runs: list[Object]) -> None:
    for run in runs:
        Screen().write(f"{reference('WorkflowRun', run['metadata']['name'])} {DONE[verb]} (dry run)")


def _confirm(verb: str, runs: list[Object]) -> None:
    """Ask the user whether to continue.

    Raises:
        CliError: The input is not a terminal.
        Abort: The user declines.
    """
    if not sys.stdin.isatty():
        raise CliError(f"{len(runs)} runs match; pass --yes to {verb} them, or --dry-run to list them")
    for run in runs:
        typer.echo(f"  {run['metadata']['name']}", err=True)
    typer.confirm(f"Do you want to {verb} these {len(runs)} runs?", abort=True, err=True)
