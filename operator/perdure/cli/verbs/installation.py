"""`doctor`, `fleet`, and `top`: the installation in the cluster, and the load of its operators."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import click
from click.exceptions import Exit

from perdure.cli.command import Decorator, option, packed, verb
from perdure.cli.connection import connect
from perdure.cli.doctor import CheckResult, Result, check_all, finding_lines
from perdure.cli.load import Load, as_data, operators, read_load, workflows, workflows_table
from perdure.cli.options import (
    SYSTEM_NAMESPACE,
    color_option,
    context_option,
    everywhere_option,
    namespace_option,
    output_option,
    report_option,
    system_namespace_option,
)
from perdure.cli.terminal import Color, Output, Screen, is_for_users, page_of, program_of
from perdure.client.errors import ExitCode
from perdure.kube import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The options of a report about the operators and the runs of some namespaces."""

    namespace: str | None
    everywhere: bool
    system: str
    output: Output
    color: Color
    cluster: str | None


def _reports(everywhere: str) -> Decorator:
    """Let a verb report; `everywhere` is the help of the option for all namespaces."""
    where = (namespace_option, everywhere_option(everywhere), system_namespace_option)
    return packed(ReportOptions, *where, report_option, color_option, context_option)


@verb()
@_reports("Check all namespaces, and look for stuck runs in them")
def doctor(context: click.Context, options: ReportOptions) -> None:
    """Check the installation, and find stuck runs.

    Checks the CRDs, the versions, the operator and its Leases, the clocks, the
    permissions of the operator and your own, the admission policies, and runs,
    pods, Workflows, RetryPolicies, WorkflowLimits, Webhooks, and Schedules that
    cannot continue. Each line has a result; below it is what to do. Checks that you have
    no permission for are `Unknown`.

    Exit status: 0 no check failed, 1 a check failed, 2 error.

    \b
    Examples:
      {program} doctor
      {program} doctor --all-namespaces --output json
      {program} doctor -n shop --system-namespace perdure-system
    """

    async def check() -> list[CheckResult]:
        reached = connect(context=options.cluster, namespace=options.namespace, program=program_of(context))
        async with reached as cluster:
            return await check_all(cluster.diagnosis, system=options.system, everywhere=options.everywhere)

    findings = asyncio.run(check())
    screen = Screen(options.color)
    if options.output == "text":
        screen.show(finding_lines(findings, page_of(context, screen)))
    else:
        screen.write_data(options.output, [finding.as_json() for finding in findings])
    if any(finding.result is Result.FAILED for finding in findings):
        raise Exit(ExitCode.NO)


@verb()
@option("--namespace", "-n", default=SYSTEM_NAMESPACE, help="Namespace of the operators")
@option(
    "--owner-of",
    metavar="NAMESPACE/WORKFLOW_ID",
    show_default=False,
    default="",
    help="Show only the operator that reconciles the runs of this workflow ID",
)
@output_option
@color_option
@context_option
@click.pass_context
def fleet(
    context: click.Context, *, namespace: str, owner_of: str, output: Output, color: Color, cluster: str | None
) -> None:
    """List the operators that share the work.

    Shows the shards of each operator, when it last renewed its Lease, the version
    that it runs, and the operators among which it divides the work. All of them
    must name the same operators, apart from the seconds after a change.

    A single operator does all the work, and has no Lease.

    \b
    Examples:
      {program} fleet
      {program} fleet --namespace perdure-system --output json
      {program} fleet --owner-of shop/order-7
    """
    of, separator, workflow_id = owner_of.partition("/")
    if owner_of and not (of and separator and workflow_id):
        raise click.BadParameter("must have the form NAMESPACE/WORKFLOW_ID", param_hint="--owner-of")

    async def read() -> list[dict[str, Any]]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await found.leases()

    leases = asyncio.run(read())
    from perdure.view.fleet import as_json, members_of, owners_of, table

    screen = Screen(color)
    page = page_of(context, screen)
    members = members_of(leases, page.now)
    if owner_of:
        members = owners_of(members, of, workflow_id)
    if not is_for_users(output):
        screen.write_data(output, as_json(members), (member.name for member in members))
    elif not members:
        click.echo(f"No operators share the work in namespace `{namespace}`.", err=True)
    else:
        screen.show(table(members, page))


@verb()
@_reports("Count the runs of all namespaces")
def top(context: click.Context, options: ReportOptions) -> None:
    """Show open runs by Workflow, and the load of the operators.

    ACTIVITIES are running, RETRYING ones wait for their next attempt. CPU is from
    the metrics server of the cluster. Shards, runs, queue, and timers are from the
    metrics of each operator; this requires the permission to get `pods/proxy` in
    its namespace.

    \b
    Examples:
      {program} top
      {program} top --all-namespaces
      {program} top --all-namespaces --output json
    """

    async def read() -> Load:
        reached = connect(context=options.cluster, namespace=options.namespace, program=program_of(context))
        async with reached as cluster:
            return await read_load(cluster, options.system, everywhere=options.everywhere)

    load = asyncio.run(read())
    screen = Screen(options.color)
    page = page_of(context, screen)
    counted = workflows(load.runs, clock.now())
    if options.output != "text":
        screen.write_data(options.output, as_data(counted, load.operators))
        return
    if counted:
        screen.show(workflows_table(counted, page, namespaces=options.everywhere))
    else:
        click.echo("No run is open.", err=True)
    if load.operators:
        screen.write("")
        screen.show(operators(load.operators, page))
    else:
        click.echo(f"No operator can be read in namespace `{options.system}`.", err=True)
