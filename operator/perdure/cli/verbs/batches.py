"""`batch`: one request to all workflows that match a filter."""

from __future__ import annotations

import uuid
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import click

from perdure.api.policies import ANY_TYPE, ResetPoint
from perdure.cli.command import AnyCase, argument, group, option
from perdure.cli.inputs import json_or_text
from perdure.cli.options import color_option, output_option, report_option
from perdure.cli.routes import RouteOptions, routed
from perdure.cli.terminal import Color, Output, Screen, page_of, program_of
from perdure.lazy import lazily

with lazily():
    from perdure.view import frontend

if TYPE_CHECKING:
    from perdure.client.frontend import FrontendApi

_job_argument = argument("job", metavar="JOB", help="ID of the batch")
_PATH: Final = "batch-operations"
_IDENTITY: Final = "perdure"


class Request(StrEnum):
    """What a batch does to each workflow."""

    SIGNAL = "signal"
    CANCEL = "cancel"
    TERMINATE = "terminate"
    DELETE = "delete"
    RESET = "reset"
    UNPAUSE_ACTIVITIES = "unpause-activities"
    RESET_ACTIVITIES = "reset-activities"


_FIELDS: Final = {
    Request.SIGNAL: "signalOperation",
    Request.CANCEL: "cancellationOperation",
    Request.TERMINATE: "terminationOperation",
    Request.DELETE: "deletionOperation",
    Request.RESET: "resetOperation",
    Request.UNPAUSE_ACTIVITIES: "unpauseActivitiesOperation",
    Request.RESET_ACTIVITIES: "resetActivitiesOperation",
}
_POINTS: Final = {
    ResetPoint.FIRST_WORKFLOW_TASK: "firstWorkflowTask",
    ResetPoint.LAST_WORKFLOW_TASK: "lastWorkflowTask",
}


@group()
def batch() -> None:
    """Send one request to all workflows that match a filter.

    The requests go to the Temporal frontend: through a port-forward (requires
    kubectl), or to --address. Each workflow gets the request exactly once.

    \b
    Examples:
      {program} batch start cancel --query "WorkflowType = 'Order'"
      {program} batch list
      {program} batch describe JOB
      {program} batch stop JOB
    """


@batch.command("start")
@argument("request", metavar="REQUEST", type=AnyCase(Request), help=f"One of {', '.join(Request)}")
@option("--query", "-q", metavar="FILTER", required=True, help="The workflows, by a filter of Temporal clients")
@option("--name", "signal", help="Name of the signal")
@option(
    "--input", "-i", "inputs", metavar="VALUE", multiple=True, help="Argument of the signal; what is not JSON is text"
)
@option("--to", "point", type=AnyCase(ResetPoint), help="Point in the history to reset to")
@option("--activity-type", metavar="TYPE", help="The activities to change; default: all")
@option("--reason", default="", show_default=False, help="The reason, for people")
@option("--job-id", metavar="ID", help="ID of the batch; default: a new one. The same ID never sends a request twice")
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation")
@routed
def start(
    context: click.Context,
    route: RouteOptions,
    *,
    request: Request,
    query: str,
    signal: str | None,
    inputs: tuple[str, ...],
    point: ResetPoint | None,
    activity_type: str | None,
    reason: str,
    job_id: str | None,
    yes: bool,
) -> None:
    """Start a batch, and print its ID.

    Exit status: 0 started, 1 refused or not confirmed, 2 error, 124 timeout.

    \b
    Examples:
      {program} batch start signal -q "Customer = 'C-7'" --name approved
      {program} batch start terminate -q "WorkflowType = 'Order'" --yes
      {program} batch start reset -q "Customer = 'C-7'" --to LastWorkflowTask
      {program} batch start reset-activities -q "Customer = 'C-7'"
    """
    operation = _operation(request, signal, inputs, point, activity_type)
    job = job_id or uuid.uuid4().hex
    body = {"visibilityQuery": query, "reason": reason, _FIELDS[request]: {**operation, "identity": _IDENTITY}}

    async def send(api: FrontendApi) -> bool:
        if not yes:
            found = await api.get("workflow-count", query=query)
            click.confirm(f"{request}: {found.get('count', 0)} workflows match. Continue?", abort=True, err=True)
        await api.post(_PATH, job, body=body)
        return True

    route.call(context, send)
    click.echo(job)
    click.echo(f"`{program_of(context)} batch describe {job}` shows the progress.", err=True)


def _operation(
    request: Request,
    signal: str | None,
    inputs: tuple[str, ...],
    point: ResetPoint | None,
    activity_type: str | None,
) -> dict[str, Any]:
    """The details of a request.

    Raises:
        BadParameter: An option is missing, or does not belong to the request.
    """
    of_activities = request in {Request.UNPAUSE_ACTIVITIES, Request.RESET_ACTIVITIES}
    for is_set, name, fits in (
        (signal is not None or bool(inputs), "--name", request is Request.SIGNAL),
        (point is not None, "--to", request is Request.RESET),
        (activity_type is not None, "--activity-type", of_activities),
    ):
        if is_set and not fits:
            raise click.BadParameter(f"does not belong to `{request}`", param_hint=name)
    if request is Request.SIGNAL:
        if signal is None:
            raise click.BadParameter("must name the signal", param_hint="--name")
        return {"signal": signal, **({"input": [*map(json_or_text, inputs)]} if inputs else {})}
    if request is Request.RESET:
        if point is None:
            raise click.BadParameter(f"must be one of {', '.join(ResetPoint)}", param_hint="--to")
        return {"options": {_POINTS[point]: {}}}
    if of_activities:
        return {"matchAll": True} if activity_type in {None, ANY_TYPE} else {"type": activity_type}
    return {}


@batch.command("list")
@output_option
@color_option
@routed
def list_(context: click.Context, route: RouteOptions, *, output: Output, color: Color) -> None:
    """List batches, newest first.

    A batch is listed until its Operations expire, an hour after they ended.

    \b
    Examples:
      {program} batch list
    """
    found = route.call(context, lambda api: api.each("operationInfo", _PATH))
    screen = Screen(color)
    screen.show_all(
        output,
        found,
        lambda: frontend.batches(found, page_of(context, screen)),
        otherwise="There are no batches.",
        names=[each["jobId"] for each in found],
    )


@batch.command("describe")
@_job_argument
@report_option
@color_option
@routed
def describe(context: click.Context, route: RouteOptions, *, job: str, output: Output, color: Color) -> None:
    """Show the progress of a batch.

    \b
    Examples:
      {program} batch describe JOB
    """
    found = route.call(context, lambda api: api.get(_PATH, job))
    screen = Screen(color)
    if output != "text":
        screen.write_data(output, found)
        return

    screen.show(frontend.batch(found, page_of(context, screen)))


@batch.command("stop")
@_job_argument
@option("--reason", default="", show_default=False, help="The reason, for people")
@routed
def stop(context: click.Context, route: RouteOptions, *, job: str, reason: str) -> None:
    """Send the request to no further workflows. Those that have it keep it.

    Exit status: 0 stopped, 1 it has already ended, 2 error, 124 timeout.

    \b
    Examples:
      {program} batch stop JOB
    """
    body = {"reason": reason, "identity": _IDENTITY}
    route.call(context, lambda api: api.post(_PATH, job, "stop", body=body))
    click.echo(f"{job} stopped")
