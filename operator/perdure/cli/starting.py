"""Starts runs: checks the request before a run is created, and waits for the operator's decision afterwards."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import typer

from perdure.api.reasons import ConditionReason
from perdure.client.errors import CliError, ExitCode, GoneError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object

VERDICT_SECONDS = 30.0
"""Maximum wait for the operator's decision about a run; the same as for the result of an Operation."""
_PAUSE = 0.25
"""Seconds between two reads."""
_REFUSED = frozenset(
    {
        ConditionReason.INVALID_INPUT,
        ConditionReason.INVALID_WORKFLOW,
        ConditionReason.LIMIT_REACHED,
        ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED,
    }
)

_WAITS = frozenset(
    {
        ConditionReason.INVALID_WORKFLOW,
        ConditionReason.LIMIT_NOT_FOUND,
        ConditionReason.LIMIT_REACHED,
        ConditionReason.RETRY_POLICY_NOT_FOUND,
        ConditionReason.WORKFLOW_ID_IN_USE,
        ConditionReason.NO_WORKER,
    }
)
"""The conditions that a new run may wait for. A missing Workflow was reported before."""


class NotStartedError(CliError):
    """The run will never start."""

    status = ExitCode.NO


async def check_input(cluster: Cluster, workflow: str, given: Any, parameters: Iterable[str] = ()) -> Any:
    """Validate the input of a new run; warn of expressions in it, and if the Workflow does not exist.

    Args:
        cluster: The cluster of the new run.
        workflow: Name of the Workflow of the run.
        given: The input; None for no input.
        parameters: The `key=value` that the input contains. Their values stay texts if the Workflow declares texts.

    Returns:
        The input.

    Raises:
        NotStartedError: The input does not match the schema of the Workflow.
    """
    if "${" in str(given):  # the checks take long to import
        for warning in await asyncio.to_thread(_unevaluated, workflow, given):
            typer.echo(f"Warning: {warning}", err=True)
    try:
        found = await cluster.read("Workflow", "workflows", workflow)
    except GoneError:
        problem = (
            f"there is no Workflow `{workflow}` in namespace `{cluster.namespace}` yet; its runs wait until it exists"
        )
        typer.echo(f"Warning: {problem}", err=True)
        return given
    except CliError:
        return given  # the user has no permission
    given = _with_texts(found.get("spec"), given, parameters)
    findings = await asyncio.to_thread(_findings, found.get("spec"), given)
    if findings:
        problem = "; ".join(findings)
        raise NotStartedError(f"the input is not valid for Workflow `{workflow}`: {problem}; nothing was created")
    return given


def _unevaluated(workflow: str, given: Any) -> list[str]:
    """Return the warnings about expressions in an input, which is used unchanged."""
    from perdure.api.workflowrun import WorkflowRunSpec
    from perdure.language.checks import unevaluated

    spec = WorkflowRunSpec.parse({"workflow": {"name": workflow}, "input": given})
    return [str(finding) for finding in unevaluated(spec)]


def _with_texts(definition: Any, given: Any, parameters: Iterable[str]) -> Any:
    """Return the input with texts for the parameters that are texts in the schema or the default, such as `1.10`."""
    from perdure.api.lenient import mapping

    declared = mapping(mapping(definition).get("input"))
    default, properties = mapping(declared.get("default")), mapping(mapping(declared.get("schema")).get("properties"))
    texts = {}
    for parameter in parameters:
        key, _, text = parameter.partition("=")
        is_text = mapping(properties.get(key)).get("type") == "string" or isinstance(default.get(key), str)
        if is_text and not isinstance(given[key], str):
            texts[key] = text
    return {**given, **texts} if texts else given


def _findings(definition: Any, given: Any) -> list[str]:
    """Return the errors of an input; empty if the definition does not compile, because the operator reports that."""
    import pydantic

    from perdure.api.workflow import WorkflowSpec
    from perdure.language.compiler import compile_program
    from perdure.language.program import InvalidWorkflowError, with_defaults

    try:
        program = compile_program(WorkflowSpec.parse(definition))
    except (pydantic.ValidationError, InvalidWorkflowError):
        return []
    return [str(finding) for finding in program.check_input(with_defaults(program, given))]


async def check_workflow_id(cluster: Cluster, workflow_id: str) -> None:
    """Check that no open run has a workflow ID.

    Raises:
        NotStartedError: An open run has the workflow ID.
    """
    name = await cluster.runs.open_run(workflow_id)
    if name is not None:
        raise NotStartedError(
            f"the open run `{name}` has workflow ID `{workflow_id}`; choose another one, or set --id-conflict-policy; "
            "nothing was created"
        )


async def wait_for_verdict(cluster: Cluster, name: str) -> None:
    """Wait until the operator has decided whether a run starts; warn with the reason if it waits.

    Args:
        cluster: The cluster of the run.
        name: The name of the run.

    Raises:
        NotStartedError: The run does not start.
        Exit: The operator does not decide in time.
    """
    deadline = time.monotonic() + VERDICT_SECONDS
    while True:
        try:
            condition = _succeeded(await cluster.runs.named(name))
        except GoneError:
            raise NotStartedError(f"the run `{name}` was deleted before it started") from None
        except UnreachableError:
            condition = None
        reason = str(condition["reason"]) if condition else ""
        if condition is not None and reason != ConditionReason.WORKFLOW_ID_IN_USE:
            break
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(_PAUSE)
    if condition is None:
        typer.echo(
            f"Error: the operator has not processed the run `{name}` within {VERDICT_SECONDS:.0f}s; the run is kept, and "
            "starts when an operator runs",
            err=True,
        )
        raise typer.Exit(ExitCode.TIMEOUT)
    message = str(condition.get("message") or reason)
    if condition["status"] == "False" and reason in _REFUSED:
        raise NotStartedError(f"the run `{name}` was not started: {message}")
    if reason in _WAITS:
        typer.echo(f"Warning: the run `{name}` waits: {message}", err=True)


def _succeeded(run: Object) -> Object | None:
    conditions: list[Object] = (run.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == "Succeeded"), None)
