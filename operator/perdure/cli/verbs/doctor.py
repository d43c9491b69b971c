"""`doctor`: checks of the installation, and of stuck work."""

import asyncio
from typing import Annotated

import typer

from perdure.cli.connection import connect
from perdure.cli.options import ColorOption, ContextOption, NamespaceOption, ReportOption, SystemNamespaceOption
from perdure.cli.terminal import Color, Screen, page_of, program_of
from perdure.client.errors import ExitCode

HELP = """Check the installation, and find stuck runs.

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


def command(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Check all namespaces, and look for stuck runs in them")
    ] = False,
    system: SystemNamespaceOption = "perdure-system",
    output: ReportOption = "text",
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """Check the installation."""
    from perdure.cli.doctor.checkup import check_all
    from perdure.cli.doctor.findings import CheckResult, Result

    async def check() -> list[CheckResult]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await check_all(found.diagnosis, system=system, everywhere=everywhere)

    findings = asyncio.run(check())
    screen = Screen(color)
    if output == "text":
        from perdure.cli.doctor.report import lines

        screen.show(lines(findings, page_of(context, screen)))
    else:
        screen.write_data(output, [finding.as_json() for finding in findings])
    if any(finding.result is Result.FAILED for finding in findings):
        raise typer.Exit(ExitCode.NO)
