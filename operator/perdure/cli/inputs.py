"""Reads what users give to a run: JSON values, the input of a run to start, and a WorkflowRun in a file."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.api.labels import API_VERSION
from perdure.api.lenient import mapping
from perdure.cli.documents import UnreadableFileError, read
from perdure.client.errors import CliError
from perdure.client.requests import Object

ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "-p",
        "--parameter",
        metavar="KEY=VALUE",
        help="A field of the input; a value that is not JSON is text; repeatable",
        show_default=False,
    ),
]


def value(text: str | None, option: str) -> Any:
    """Read the JSON value of an option: the value itself, or a file.

    Args:
        text: JSON; `@FILE` for the contents of a file, `@-` for standard input; None for no value.
        option: Name of the option, for the message.

    Raises:
        BadParameter: The text is not valid JSON.
        CliError: The file cannot be read.
    """
    if text is None:
        return None
    if text.startswith("@"):
        try:
            text = sys.stdin.read() if text == "@-" else Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise CliError(f"the file of {option} cannot be read: {error}") from error
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        message = f"is not JSON: {error}; write a string with its quotes: '\"yes\"'; write a file as @FILE"
        raise typer.BadParameter(message, param_hint=option) from error


def json_or_text(text: str) -> Any:
    """Parse a text as JSON; returns the text itself if it is not valid JSON."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text


def with_parameters(given: Any, parameters: Iterable[str]) -> Any:
    """Set some fields of an input.

    Args:
        given: The input; None for no input.
        parameters: Each `key=value`; the value is JSON, or else a text. A field that is a text remains a text.

    Raises:
        BadParameter: A parameter has another form, a field is set twice, or the input has no fields.
    """
    fields: dict[str, Any] = {}
    for parameter in parameters:
        key, equals, text = parameter.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"`{parameter}` does not have the form key=value", param_hint="-p")
        if key in fields:
            raise typer.BadParameter(f"`{key}` is given twice", param_hint="-p")
        parsed, is_text = json_or_text(text), isinstance(given, dict) and isinstance(given.get(key), str)
        fields[key] = text if is_text and not isinstance(parsed, str) else parsed
    if not fields:
        return given
    if given is not None and not isinstance(given, dict):
        raise typer.BadParameter("sets fields of an object, but the input is not an object", param_hint="-p")
    return {**(given or {}), **fields}


InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        help="Input: JSON or @FILE; for code, repeatable: an argument each",
        show_default=False,
    ),
]


def inputs_of(given: Iterable[str] | None) -> list[Any]:
    """Read the values of `--input`.

    Raises:
        BadParameter: A value is not valid JSON.
        CliError: A file cannot be read.
    """
    return [value(each, "--input") for each in given or ()]


def with_input(spec: Mapping[str, Any], values: Sequence[Any], parameters: Iterable[str] | None) -> Any:
    """Return the input of a new run.

    Args:
        spec: The spec of the run; its input counts if no other is given.
        values: The values of `--input`. Several are the arguments of code.
        parameters: The values of `-p`, which set fields of a single input.

    Raises:
        BadParameter: The run cannot have several inputs, or a parameter is invalid.
    """
    is_code = "type" in (spec.get("workflow") or {}) or "activity" in spec
    if len(values) > 1 and not is_code:
        raise typer.BadParameter(
            "a Workflow in YAML has one input: give one object, such as --input '{\"id\": 7}', or set its fields with -p",
            param_hint="--input",
        )
    found = values[0] if values else spec.get("input")
    if len(values) > 1:
        found = {"payloads": [{"json": each} for each in values]}
    if parameters and is_code and isinstance(found, dict) and found.keys() == {"payloads"}:
        raise typer.BadParameter("sets fields of one input; give several arguments with --input only", param_hint="-p")
    return with_parameters(found, parameters or ())


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
