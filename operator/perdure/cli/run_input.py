"""The input of a run to start: `--input` and `-p`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from perdure.cli.asking import value, with_parameters

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
