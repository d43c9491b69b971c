"""`doctor`, `fleet`, and `top`: the installation in the cluster, and the load of its operators."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click
from click.exceptions import Exit

from perdure.api.labels import UPGRADE_RECORD_LABEL
from perdure.api.names import SYSTEM_NAMESPACE
from perdure.api.state_versions import NEWEST, OLDEST, parse_version
from perdure.cli.command import Decorator, option, packed, verb
from perdure.cli.connection import connect
from perdure.cli.doctor import CheckResult, Result, check_all, finding_lines
from perdure.cli.load import Load, as_data, operators, read_load, workflows, workflows_table
from perdure.cli.options import (
    color_option,
    context_option,
    everywhere_option,
    namespace_option,
    output_option,
    report_option,
    seconds_of,
    system_namespace_option,
)
from perdure.cli.terminal import Color, Output, Screen, is_for_users, page_of, program_of
from perdure.client.errors import CliError, ExitCode, ForbiddenError
from perdure.kube import clock
from perdure.lazy import lazily
from perdure.runtime.upgrades import UpgradeRecord

with lazily():
    from perdure.view import fleet as view

if TYPE_CHECKING:
    from datetime import datetime

    from perdure.client.cluster import Cluster

_FINISHED_WITHIN: Final = "60s"
_LOOK_SECONDS: Final = 1.0


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
    pods, Workflows, RetryPolicies, WorkflowLimits, WorkflowDefaults, Webhooks,
    WorkerDeployments, and Schedules that cannot continue. Each line has a result;
    below it is what to do. Checks that you have no permission for are `Unknown`.

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
@option(
    "--finish-upgrade", is_flag=True, help="Store objects in the new form now, so that a rollback is not safe any more"
)
@option("--timeout", default=_FINISHED_WITHIN, help="How long to wait for the end of the upgrade")
@output_option
@color_option
@context_option
@click.pass_context
def fleet(
    context: click.Context,
    *,
    namespace: str,
    owner_of: str,
    finish_upgrade: bool,
    timeout: str,
    output: Output,
    color: Color,
    cluster: str | None,
) -> None:
    """List the operators that share the work.

    Shows the shards of each operator, when it last renewed its Lease, the version
    that it runs, the versions of the stored form that it reads and writes, and the
    operators among which it divides the work. All of them must name the same
    operators, apart from the seconds after a change.

    A single operator does all the work, and has no Lease.

    After an upgrade, the operators store objects in the new form once all of them
    read it and the hold-back of the chart has passed. --finish-upgrade ends the
    hold-back. From then on, operators of the version before leave these objects
    as they are.

    Exit status: 0 done, 1 an older operator is left, 2 error, 124 timeout.

    \b
    Examples:
      {program} fleet
      {program} fleet --namespace perdure-system --output json
      {program} fleet --owner-of shop/order-7
      {program} fleet --finish-upgrade
    """
    of, separator, workflow_id = owner_of.partition("/")
    if owner_of and not (of and separator and workflow_id):
        raise click.BadParameter("must have the form NAMESPACE/WORKFLOW_ID", param_hint="--owner-of")
    if finish_upgrade and owner_of:
        raise click.BadParameter("cannot be combined with --owner-of", param_hint="--finish-upgrade")
    seconds = seconds_of(timeout, "--timeout")

    async def read() -> tuple[list[dict[str, Any]], list[dict[str, Any]], datetime]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            if finish_upgrade:
                await _finish(found, seconds)
            return await found.leases(), await _records(found), found.diagnosis.server_time() or clock.now()

    leases, records, now = asyncio.run(read())

    screen = Screen(color)
    page = page_of(context, screen)
    members = view.members_of(leases, now)
    if owner_of:
        members = view.owners_of(members, of, workflow_id)
    if not is_for_users(output):
        screen.write_data(output, view.as_json(members), (member.name for member in members))
        return
    if members:
        screen.show(view.table(members, page))
    else:
        click.echo(f"No operators share the work in namespace `{namespace}`.", err=True)
    if not owner_of:
        for line in view.upgrade_lines(members, records, now):
            screen.write(line)


async def _records(cluster: Cluster) -> list[dict[str, Any]]:
    """Read the upgrade records in the namespace; none if the user may not read ConfigMaps."""
    try:
        return await cluster.config_maps.labeled(UPGRADE_RECORD_LABEL)
    except ForbiddenError:
        return []


async def _finish(cluster: Cluster, seconds: float) -> None:
    """Allow the operators to write the next state version, and wait until they do.

    Raises:
        CliError: The record is not found or cannot be written, or an older operator is left.
        Exit: An older operator is left, or the operators do not write the version in time.
    """
    records = await _records(cluster)
    if not records:
        raise CliError(
            f"there is no upgrade record that you can read in namespace `{cluster.namespace}`; name that of the operator with -n"
        )
    for stored in records:
        await _finish_record(cluster, stored, seconds)


async def _finish_record(cluster: Cluster, stored: dict[str, Any], seconds: float) -> None:
    """The same for one record. An operator that still counts on an older one drops the request, which is then repeated.

    A single operator has no Lease, so only what it makes of a request tells what it reads. It writes the requested version if it
    is the newest one that it reads. Otherwise it drops the request, and the record has the next version, if there is one.
    """
    name, version, was_requested = stored["metadata"]["name"], OLDEST, False
    found: dict[str, Any] | None = stored
    end = clock.monotonic() + seconds
    while True:
        record = UpgradeRecord.read(stored)
        leases = await cluster.leases()
        members = view.of_record(view.members_of(leases, cluster.diagnosis.server_time() or clock.now()), stored)
        newest, older = view.behind(members)
        if older:
            raise _left(f"these operators do not read state version {newest}: {', '.join(older)}")
        writes = [parse_version(each.writes) for each in members if not each.expired]
        # `next` follows with the operators' next look.
        version = max(version, newest, record.follows or (OLDEST if writes else NEWEST))
        is_dropped = was_requested and record.finish == OLDEST and found is not None
        if writes and min([record.writes, *writes]) >= version:
            return
        if not writes and is_dropped and record.follows is None:
            if record.writes < version:
                raise _left(f"the operator does not read state version {version}")
            return
        if record.finish != version and (version > record.writes or not writes):
            data = {**(stored.get("data") or {}), "finish": str(version)}
            was_requested |= await cluster.config_maps.replace({**stored, "data": data})
        left = end - clock.monotonic()  # also without time, it requests the upgrade and reads the record
        await asyncio.sleep(max(0, min(left, _LOOK_SECONDS)))
        found = await cluster.config_maps.read(name)
        if left <= 0:
            break
        stored = found or stored
    if found is None:
        problem = f"the upgrade record `{name}` was deleted, and no operator has created it again"
    else:
        problem = f"timed out waiting for the operators to write state version {version}"
    click.echo(f"Error: {problem}; see their log", err=True)
    raise Exit(ExitCode.TIMEOUT)


def _left(problem: str) -> Exit:
    """Report that an operator of an earlier version is left."""
    click.echo(f"Error: {problem}; wait until the upgrade has replaced them", err=True)
    return Exit(ExitCode.NO)


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
