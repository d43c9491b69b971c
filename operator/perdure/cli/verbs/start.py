"""`start`: start a run of a Workflow, or of code."""

import asyncio
import re
from typing import Annotated, Any

import typer

from perdure.api.labels import API_VERSION
from perdure.api.names import is_name
from perdure.api.workflow_id_policies import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from perdure.cli.asking import ParameterOption, value, with_parameters
from perdure.cli.cluster import Object, connect
from perdure.cli.completing import names_of
from perdure.cli.invocation import program_of
from perdure.cli.options import ContextOption, NamespaceOption, OutputOption, seconds_of
from perdure.cli.starting import check_input, check_workflow_id, wait_for_verdict
from perdure.cli.terminal import Output, Screen, for_people, reference
from perdure.cli.verbs import wait as waiting

HELP = """Start a run of a Workflow, or of code with --type and --task-queue.

Validates the input against the schema of the Workflow before it creates the
run, then waits up to 30 seconds until the operator accepts it. Warns if the
Workflow does not exist: the run waits for it. With --no-wait, returns as soon
as the run is created; with --wait, when it ends.

Exit status: 0 accepted (with --wait: completed), 1 not started, because the
input is invalid or the workflow ID is in use (with --wait: ended in any other
way), 2 error, 124 timeout.

\b
Examples:
  {program} start order-flow --input @order.json
  {program} start order-flow -p id=A-1001 -p amount=349
  {program} start order-flow --name order-42 --wait --timeout 5m
  {program} start --type Order --task-queue orders -w A-1001
"""


def command(
    context: typer.Context,
    workflow: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKFLOW", help="Name of the Workflow", show_default=False, autocompletion=names_of("workflows")
        ),
    ] = None,
    *,
    kind: Annotated[
        str | None,
        typer.Option("--type", help="Instead of WORKFLOW: workflow type of code", show_default=False),
    ] = None,
    task_queue: Annotated[
        str | None,
        typer.Option("--task-queue", help="With --type: task queue of the workers", show_default=False),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the WorkflowRun; default: generated", show_default=False),
    ] = None,
    workflow_id: Annotated[
        str | None, typer.Option("--workflow-id", "-w", help="Workflow ID; default: the name", show_default=False)
    ] = None,
    given: Annotated[str | None, typer.Option("--input", "-i", help="Input: JSON or @FILE", show_default=False)] = None,
    parameters: ParameterOption = None,
    paused: Annotated[bool, typer.Option("--paused", help="Create the run paused")] = False,
    priority: Annotated[
        int | None,
        typer.Option(
            "--priority",
            min=-1000,
            max=1000,
            help="Priority in the queues of WorkflowLimits; higher values go first",
            show_default=False,
        ),
    ] = None,
    reuse: Annotated[
        WorkflowIdReusePolicy | None,
        typer.Option(
            "--id-reuse-policy",
            metavar="POLICY",
            help=f"If closed runs have the workflow ID: {', '.join(WorkflowIdReusePolicy)}",
            show_default=False,
        ),
    ] = None,
    conflict: Annotated[
        WorkflowIdConflictPolicy | None,
        typer.Option(
            "--id-conflict-policy",
            metavar="POLICY",
            help=f"If an open run has the workflow ID: {', '.join(WorkflowIdConflictPolicy)}",
            show_default=False,
        ),
    ] = None,
    namespace: NamespaceOption = None,
    wait: Annotated[
        bool | None,
        typer.Option(
            "--wait/--no-wait",
            help="Wait until the run ends, or do not wait; default: until it is accepted",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="With --wait: how long, such as 5m", show_default=False)
    ] = None,
    output: OutputOption = "text",
    cluster: ContextOption = None,
) -> None:
    """Start a run of a Workflow, or of code."""
    what = _what(workflow, kind, task_queue)
    if timeout is not None:
        seconds_of(timeout, "--timeout")
        if not wait:
            raise typer.BadParameter("requires --wait", param_hint="--timeout")
    spec: dict[str, Any] = {
        "workflow": what,
        "workflowId": workflow_id,
        "input": with_parameters(value(given, "--input"), parameters or ()),
        "startPaused": paused or None,
        "priority": priority,
        "workflowIdReusePolicy": reuse,
        "workflowIdConflictPolicy": conflict,
    }
    body = {
        "apiVersion": API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {"name": name} if name is not None else {"generateName": f"{workflow or _readable(str(kind))}-"},
        "spec": {key: each for key, each in spec.items() if each is not None},
    }
    made = asyncio.run(create(context, body, namespace, cluster, output, verdict=wait is None))
    called = made["metadata"]["name"]
    if wait:
        waiting.command(context, called, namespace=made["metadata"]["namespace"], timeout=timeout, cluster=cluster)


def _what(workflow: str | None, kind: str | None, task_queue: str | None) -> Object:
    """Return `spec.workflow` of the new run.

    Raises:
        BadParameter: it is not said, or in two ways.
    """
    if (kind is None) != (task_queue is None):
        missing, given = ("--type", "--task-queue") if kind is None else ("--task-queue", "--type")
        raise typer.BadParameter(
            f"requires {missing}: a run of code needs a workflow type and a task queue", param_hint=given
        )
    if (workflow is None) == (kind is None):
        raise typer.BadParameter("set either WORKFLOW, or --type and --task-queue")
    if workflow is not None and not is_name(workflow):
        hint = f"to start code, use --type {workflow} --task-queue QUEUE"
        raise typer.BadParameter(f"{workflow!r} is not a valid name of a Workflow; {hint}")
    return {"name": workflow} if kind is None else {"type": kind, "taskQueue": task_queue}


def _readable(kind: str) -> str:
    """What the name of a run can hold of a type: `order-workflow` for `OrderWorkflow`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind).lower()
    return re.sub(r"[^a-z0-9]+", "-", words)[:40].strip("-") or "run"


async def create(
    context: typer.Context,
    body: Object,
    namespace: str | None,
    cluster: str | None,
    output: Output,
    *,
    verdict: bool,
) -> Object:
    """Make the run, print it, and wait for the `verdict` of the operator if that is wanted; the run as it was made."""
    spec = body["spec"]
    async with connect(context=cluster, namespace=namespace, program=program_of(context)) as reached:
        workflow = spec.get("workflow", {}).get("name")
        if workflow is not None:
            await check_input(reached, workflow, spec.get("input"))
        conflict = spec.get("workflowIdConflictPolicy", WorkflowIdConflictPolicy.FAIL)
        if "workflowId" in spec and conflict == WorkflowIdConflictPolicy.FAIL:
            await check_workflow_id(reached, spec["workflowId"])
        made = await reached.create("workflowruns", body)
        name, screen = made["metadata"]["name"], Screen()
        if for_people(output):
            screen.write(f"{reference('WorkflowRun', name)} created")
        else:
            screen.write_object(output, made)
        if verdict:
            await wait_for_verdict(reached, name)
        return made
