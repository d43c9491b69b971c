"""Reads the WorkflowRun to start from a file."""

import typer

from perdure.api.labels import API_VERSION
from perdure.api.lenient import mapping
from perdure.cli.documents import UnreadableFileError, read
from perdure.client.errors import CliError
from perdure.client.requests import Object


def read_run(file: str) -> Object:
    """Read the manifest of a WorkflowRun; warns if the file also contains other objects.

    Args:
        file: A file, or `-` for standard input.

    Raises:
        CliError: The file cannot be read, or does not contain exactly one WorkflowRun, or its fields are not objects.
    """
    try:
        found = [each.data for each in read(file) if isinstance(each.data, dict)]
    except UnreadableFileError as error:
        raise CliError(str(error)) from error
    runs = [each for each in found if each.get("apiVersion") == API_VERSION and each.get("kind") == "WorkflowRun"]
    if len(runs) != 1:
        count = f"{len(runs)} WorkflowRuns" if runs else "no WorkflowRun"
        raise CliError(f"{file}: contains {count}; to start a run, the file must have exactly one")
    others = [
        f"{each.get('kind')} `{mapping(each.get('metadata')).get('name', '')}`" for each in found if each not in runs
    ]
    if others:
        typer.echo(
            f"Warning: {file} also contains {', '.join(others)}, which this command does not create; use `kubectl apply`",
            err=True,
        )
    (run,) = runs
    meta, spec = run.get("metadata") or {}, run.get("spec") or {}
    workflow = mapping(spec).get("workflow", {})
    for field, value in {"metadata": meta, "spec": spec, "spec.workflow": workflow}.items():
        if not isinstance(value, dict):
            raise CliError(f"{file}: {field}: must be an object")
    return {**run, "metadata": meta, "spec": spec}
