"""`deploy`: the worker and the activities of flows in Python."""

from __future__ import annotations

import asyncio
import subprocess
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perdure.api.manifests import InvalidManifestError, all_from_yaml
from perdure.api.yaml_text import dump_blocks
from perdure.cli.command import argument, option, verb
from perdure.cli.connection import connect
from perdure.cli.flags import kubectl_arguments
from perdure.cli.options import context_option, namespace_option, seconds_of
from perdure.cli.terminal import program_of
from perdure.client import rollouts
from perdure.client.errors import CliError
from perdure.flow.definitions import environments_of
from perdure.flow.manifests import Placement, manifests_of
from perdure.flow.modules import load
from perdure.flow.workspaces import workspaces_of

if TYPE_CHECKING:
    from perdure.flow.definitions import Environment

_LARGEST: Final = 512 * 1024
"""Maximum size of a mounted module, in bytes: a ConfigMap has at most 1 MiB."""


@verb()
@argument("module", metavar="MODULE", help="File with the flows, or a dotted name")
@option("--image", metavar="IMAGE", required=True, help="Image with `perdure`, and with the module")
@option("--path", metavar="PATH", help="The module in the image, if it is not MODULE")
@option("--mount", is_flag=True, help="Mount MODULE from a ConfigMap, not from the image")
@option(
    "--address", default="perdure-temporal.perdure-system:7233", help="Address of the Temporal frontend, for the worker"
)
@option("--dry-run", is_flag=True, help="Print the manifests, and apply nothing")
@option("--wait/--no-wait", default=True, help="Wait until new runs get the code, or only apply")
@option("--timeout", default="5m", help="How long to wait")
@namespace_option
@context_option
@click.pass_context
def deploy(
    context: click.Context,
    *,
    module: str,
    image: str,
    path: str | None,
    mount: bool,
    address: str,
    dry_run: bool,
    wait: bool,
    timeout: str,
    namespace: str | None,
    cluster: str | None,
) -> None:
    """Deploy the flows of a Python module: a worker, and the activities.

    For each Environment of the module, applies a WorkerDeployment, the
    ServiceAccount and RoleBinding of its workers, and a Workflow with the
    activities. It requires kubectl. Deploy again after each change: open runs
    stay on the code with which they started, with its activities.

    Then waits until the workers of the new version have started, and it gets all
    new runs. If they fail, prints the end of their log: runs continue on the
    version before, with its activities.

    Exit status: 0 deployed, 1 the workers of the new version fail, 2 error, 124
    timeout.

    \b
    Examples:
      {program} deploy etl.py --image registry.example.com/etl:1.4
      {program} deploy etl.py --image python-perdure --mount
      {program} deploy shop.etl --image example.com/shop:7 --dry-run
    """
    if mount and Path(module).suffix != ".py":
        raise click.BadParameter("requires a file as MODULE", param_hint="--mount")
    seconds = seconds_of(timeout, "--timeout")
    environments = _environments(module)
    placement = Placement(image=image, module=path or module, address=address)
    if mount:
        placement = _mounted(module, image, address)
    found = [each for environment in environments for each in manifests_of(environment, placement, environments)]
    text = "---\n".join(map(dump_blocks, found))
    try:
        all_from_yaml(text)
    except InvalidManifestError as error:  # fields of a `definition`
        raise CliError(f"{module}: {error}") from error
    if dry_run:
        click.echo(text, nl=False)
        return
    arguments = kubectl_arguments(cluster)
    if namespace is not None:
        arguments.append(f"--namespace={namespace}")
    _apply(text, arguments)
    if wait:
        names = [(each.name, bool(each.flows)) for each in environments]
        asyncio.run(_follow(context, cluster, namespace, names, seconds))


def _environments(module: str) -> list[Environment]:
    """Import a module, and return its environments.

    Raises:
        CliError: It cannot be imported, has none, a function has parameters without a type, or workspaces of a name differ.
    """
    try:
        environments = environments_of(load(module))
    except Exception as error:
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        raise CliError(f"{module} cannot be imported: {_place(error, module)}{kind}{error}") from error
    if not environments:
        raise CliError(f"{module} has no `perdure.flow.Environment`")
    activities = [each for one in environments for each in one.activities.values()]
    signatures = [each.signature for each in activities]
    signatures += [each.signature for one in environments for each in one.flows.values()]
    if mistakes := [mistake for each in signatures for mistake in each.mistakes()]:
        raise CliError(f"{module}: {'; '.join(mistakes)}")
    try:
        workspaces_of((each.name, each.options.workspaces) for each in activities)  # a run shares them by name
    except ValueError as error:
        raise CliError(f"{module}: {error}") from error
    return environments


def _place(error: Exception, module: str) -> str:
    """The last line of the file of a module that an error has passed, such as `line 12: `."""
    name = Path(module).name
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if Path(each.filename).name == name]
    return f"line {lines[-1]}: " if lines else ""


async def _follow(
    context: click.Context,
    cluster: str | None,
    namespace: str | None,
    names: list[tuple[str, bool]],
    seconds: float,
) -> None:
    async with connect(context=cluster, namespace=namespace, program=program_of(context)) as reached:
        await rollouts.follow(reached, names, seconds, lambda line: click.echo(line, err=True))


def _mounted(module: str, image: str, address: str) -> Placement:
    file = Path(module)
    source = file.read_text()
    if len(source.encode()) > _LARGEST:
        raise CliError(f"{module} is too large for a ConfigMap: put it into the image")
    return Placement(image=image, module=file.name, source=source, address=address)


def _apply(text: str, arguments: list[str]) -> None:
    command = ["kubectl", "apply", "--server-side", "--field-manager=perdure-deploy", "-f", "-", *arguments]
    try:
        done = subprocess.run(command, input=text, text=True, check=False)  # noqa: S603 - the arguments are ours
    except FileNotFoundError as error:
        raise CliError("kubectl is needed to apply the manifests, and is not found; put it on the PATH") from error
    if done.returncode:
        raise CliError("kubectl did not apply all manifests")
