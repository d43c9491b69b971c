"""`import`: manifests of other workflow systems, converted."""

from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from perdure.cli.command import argument, group, option
from perdure.client.errors import ExitCode

if TYPE_CHECKING:
    from perdure.cli.conversion import ConversionResult


files_argument = argument(
    "files",
    metavar="FILE…",
    nargs=-1,
    required=True,
    help="Manifests: files, folders (recursive), or - for standard input",
)


strict_option = option("--strict", is_flag=True, help="Write nothing if something has no counterpart")


@group()
def import_() -> None:
    """Convert manifests of other workflow systems.

    Writes Perdure's manifests to standard output. A field without a counterpart is
    reported on standard error, with its path and advice, and in a comment.

    Exit status: 0 everything was converted, 1 something has no counterpart, or
    the result is invalid, 2 a file cannot be read, or has nothing to convert.

    \b
    Examples:
      {program} import argo workflow.yaml > perdure.yaml
      {program} import tekton pipeline.yaml run.yaml --strict
    """


@import_.command("argo")
@files_argument
@strict_option
def argo(*, files: tuple[str, ...], strict: bool) -> None:
    """Convert manifests of Argo Workflows.

    Reads Workflow, WorkflowTemplate, ClusterWorkflowTemplate, and CronWorkflow.
    Import files that refer to each other together. ConfigMaps in the files supply
    parameters and the sizes of semaphores.

    \b
    Examples:
      {program} import argo workflow.yaml > perdure.yaml
      {program} import argo templates/ crons.yaml --strict
    """
    from perdure.cli.conversion import convert_files
    from perdure.importing.argo.manifests import KINDS, convert

    _print(convert_files(list(files), KINDS, convert), strict=strict)


@import_.command("tekton")
@files_argument
@strict_option
def tekton(*, files: tuple[str, ...], strict: bool) -> None:
    """Convert manifests of Tekton.

    Reads Pipeline, Task, PipelineRun, and TaskRun, and the StepActions that they
    name. Import files that refer to each other together: a Pipeline or a Task that
    a run names becomes a part of that run.

    \b
    Examples:
      {program} import tekton pipeline.yaml run.yaml > perdure.yaml
      {program} import tekton - --strict < taskrun.yaml
    """
    from perdure.cli.conversion import convert_files
    from perdure.importing.tekton.manifests import KINDS, convert

    _print(convert_files(list(files), KINDS, convert), strict=strict)


def _print(converted: "ConversionResult", *, strict: bool) -> None:
    for sentence in converted.sentences:
        click.echo(sentence, err=True)
    if strict and not converted.complete:
        click.echo("Error: nothing was written, because of --strict", err=True)
    elif converted.text:
        click.echo(converted.text, nl=False)
    raise Exit(ExitCode.YES if converted.complete else ExitCode.NO)
