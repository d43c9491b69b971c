"""`version`: the versions of this command and of the installation in the cluster."""

from typing import Annotated

import typer

from perdure import __version__
from perdure.cli.options import ContextOption, ReportOption, SystemNamespaceOption
from perdure.cli.terminal import Screen

HELP = """Show the version of this command, and with --server those of the cluster.

`{program} doctor` checks whether they fit together.

\b
Examples:
  {program} version
  {program} version --server
  {program} version --server --output json
"""


def command(
    context: typer.Context,
    *,
    server: Annotated[
        bool, typer.Option("--server", help="Also show the versions of the operator, the CRDs, and Kubernetes")
    ] = False,
    system: SystemNamespaceOption = "perdure-system",
    output: ReportOption = "text",
    cluster: ContextOption = None,
) -> None:
    """Show versions."""
    versions = {"perdure": __version__}
    if server:
        import asyncio

        from perdure.cli.connection import connect
        from perdure.cli.doctor import installation, operators
        from perdure.cli.terminal import program_of

        async def read() -> dict[str, str]:
            async with connect(context=cluster, namespace=None, program=program_of(context)) as found:
                api = found.diagnosis
                operator = await operators.find(api, system)
                return {
                    "operator": (operator.version if operator else "") or "not found",
                    "crds": ", ".join(await installation.crd_versions(api)) or "not found",
                    "kubernetes": str((await api.read("/version") or {}).get("gitVersion") or "unknown"),
                }

        versions |= asyncio.run(read())
    screen = Screen()
    if output != "text":
        screen.write_data(output, versions)
        return
    for name, version in versions.items():
        screen.write(f"{name} {version}")
