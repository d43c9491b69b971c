"""`rerun`: start a run like another one, from the beginning."""

import asyncio
from typing import Annotated, Any

import typer

from perdure.api.labels import API_VERSION, RESERVED_PREFIXES
from perdure.cli.connection import connect
from perdure.cli.inputs import InputOption, ParameterOption, inputs_of, with_input
from perdure.cli.options import (
    ContextOption,
    NamespaceOption,
    OutputOption,
    RunName,
    WorkflowIdOption,
    check_named,
)
from perdure.cli.starts import DryRunOption, EndTimeoutOption, Launch, LogsOption, WaitOption, Where, start
from perdure.cli.terminal import program_of
from perdure.client.requests import Object

HELP = """Start a run with the spec of another one, from the beginning.

The new run has the same Workflow (its current definition), input, and
workflow ID if the spec has one. --input replaces the input (or all arguments
of code), -p changes fields of it. To keep the results of successful steps, use
`retry`.

If a Schedule started the original, expressions of the new run have the same
`schedule.name` and `schedule.scheduledTime`. It does not belong to the
Schedule: it does not block its next run, and is not deleted with it.

Exit status: the same as that of `start`.

\b
Examples:
  {program} rerun order-42
  {program} rerun order-42 -p amount=20 --wait
  {program} rerun order-42 --input @order.json --name order-43 --logs
"""

_LONGEST_PREFIX = 180
"""Maximum characters of a name before the suffix from the API server."""


def command(
    context: typer.Context,
    run: RunName = None,
    *,
    workflow_id: WorkflowIdOption = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the new run; default: generated", show_default=False)
    ] = None,
    given: InputOption = None,
    parameters: ParameterOption = None,
    namespace: NamespaceOption = None,
    wait: WaitOption = None,
    logs: LogsOption = False,
    timeout: EndTimeoutOption = None,
    dry_run: DryRunOption = None,
    output: OutputOption = "text",
    cluster: ContextOption = None,
) -> None:
    """Start a run like another one."""
    check_named(run, workflow_id)
    launch = Launch.of(wait=wait, logs=logs, timeout=timeout, dry_run=dry_run, parameters=parameters)
    values = inputs_of(given)

    async def read() -> Object:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as reached:
            return await reached.runs.chosen(run, workflow_id)

    found = asyncio.run(read())
    _warn_of_previous(found)
    spec = {key: each for key, each in found["spec"].items() if key != "startPaused"}
    spec["input"] = with_input(spec, values, parameters)
    body = _like(found, {key: each for key, each in spec.items() if each is not None}, name)
    start(context, body, Where(namespace, cluster), output, launch)


def _warn_of_previous(run: Object) -> None:
    """Warn if a run of a Schedule reads the outcome of the Schedule's previous run, which only the operator can pass on."""
    from perdure.api.lenient import mapping
    from perdure.schedule.run_manifests import scheduled_by

    tie = scheduled_by(run)
    if tie is None:
        return
    definition = mapping(run.get("status")).get("definition")  # code has none, and may read both
    given = {"lastCompletionResult": tie.last_completion_result, "lastFailure": tie.last_failure}
    missing = [
        f"`schedule.{name}`"
        for name, each in given.items()
        if each is not None and (definition is None or name in str(definition))
    ]
    if missing:
        typer.echo(
            f"Warning: the new run does not receive {' and '.join(missing)}: only runs that the Schedule itself starts do, also "
            "with `schedule backfill`",
            err=True,
        )


def _like(run: Object, spec: dict[str, Any], name: str | None) -> Object:
    """Build a run with a spec, and with the user's labels of another run."""
    meta = run["metadata"]
    own = {k: v for k, v in (meta.get("labels") or {}).items() if not k.startswith(RESERVED_PREFIXES)}
    called = {"name": name} if name is not None else {"generateName": f"{meta['name'][:_LONGEST_PREFIX]}-"}
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {**called, **({"labels": own} if own else {})},
        "spec": spec,
    }
