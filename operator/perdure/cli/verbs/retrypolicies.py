"""`retrypolicy`: the waits of retry policies."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from perdure.api.times import format_decimal_duration
from perdure.cli.command import WholeNumber, argument, group, option
from perdure.cli.completion import names_of
from perdure.cli.connection import connect
from perdure.cli.options import Named, context_option, namespace_option, report_option
from perdure.cli.terminal import Output, Screen, program_of
from perdure.client.errors import CliError
from perdure.lazy import lazily

with lazily():
    import pydantic
    import yaml

    from perdure.api import models
    from perdure.api.kinds import retrypolicy as retrypolicy_kind
    from perdure.language import program as programs
    from perdure.runtime import retry_policies


@group()
def retrypolicy() -> None:
    """Preview retry policies.

    \b
    Examples:
      {program} retrypolicy preview --file policy.yaml --count 10
    """


@retrypolicy.command("preview")
@argument(
    "name",
    metavar="[NAME]",
    type=Named("RetryPolicy"),
    required=False,
    shell_complete=names_of("retrypolicies"),
    help="Name of a RetryPolicy",
)
@option("--file", "-f", help="Manifest of a RetryPolicy; - for standard input")
@option("--count", type=WholeNumber(min=1, max=10_000), default=8, help="Number of waits to show")
@report_option
@namespace_option
@context_option
@click.pass_context
def preview(
    context: click.Context,
    *,
    name: str | None,
    file: str | None,
    count: int,
    output: Output,
    namespace: str | None,
    cluster: str | None,
) -> None:
    """Show the waits between the attempts of a RetryPolicy.

    Reads the policy from a file, or by name from the cluster. In text output, the
    last line is the number of retries; waits beyond it are shown as well. JSON
    output is a list of the waits in seconds.

    \b
    Examples:
      {program} retrypolicy preview --file policy.yaml --count 10
      {program} retrypolicy preview standard --output json
    """
    if (name is None) == (file is None):
        raise CliError("set either NAME or --file")
    source = file or f"RetryPolicy {name}"
    spec = (
        _of_file(file)
        if file is not None
        else asyncio.run(_of_cluster(str(name), cluster, namespace, program_of(context)))
    )

    policy = _read(spec, source)
    shown = retry_policies.backoffs(policy, count)
    if output != "text":
        Screen().write_data(output, [_seconds(wait) for wait in shown])
        return

    for wait in shown:
        click.echo(format_decimal_duration(wait))
    click.echo(f"# {retry_policies.limits(policy)}")


def _seconds(wait: timedelta) -> int | float:
    seconds = wait.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def _of_file(file: str) -> Any:
    """Return the spec of the first RetryPolicy of a file."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        documents = list(yaml.safe_load_all(text))
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise CliError(f"{file} is not valid YAML: {error}") from error
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "RetryPolicy":
            return document.get("spec")
    raise CliError(f"{file} has no RetryPolicy; it must be a manifest with `kind: RetryPolicy`")


async def _of_cluster(name: str, context: str | None, namespace: str | None, program: str) -> Any:

    async with connect(context=context, namespace=namespace, program=program) as cluster:
        return (await cluster.read("RetryPolicy", "retrypolicies", name)).get("spec")


def _read(spec: Any, source: str) -> Any:
    """Convert a policy to the engine's form.

    Raises:
        CliError: The policy is not valid; the message has every mistake.
    """
    try:
        return programs.retry_rules(retrypolicy_kind.RetryPolicySpec.parse(spec or {}))
    except pydantic.ValidationError as error:
        raise CliError(f"{source}: {'; '.join(models.mistakes(error))}") from error
