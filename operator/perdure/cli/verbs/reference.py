"""`explain`, `schemas`, `options`, `completion`, and `version`: help with manifests and with this command."""

import json
from enum import StrEnum
from pathlib import Path

import click

from perdure import REVISION, __version__
from perdure.cli.command import Words, argument, option, verb
from perdure.cli.completion import KUBECTL, script
from perdure.cli.flags import GLOBAL
from perdure.cli.options import context_option, report_option, system_namespace_option
from perdure.cli.terminal import Output, Screen, program_of
from perdure.client.errors import CliError
from perdure.lazy import lazily

with lazily():
    import asyncio

    from perdure.api import crdgen
    from perdure.cli import connection, doctor, explanations


def _complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:

    return [each for each in explanations.topics() if each.startswith(incomplete)]


@verb()
@argument("topic", metavar="TOPIC", shell_complete=_complete, help="Kind, path of a field, or reason")
def explain(*, topic: str) -> None:
    """Explain a field of a kind, or a reason of a condition or an Event.

    Needs no cluster. For fields, shows what kubectl explain shows of the installed
    CRDs; for reasons, what happened and what to do.

    \b
    Examples:
      {program} explain workflowrun
      {program} explain workflow.spec.activities.retryPolicy
      {program} explain NoWorker
    """
    for line in explanations.explain(topic):
        click.echo(line)


@verb()
@argument(
    "folder", metavar="DIR", type=click.Path(path_type=Path), help="Folder to write to; created if it does not exist"
)
def schemas(*, folder: Path) -> None:
    """Write the JSON Schemas of all kinds, for editors, kubeconform, and kustomize.

    Needs no cluster. Each schema is in DIR/perdure.dev/KIND_VERSION.json. The
    schemas do not check expressions or rules between fields: use `{program} lint`.
    With DIR/kustomize.json as `openapi.path` of a kustomization, its patches merge
    activities and other named entries of lists by their names.

    \b
    Examples:
      {program} schemas schemas
      {program} schemas ~/.config/schemas
    """
    files = {
        crdgen.schema_path(kind, version): json.dumps(schema, indent=1)
        for kind in crdgen.KINDS
        for version, schema in crdgen.json_schemas(kind).items()
    }
    files["kustomize.json"] = json.dumps(crdgen.kustomize_schema())
    for path, content in files.items():
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(f"{content}\n", encoding="utf-8")
        except OSError as error:
            raise CliError(f"`{target}` cannot be written: {error.strerror}") from error
        click.echo(target)


@verb()
def options() -> None:
    """List the options that you can pass to every command.

    They have the same meaning as those of kubectl. -n, -A, and --context are
    listed in the help of each command.

    \b
    Examples:
      {program} options
      {program} list --kubeconfig staging.yaml --request-timeout 10s
    """
    names = [", ".join(filter(None, (flag.short, f"{flag.name} {flag.metavar}".rstrip()))) for flag in GLOBAL]
    width = max(map(len, names))
    for name, flag in zip(names, GLOBAL, strict=True):
        click.echo(f"  {name.ljust(width)}  {flag.help}")


class Shell(StrEnum):
    """A shell."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"
    KUBECTL = "kubectl"


@verb()
@argument("shell", metavar="SHELL", type=Words(Shell), help=f"One of {', '.join(Shell)}")
def completion(*, shell: Shell) -> None:
    """Print a script that makes your shell complete this command.

    The shell then completes verbs, options, values, and the names of runs,
    Schedules, and other objects in the cluster. For `kubectl perdure`, save the
    script of the shell `kubectl` as `kubectl_complete-perdure` in your PATH; it
    requires kubectl's own completion.

    \b
    Examples:
      source <({program} completion bash)
      {program} completion zsh > ~/.zfunc/_perdure
      {program} completion fish > ~/.config/fish/completions/perdure.fish
      {program} completion powershell | Out-String | Invoke-Expression
    """
    click.echo(KUBECTL if shell is Shell.KUBECTL else script(shell), nl=shell is not Shell.KUBECTL)


@verb()
@option("--server", is_flag=True, help="Also show the versions of the operator, the CRDs, and Kubernetes")
@system_namespace_option
@report_option
@context_option
@click.pass_context
def version(context: click.Context, *, server: bool, system: str, output: Output, cluster: str | None) -> None:
    """Show the version of this command, and with --server those of the cluster.

    `{program} doctor` checks whether they fit together.

    \b
    Examples:
      {program} version
      {program} version --server
      {program} version --server --output json
    """
    versions = {"perdure": __version__, **({"commit": REVISION} if REVISION else {})}
    if server:

        async def read() -> dict[str, str]:
            async with connection.connect(context=cluster, namespace=None, program=program_of(context)) as found:
                api = found.diagnosis
                operator = await doctor.find_deployment(api, system)
                return {
                    "operator": (operator.version if operator else "") or "not found",
                    "crds": ", ".join(await doctor.crd_versions(api)) or "not found",
                    "kubernetes": str((await api.read("/version") or {}).get("gitVersion") or "unknown"),
                }

        versions |= asyncio.run(read())
    screen = Screen()
    if output != "text":
        screen.write_data(output, versions)
        return
    for name, version in versions.items():
        screen.write(f"{name} {version}")
