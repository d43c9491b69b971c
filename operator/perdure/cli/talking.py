"""Verbs that call the frontend for a run: their options, and the output of the result."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.completion import names_of
from perdure.cli.connection import connect
from perdure.cli.operations import parameter, with_options
from perdure.cli.options import (
    ContextOption,
    NamespaceOption,
    ReportOption,
    SystemNamespaceOption,
    seconds_of,
)
from perdure.cli.terminal import Output, Screen, program_of

if TYPE_CHECKING:
    from perdure.cli.frontend import ExecutionRef, FrontendApi

_Run = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="Name of the WorkflowRun; leave it out with --workflow-id",
        show_default=False,
        autocompletion=names_of("workflowruns"),
    ),
]
_Name = Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the handler", show_default=False)]
_Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="ARG", help="Arguments; one that is not JSON is text", show_default=False)
]
_WorkflowId = Annotated[
    str | None,
    typer.Option(
        "--workflow-id", "-w", help="Instead of RUN: the open or last run with this workflow ID", show_default=False
    ),
]

AUDIENCE = "perdure.dev/temporal"

AccountOption = Annotated[
    str | None,
    typer.Option(
        "--service-account",
        metavar="NAME",
        help="Act as this ServiceAccount of the namespace; default: the token of the kubeconfig",
        show_default=False,
    ),
]
AudienceOption = Annotated[
    str, typer.Option("--audience", help="Audience of the ServiceAccount's tokens, as configured in the chart")
]
_Service = Annotated[str, typer.Option("--service", metavar="NAME", help="Service of the Temporal frontend")]
_Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="URL",
        help="Address of the HTTP API; default: through a port-forward",
        show_default=False,
    ),
]
_Timeout = Annotated[str, typer.Option("--timeout", help="How long to wait for the answer")]

_OPTIONS = {
    "workflow_id": (_WorkflowId, None),
    "namespace": (NamespaceOption, None),
    "account": (AccountOption, None),
    "address": (_Address, None),
    "audience": (AudienceOption, AUDIENCE),
    "system": (SystemNamespaceOption, "perdure-system"),
    "service": (_Service, "perdure-temporal"),
    "timeout": (_Timeout, "30s"),
    "output": (ReportOption, "text"),
    "cluster": (ContextOption, None),
}

Call = Callable[["FrontendApi", "ExecutionRef"], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """The user's arguments, and the route to the frontend."""

    words: tuple[str, ...]
    """The arguments after the run."""
    run: str | None
    """Name of the WorkflowRun; None if the workflow ID is given."""
    workflow_id: str | None
    namespace: str | None
    account: str | None
    address: str | None
    audience: str
    system: str
    service: str
    timeout: str
    output: Output
    cluster: str | None


def talking(verb: Callable[..., None]) -> Callable[..., None]:
    """Create the command of a verb that calls a handler of a run through the frontend.

    Args:
        verb: Takes the context from typer, a `Talk` whose words are the handler and its arguments, and its own options by
            keyword.

    Returns:
        The command.
    """
    return _command(verb, {"run": (_Run, None), "name": (_Name, None), "arguments": (_Arguments, None)})


def talking_to_run(verb: Callable[..., None]) -> Callable[..., None]:
    """Create the command of a verb that calls the frontend for a run, like `talking`, but without arguments."""
    return _command(verb, {"run": (_Run, None)})


def _command(verb: Callable[..., None], positional: Mapping[str, tuple[Any, Any]]) -> Callable[..., None]:
    @functools.wraps(verb)
    def command(context: typer.Context, run: str | None = None, **options: Any) -> None:
        shared = {key: options.pop(key) for key in _OPTIONS}
        words = [run, options.pop("name", None), *(options.pop("arguments", None) or ())]
        given = [word for word in words if word is not None]
        expected = ["RUN", "NAME"][: len(positional)]
        if shared["workflow_id"] is not None:
            expected.remove("RUN")
        if len(given) < len(expected):
            raise typer.BadParameter(f"requires {' and '.join(expected)}; --workflow-id replaces RUN")
        named = given.pop(0) if "RUN" in expected else None
        verb(context, Talk(words=tuple(given), run=named, **shared), **options)

    first = [parameter(key, kind, default, first=True) for key, (kind, default) in positional.items()]
    return with_options(command, verb, first, _OPTIONS)


def talk(context: typer.Context, given: Talk, call: Call) -> None:
    """Call the frontend for a run, and print the result.

    Args:
        context: The context from typer.
        given: The arguments of the user.
        call: Calls the frontend.

    Raises:
        CliError: The call was rejected, or timed out.
    """
    result = asyncio.run(_call(context, given, call))
    Screen().write_value(given.output, result)


async def _call(context: typer.Context, given: Talk, call: Call) -> Any:
    seconds = seconds_of(given.timeout, "--timeout")
    async with connect(context=given.cluster, namespace=given.namespace, program=program_of(context)) as cluster:
        from perdure.cli.frontend import ExecutionRef, FrontendRoute, reach

        if given.workflow_id is not None:
            run = ExecutionRef(given.workflow_id)
        else:
            found = await cluster.runs.chosen(given.run, None)
            meta = found["metadata"]
            run = ExecutionRef(found["spec"].get("workflowId") or meta["name"], meta["uid"])
        route = FrontendRoute(
            address=given.address,
            account=given.account,
            audience=given.audience,
            system=given.system,
            service=given.service,
            context=given.cluster,
        )
        async with reach(cluster, route, seconds) as api:
            return await call(api, run)
