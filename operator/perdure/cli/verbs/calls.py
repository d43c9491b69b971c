"""`query`, `update`, and `stack`: calls of a run through the Temporal frontend."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.command import argument, option, stacked, verb
from perdure.cli.completion import names_of
from perdure.cli.connection import connect
from perdure.cli.inputs import json_or_text
from perdure.cli.options import Named, context_option, namespace_option, report_option
from perdure.cli.routes import RouteOptions, address_options
from perdure.cli.terminal import Output, Screen, program_of
from perdure.client.frontend import ExecutionRef

if TYPE_CHECKING:
    from perdure.client.frontend import FrontendApi

_run_argument = argument(
    "run",
    metavar="RUN",
    type=Named("WorkflowRun"),
    required=False,
    shell_complete=names_of("workflowruns"),
    help="Name of the WorkflowRun; leave it out with --workflow-id",
)
_handler_arguments = stacked(
    (
        argument("name", metavar="NAME", required=False, help="Name of the handler"),
        argument(
            "arguments", metavar="[ARG]...", nargs=-1, required=False, help="Arguments; one that is not JSON is text"
        ),
    )
)
_route_options = stacked(
    (
        option("--workflow-id", "-w", help="Instead of RUN: the open or last run with this workflow ID"),
        namespace_option,
        address_options,
        report_option,
        context_option,
    )
)

Call = Callable[["FrontendApi", "ExecutionRef"], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """The user's arguments, and the route to the frontend."""

    words: tuple[str, ...]
    """The arguments after the run."""
    run: str | None
    """Name of the WorkflowRun; None if the workflow ID is given."""
    workflow_id: str | None
    output: Output
    route: RouteOptions


def _call_of_run(*positional: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a verb call a run through the frontend.

    The verb takes the context from Click, the `CallOptions`, and its own options by keyword.

    Args:
        positional: The required arguments. Those after the run are the words of the options.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        def command(context: click.Context, /, run: str | None, **options: Any) -> None:
            words = [run, options.pop("name", None), *options.pop("arguments", ())]
            passed, expected = [word for word in words if word is not None], list(positional)
            if options["workflow_id"] is not None:
                expected.remove("RUN")
            if len(passed) < len(expected):
                raise click.BadParameter(f"requires {' and '.join(expected)}; --workflow-id replaces RUN")
            named = passed.pop(0) if "RUN" in expected else None
            route = RouteOptions(**{each.name: options.pop(each.name) for each in fields(RouteOptions)})
            called = {key: options.pop(key) for key in ("workflow_id", "output")}
            verb(context, CallOptions(words=tuple(passed), run=named, route=route, **called), **options)

        return _route_options(click.pass_context(functools.update_wrapper(command, verb)))

    return decorate


@verb()
@_run_argument
@_handler_arguments
@_call_of_run("RUN", "NAME")
def query(context: click.Context, options: CallOptions) -> None:
    """Query a run.

    Workflows as code answer with their query handlers, if a worker is running,
    and also after they have closed. Runs of Workflows in YAML answer `steps`.
    Arguments that are not JSON are text.

    The query goes to the Temporal frontend: through a port-forward (requires
    kubectl), or to --address. It authenticates with the token of the kubeconfig,
    or as --service-account.

    Exit status: 0 answered, 1 refused, 2 error, 124 timeout.

    \b
    Examples:
      {program} query order-42 status
      {program} query order-42 steps --output yaml
      {program} query -w order-42 items 2 --service-account me
    """
    name, *arguments = options.words
    _answer(context, options, lambda api, run: api.query(run, name, [*map(json_or_text, arguments)]))


@verb()
@_run_argument
@_handler_arguments
@option("--update-id", metavar="ID", help="Send the update with this ID at most once; default: a new ID")
@_call_of_run("RUN", "NAME")
def update(context: click.Context, options: CallOptions, *, update_id: str | None) -> None:
    """Update a run of a workflow as code, and print the result.

    The workflow validates the update, and may refuse it. Arguments that are not
    JSON are text. For runs of Workflows in YAML, use `{program} signal`.

    The update goes to the Temporal frontend: through a port-forward (requires
    kubectl), or to --address. It authenticates with the token of the kubeconfig,
    or as --service-account.

    Exit status: 0 done, 1 refused or failed, 2 error, 124 timeout.

    \b
    Examples:
      {program} update order-42 set_amount 7
      {program} update -w order-42 approve true --service-account me
      {program} update order-42 ship --update-id ship-1 --timeout 5m
    """
    name, *arguments = options.words
    values = [*map(json_or_text, arguments)]
    _answer(context, options, lambda api, run: api.update(run, name, values, update_id))


@verb()
@_run_argument
@_call_of_run("RUN")
def stack(context: click.Context, options: CallOptions) -> None:
    """Show where a run is now.

    For a workflow as code, these are the call stacks of its coroutines or threads,
    from one of its workers. For a Workflow in YAML, these are the open steps, with
    their attempts, pods, and what they wait for.

    The request goes to the Temporal frontend: through a port-forward (requires
    kubectl), or to --address. It authenticates with the token of the kubeconfig,
    or as --service-account.

    Exit status: 0 answered, 1 refused, 2 error, 124 timeout.

    \b
    Examples:
      {program} stack order-42
      {program} stack -w order-42 --service-account me
    """
    _answer(context, options, lambda api, run: api.query(run, "__stack_trace"))


def _answer(context: click.Context, options: CallOptions, call: Call) -> None:
    """Call the frontend for a run, and print the result.

    Args:
        context: The context from Click.
        options: The arguments of the user.
        call: Calls the frontend.

    Raises:
        CliError: The call was rejected, or timed out.
    """
    result = asyncio.run(_call(context, options, call))
    Screen().write_value(options.output, result)


async def _call(context: click.Context, options: CallOptions, call: Call) -> Any:
    route = options.route
    async with connect(context=route.cluster, namespace=route.namespace, program=program_of(context)) as cluster:
        if options.workflow_id is not None:
            run = ExecutionRef(options.workflow_id)
        else:
            found = await cluster.runs.find(options.run, None)
            meta = found["metadata"]
            run = ExecutionRef(found["spec"].get("workflowId") or meta["name"], meta["uid"])
        async with route.reach(cluster) as api:
            return await call(api, run)
