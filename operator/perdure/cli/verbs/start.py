"""`start`: start a run of a Workflow, of code, or from a file."""

import re
from typing import Annotated, Any

import typer

from perdure.api.labels import API_VERSION
from perdure.api.names import is_name
from perdure.api.policies import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from perdure.cli.completion import names_of
from perdure.cli.inputs import InputOption, ParameterOption, inputs_of, with_input
from perdure.cli.options import ContextOption, NamespaceOption, OutputOption
from perdure.cli.starts import DryRunOption, EndTimeoutOption, Launch, LogsOption, WaitOption, Where, labels_of, start
from perdure.client.requests import Object

HELP = """Start a run of a Workflow, of code, or from a file.

Code needs --type and --task-queue; each --input is an argument. A file contains
a WorkflowRun; options override its fields.

Validates the input against the schema of the Workflow before it creates the
run, then waits up to 30 seconds until the operator accepts it. Warns if the
Workflow does not exist: the run waits for it. With --no-wait, returns as soon
as the run is created; with --wait, shows its progress and returns when it
ends; with --logs, prints the logs of its steps. With --output in a format for
programs, both print the run once, as it is at the end or after --timeout, and
the rest to standard error.

--dry-run=client prints the manifest and sends nothing. --dry-run=server checks
the input and has the API server validate the run, without creating it.

Exit status: 0 accepted (with --wait or --logs: completed), 1 not started,
because the input is invalid or the workflow ID is in use (with --wait or
--logs: ended in any other way), 2 error, 124 timeout.

\b
Examples:
  {program} start order-flow --input @order.json
  {program} start order-flow -p id=A-1001 -p amount=349
  {program} start order-flow --label team=shop --watch --timeout 5m
  {program} start order-flow --input @order.json --logs
  {program} start order-flow --dry-run=client > run.yaml
  {program} start --type Order --task-queue orders -w A-1001
  {program} start --type Bill --task-queue bills -i '"A-1"' -i 7
  {program} start --file run.yaml -p amount=349 --wait
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
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="Instead of WORKFLOW: file with a WorkflowRun; -: stdin", show_default=False),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the WorkflowRun; default: generated", show_default=False),
    ] = None,
    workflow_id: Annotated[
        str | None, typer.Option("--workflow-id", "-w", help="Workflow ID; default: the name", show_default=False)
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="KEY=VALUE", help="Label of the run; repeatable", show_default=False),
    ] = None,
    given: InputOption = None,
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
    wait: WaitOption = None,
    logs: LogsOption = False,
    timeout: EndTimeoutOption = None,
    dry_run: DryRunOption = None,
    output: OutputOption = "text",
    cluster: ContextOption = None,
) -> None:
    """Start a run of a Workflow, of code, or from a file."""
    what = _what(workflow, kind, task_queue, file)
    launch = Launch.of(wait=wait, logs=logs, timeout=timeout, dry_run=dry_run, parameters=parameters)
    base: Object = {"metadata": {"generateName": f"{workflow or _readable(kind or 'run')}-"}, "spec": {}}
    if file is not None:
        from perdure.cli.inputs import read_run

        base = read_run(file)
    meta, started = base["metadata"], base["spec"] if what is None else {"workflow": what}
    spec: dict[str, Any] = {
        "workflow": what,
        "workflowId": workflow_id,
        "input": with_input(started, inputs_of(given), parameters),
        "startPaused": paused or None,
        "priority": priority,
        "workflowIdReusePolicy": reuse and reuse.value,
        "workflowIdConflictPolicy": conflict and conflict.value,
    }
    own = {**(meta.get("labels") or {}), **labels_of(labels or ())}
    body = {
        "apiVersion": API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {**_called(meta, name), **({"labels": own} if own else {})},
        "spec": {**base["spec"], **{key: each for key, each in spec.items() if each is not None}},
    }
    start(context, body, Where(namespace or meta.get("namespace"), cluster), output, launch)


def _called(meta: Object, name: str | None) -> Object:
    """Return the metadata of the new run: that of the manifest, with another name if one is given."""
    if name is not None:
        meta = {**{key: each for key, each in meta.items() if key != "generateName"}, "name": name}
    return meta if "name" in meta or "generateName" in meta else {**meta, "generateName": "run-"}


def _what(workflow: str | None, kind: str | None, task_queue: str | None, file: str | None) -> Object | None:
    """Return `spec.workflow` of the new run; None if the file has the run.

    Raises:
        BadParameter: No Workflow, type, or file is given, or two are.
    """
    if (kind is None) != (task_queue is None):
        missing, given = ("--type", "--task-queue") if kind is None else ("--task-queue", "--type")
        raise typer.BadParameter(
            f"requires {missing}: a run of code needs a workflow type and a task queue", param_hint=given
        )
    if sum(each is not None for each in (workflow, kind, file)) != 1:
        raise typer.BadParameter("set either WORKFLOW, or --type and --task-queue, or --file")
    if file is not None:
        return None
    if workflow is not None and not is_name(workflow):
        hint = f"to start code, use --type {workflow} --task-queue QUEUE"
        raise typer.BadParameter(f"{workflow!r} is not a valid name of a Workflow; {hint}")
    return {"name": workflow} if kind is None else {"type": kind, "taskQueue": task_queue}


def _readable(kind: str) -> str:
    """Convert a type to a part of the name of a run: `order-workflow` for `OrderWorkflow`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind).lower()
    return re.sub(r"[^a-z0-9]+", "-", words)[:40].strip("-") or "run"
