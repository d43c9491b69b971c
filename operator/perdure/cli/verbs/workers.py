"""`deployment`, `task-queue`, and `worker`: SDK workers, their versions, and the task queues that they poll."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from perdure.cli.command import Decimal, argument, group, option
from perdure.cli.options import color_option, output_option, report_option
from perdure.cli.routes import RouteOptions, routed
from perdure.cli.terminal import Color, Output, Screen, page_of
from perdure.client.errors import ForbiddenError, NotFoundError
from perdure.lazy import lazily

with lazily():
    from perdure.view import frontend

if TYPE_CHECKING:
    from perdure.client.cluster import Cluster
    from perdure.client.frontend import FrontendApi
    from perdure.client.requests import Object

_deployment_argument = argument("name", metavar="DEPLOYMENT", help="Name of the worker deployment")
_build_option = option("--build-id", metavar="ID", help="Build ID of the version; leave it out for unversioned workers")
_force_option = option(
    "--allow-no-pollers", is_flag=True, help="Also if no worker of the version polls, or it lacks a task queue"
)
_IDENTITY: Final = "perdure"
_MANAGED: Final = "workerDeployment"
"""In the output: the WorkerDeployment whose workers these are."""


@group()
def deployment() -> None:
    """Show and change which versions of SDK workers get tasks.

    The requests go to the Temporal frontend: through a port-forward (requires
    kubectl), or to --address.

    \b
    Examples:
      {program} deployment list
      {program} deployment describe orders
      {program} deployment set-current orders --build-id 7
      {program} deployment set-ramping orders --build-id 8 --percentage 10
    """


@deployment.command("list")
@output_option
@color_option
@routed
def list_deployments(context: click.Context, route: RouteOptions, *, output: Output, color: Color) -> None:
    """List worker deployments.

    REASON and PODS are those of the WorkerDeployment with the same name, if
    there is one: the operator starts and stops its workers.

    \b
    Examples:
      {program} deployment list
      {program} deployment list --output json
    """

    async def read(api: FrontendApi, cluster: Cluster) -> list[Object]:
        found = await api.each("workerDeployments", "worker-deployments")
        managed = {each["metadata"]["name"]: each for each in await _managed(cluster)}
        missing = managed.keys() - {each["name"] for each in found}
        found = [*found, *({"name": name} for name in sorted(missing))]
        return [each | {_MANAGED: managed[each["name"]]} if each["name"] in managed else each for each in found]

    found = route.call_with_cluster(context, read)
    screen = Screen(color)
    screen.show_all(
        output,
        found,
        lambda: frontend.deployments(found, page_of(context, screen)),
        otherwise="There are no worker deployments: no worker has polled with a deployment version.",
        names=[each["name"] for each in found],
    )


async def _managed(cluster: Cluster, name: str = "") -> list[Object]:
    """The WorkerDeployments, or the one with this name; none if the user may not read them."""
    selectors = {"fieldSelector": f"metadata.name={name}"} if name else {}
    with suppress(ForbiddenError):
        return await cluster.list("workerdeployments", everywhere=False, **selectors)
    return []


@deployment.command("describe")
@_deployment_argument
@report_option
@color_option
@routed
def describe_deployment(
    context: click.Context, route: RouteOptions, *, name: str, output: Output, color: Color
) -> None:
    """Show a worker deployment and its versions.

    If there is a WorkerDeployment with the same name, its conditions, pods, and
    open runs are shown, too.

    \b
    Examples:
      {program} deployment describe orders
    """

    async def read(api: FrontendApi, cluster: Cluster) -> Object:
        managed = await _managed(cluster, name)
        found: Object = {_MANAGED: managed[0]} if managed else {}
        try:
            return {**await api.get("worker-deployments", name), **found}
        except NotFoundError:  # no worker of the WorkerDeployment has polled yet
            if not managed:
                raise
            return {"workerDeploymentInfo": {"name": name}, **found}

    found = route.call_with_cluster(context, read)
    screen = Screen(color)
    if output != "text":
        screen.write_data(output, found)
        return

    screen.show(frontend.deployment(found["workerDeploymentInfo"], found.get(_MANAGED), page_of(context, screen)))


@deployment.command("set-current")
@_deployment_argument
@_build_option
@_force_option
@routed
def set_current(
    context: click.Context, route: RouteOptions, *, name: str, build_id: str | None, allow_no_pollers: bool
) -> None:
    """Set the version that gets new workflows.

    Exit status: 0 set, 1 refused, 2 error, 124 timeout.

    \b
    Examples:
      {program} deployment set-current orders --build-id 7
      {program} deployment set-current orders
    """
    body = _change(build_id, allow_no_pollers)
    route.call(context, lambda api: api.post("worker-deployments", name, "set-current-version", body=body))
    click.echo(f"{build_id or 'unversioned workers'}: current version of {name}")


@deployment.command("set-ramping")
@_deployment_argument
@_build_option
@option("--percentage", metavar="N", type=Decimal(min=0, max=100), required=True, help="Share of new workflows")
@_force_option
@routed
def set_ramping(
    context: click.Context,
    route: RouteOptions,
    *,
    name: str,
    build_id: str | None,
    percentage: float,
    allow_no_pollers: bool,
) -> None:
    """Set the version that gets a share of the new workflows.

    Exit status: 0 set, 1 refused, 2 error, 124 timeout.

    \b
    Examples:
      {program} deployment set-ramping orders --build-id 8 --percentage 10
      {program} deployment set-ramping orders --percentage 0
    """
    body = {**_change(build_id, allow_no_pollers), "percentage": percentage}
    route.call(context, lambda api: api.post("worker-deployments", name, "set-ramping-version", body=body))
    click.echo(f"{build_id or 'unversioned workers'}: ramping version of {name}, {percentage:g} %")


def _change(build_id: str | None, force: bool) -> dict[str, Any]:
    forced = {"allowNoPollers": True, "ignoreMissingTaskQueues": True} if force else {}
    return {"buildId": build_id or "", "identity": _IDENTITY, **forced}


@deployment.command("delete-version")
@_deployment_argument
@option("--build-id", metavar="ID", required=True, help="Build ID of the version")
@option("--skip-drainage", is_flag=True, help="Also if workflows may still run on the version")
@routed
def delete_version(
    context: click.Context, route: RouteOptions, *, name: str, build_id: str, skip_drainage: bool
) -> None:
    """Delete a version that no worker polls and no workflow needs.

    Exit status: 0 deleted, 1 refused, 2 error, 124 timeout.

    \b
    Examples:
      {program} deployment delete-version orders --build-id 6
    """
    query = {"skipDrainage": "true"} if skip_drainage else {}
    path = ("worker-deployment-versions", name, build_id)
    route.call(context, lambda api: api.delete(*path, identity=_IDENTITY, **query))
    click.echo(f"{build_id}: deleted from {name}")


@group()
def task_queue() -> None:
    """Show task queues that SDK workers poll.

    \b
    Examples:
      {program} task-queue describe orders
    """


_KINDS: Final = {"Workflow": "TASK_QUEUE_TYPE_WORKFLOW", "Activity": "TASK_QUEUE_TYPE_ACTIVITY"}


@task_queue.command("describe")
@argument("name", metavar="QUEUE", help="Name of the task queue")
@report_option
@color_option
@routed
def describe_task_queue(
    context: click.Context, route: RouteOptions, *, name: str, output: Output, color: Color
) -> None:
    """Show the backlog, the rates, the limits, and the pollers of a task queue.

    \b
    Examples:
      {program} task-queue describe orders
      {program} task-queue describe orders --output json
    """

    async def read(api: FrontendApi) -> dict[str, Any]:
        wanted = {"reportStats": "true", "reportConfig": "true"}
        return {
            kind: await api.get("task-queues", name, taskQueueType=value, **wanted) for kind, value in _KINDS.items()
        }

    found = route.call(context, read)
    screen = Screen(color)
    if output != "text":
        screen.write_data(output, found)
        return

    screen.show(frontend.task_queue(name, found, page_of(context, screen)))


@group()
def worker() -> None:
    """Show SDK workers.

    \b
    Examples:
      {program} worker list
      {program} worker describe KEY
    """


@worker.command("list")
@option("--query", "-q", metavar="FILTER", default="", help="Only workers that match, such as TaskQueue = 'orders'")
@output_option
@color_option
@routed
def list_workers(context: click.Context, route: RouteOptions, *, query: str, output: Output, color: Color) -> None:
    """List the workers that poll, or have polled in the last minutes.

    \b
    Examples:
      {program} worker list
      {program} worker list --query "TaskQueue = 'orders'"
    """
    wanted = {"query": query} if query else {}
    found = route.call(context, lambda api: api.each("workers", "workers", **wanted))
    screen = Screen(color)
    screen.show_all(
        output,
        found,
        lambda: frontend.workers(found, page_of(context, screen)),
        otherwise=f"No workers {'match' if query else 'have polled recently'}.",
        names=[each.get("workerInstanceKey", "") for each in found],
    )


@worker.command("describe")
@argument("key", metavar="KEY", help="Key of the worker, as `worker list` shows it")
@report_option
@color_option
@routed
def describe_worker(context: click.Context, route: RouteOptions, *, key: str, output: Output, color: Color) -> None:
    """Show what a worker reported with its last heartbeat.

    \b
    Examples:
      {program} worker describe 0f2d6c3e
    """
    found = route.call(context, lambda api: api.get("workers", "describe", key))
    screen = Screen(color)
    if output != "text":
        screen.write_data(output, found)
        return

    screen.show(frontend.worker((found.get("workerInfo") or {}).get("workerHeartbeat") or {}, page_of(context, screen)))
