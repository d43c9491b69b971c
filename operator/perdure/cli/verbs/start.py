"""`start`, `rerun`, and `retry`: start a run of a Workflow or of code, like another run, or from its failed steps."""

import asyncio
import re
from dataclasses import replace
from typing import Any

import click

from perdure.api.json_values import mapping
from perdure.api.labels import API_VERSION
from perdure.api.names import is_name
from perdure.api.phases import Phase
from perdure.api.policies import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from perdure.cli.command import WholeNumber, Words, argument, option, stacked, verb
from perdure.cli.completion import names_of
from perdure.cli.connection import connect
from perdure.cli.inputs import input_option, inputs_of, parameter_option, with_input
from perdure.cli.operations import (
    ANSWER_TIMEOUT,
    RequestOptions,
    TargetOptions,
    reason_option,
    send_to_choice,
    send_to_start,
)
from perdure.cli.options import Named, archive_options, runs_argument, to_version_option, workflow_id_option
from perdure.cli.selection import (
    UNSUCCESSFUL,
    Choice,
    selector_option,
    since_option,
    workflow_option,
    yes_option,
)
from perdure.cli.starts import Launch, follow, labels_of, restarts_run, start_run, start_runs, starts_run
from perdure.cli.terminal import program_of
from perdure.client.errors import CliError, ExitCode, RefusedError
from perdure.client.requests import Object
from perdure.client.runs import copy_of
from perdure.client.selection import newest, phase_of
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.cli import archive
    from perdure.cli.files import documents
    from perdure.client import operations, run_requests
    from perdure.schedule import run_manifests
    from perdure.view.runs import logs, replay
    from perdure.view.runs import run as run_view


@verb()
@argument(
    "workflow",
    metavar="WORKFLOW",
    type=Named("Workflow"),
    required=False,
    shell_complete=names_of("workflows"),
    help="Name of the Workflow",
)
@option("--type", "kind", help="Instead of WORKFLOW: workflow type of code")
@option("--task-queue", help="With --type: task queue of the workers")
@option("--revision", metavar="REV", help="Revision of the Workflow, by number or name")
@option("--file", "-f", help="Instead of WORKFLOW: file with a WorkflowRun; -: stdin")
@option("--name", help="Name of the WorkflowRun; default: generated")
@option("--workflow-id", "-w", help="Workflow ID; default: the name")
@option("--label", "-l", "labels", metavar="KEY=VALUE", multiple=True, help="Label of the run; repeatable")
@input_option
@parameter_option
@option("--paused", is_flag=True, help="Create the run paused")
@option(
    "--priority",
    type=WholeNumber(min=-1000, max=1000),
    help="Priority in the queues of WorkflowLimits; higher values go first",
)
@option(
    "--id-reuse-policy",
    "reuse",
    metavar="POLICY",
    type=Words(WorkflowIdReusePolicy),
    help=f"If closed runs have the workflow ID: {', '.join(WorkflowIdReusePolicy)}",
)
@option(
    "--id-conflict-policy",
    "conflict",
    metavar="POLICY",
    type=Words(WorkflowIdConflictPolicy),
    help=f"If an open run has the workflow ID: {', '.join(WorkflowIdConflictPolicy)}",
)
@starts_run
def start(
    context: click.Context,
    launch: Launch,
    *,
    workflow: str | None,
    kind: str | None,
    task_queue: str | None,
    revision: str | None,
    file: str | None,
    name: str | None,
    workflow_id: str | None,
    labels: tuple[str, ...],
    inputs: tuple[str, ...],
    paused: bool,
    priority: int | None,
    reuse: WorkflowIdReusePolicy | None,
    conflict: WorkflowIdConflictPolicy | None,
) -> None:
    """Start a run of a Workflow, of code, or from a file.

    Code needs --type and --task-queue; each --input is an argument. A file contains
    a WorkflowRun; options override its fields.

    Validates the input against the schema of the Workflow before it creates the
    run, then waits up to 30 seconds until the operator accepts it. If the Workflow
    does not exist, creates nothing; with --wait-for-workflow, the run waits for it.
    With --no-wait, returns as soon as the run is created; with --wait, shows its
    progress and returns when it ends; with --logs, prints the logs of its steps.
    With --output in a format for programs, both print the run once, as it is at the
    end or after --timeout, and the rest to standard error.

    --dry-run=client prints the manifest and sends nothing. --dry-run=server checks
    the input and has the API server validate the run, without creating it.

    Exit status: 0 accepted (with --wait or --logs: completed), 1 not started,
    because the Workflow does not exist, the input is invalid, or the workflow ID is
    in use (with --wait or --logs: ended in any other way), 2 error, 124 timeout.

    \b
    Examples:
      {program} start order-flow --input @order.json
      {program} start order-flow -p id=A-1001 -p amount=349
      {program} start order-flow --label team=shop --watch --timeout 5m
      {program} start order-flow --input @order.json --logs
      {program} start order-flow --revision 3 --input @order.json
      {program} start order-flow --dry-run=client > run.yaml
      {program} start --type Order --task-queue orders -w A-1001
      {program} start --type Bill --task-queue bills -i '"A-1"' -i 7
      {program} start --file run.yaml -p amount=349 --wait
    """
    what = _workflow_of(workflow, kind, task_queue, file)
    launch.check()
    if revision is not None:
        if workflow is None:
            raise click.BadParameter("requires WORKFLOW, the Workflow of the revision", param_hint="--revision")
        what = {"name": workflow, "revision": asyncio.run(_revision(workflow, revision, launch, program_of(context)))}
    prefix = run_requests.name_prefix(kind or "run") if workflow is None else workflow.rpartition("/")[2]
    base: Object = {"metadata": {"generateName": f"{prefix}-"}, "spec": {}}
    if file is not None:
        base = documents.read_run(file)
    meta, started = base["metadata"], base["spec"] if what is None else {"workflow": what}
    spec: dict[str, Any] = {
        "workflow": what,
        "workflowId": workflow_id,
        "input": with_input(started, inputs_of(inputs), launch.parameters),
        "startPaused": paused or None,
        "priority": priority,
        "workflowIdReusePolicy": reuse and reuse.value,
        "workflowIdConflictPolicy": conflict and conflict.value,
    }
    run_labels = {**(meta.get("labels") or {}), **labels_of(labels or ())}
    body = {
        "apiVersion": API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {**_with_name(meta, name), **({"labels": run_labels} if run_labels else {})},
        "spec": {**base["spec"], **{key: each for key, each in spec.items() if each is not None}},
    }
    start_run(context, body, replace(launch, namespace=launch.namespace or meta.get("namespace")))


async def _revision(workflow: str, revision: str, launch: Launch, program: str) -> str:
    """Return the name of a revision.

    Raises:
        CliError: The revision does not exist.
    """
    async with connect(context=launch.cluster, namespace=launch.namespace, program=program) as cluster:
        return await cluster.revisions.name_of(workflow, revision)


def _with_name(meta: Object, name: str | None) -> Object:
    """Return the metadata of the new run: that of the manifest, with another name if one is given."""
    if name is not None:
        meta = {**{key: each for key, each in meta.items() if key != "generateName"}, "name": name}
    return meta if "name" in meta or "generateName" in meta else {**meta, "generateName": "run-"}


def _workflow_of(workflow: str | None, kind: str | None, task_queue: str | None, file: str | None) -> Object | None:
    """Return `spec.workflow` of the new run; None if the file has the run.

    Raises:
        BadParameter: No Workflow, type, or file is given, or two are.
    """
    if (kind is None) != (task_queue is None):
        missing, present = ("--type", "--task-queue") if kind is None else ("--task-queue", "--type")
        raise click.BadParameter(
            f"requires {missing}: a run of code needs a workflow type and a task queue", param_hint=present
        )
    if sum(each is not None for each in (workflow, kind, file)) != 1:
        raise click.BadParameter("set either WORKFLOW, or --type and --task-queue, or --file")
    if file is not None:
        return None
    if workflow is not None and not is_name(workflow):
        hint = f"to start code, use --type {workflow} --task-queue QUEUE"
        raise click.BadParameter(f"{workflow!r} is not a valid name of a Workflow; {hint}")
    return {"name": workflow} if kind is None else {"type": kind, "taskQueue": task_queue}


_choice_options = stacked(
    (
        workflow_option,
        selector_option,
        since_option,
        yes_option,
    )
)
"""The options of verbs that act on all failed runs that match."""


@verb()
@runs_argument
@workflow_id_option
@option("--name", "new_name", help="Name of the new run; default: generated")
@input_option
@parameter_option
@_choice_options
@archive_options
@starts_run
def rerun(
    context: click.Context,
    launch: Launch,
    *,
    names: tuple[str, ...],
    workflow_id: str | None,
    new_name: str | None,
    inputs: tuple[str, ...],
    address: str | None,
    account: str | None,
    system: str,
    **chosen: Any,
) -> None:
    """Start runs with the spec of others, from the beginning.

    The new run has the same Workflow (its current definition), input, and
    workflow ID if the spec has one. --input replaces the input (or all arguments
    of code), -p changes fields of it. To keep the results of successful steps, use
    `retry`.

    With --workflow or --selector, reruns all failed and timed-out runs that match,
    after a confirmation. If a run was retried, only its last retry counts.

    A named run that was deleted from the cluster is read from the archive, if the
    installation has one.

    If a Schedule started the original, the new run has the same input and the same
    `schedule.name`, `schedule.scheduledTime`, and times around it. It does not
    belong to the Schedule: it does not block its next run, and is not deleted with
    it.

    Exit status: the same as that of `start`; 1 if one of several runs was not
    started.

    \b
    Examples:
      {program} rerun order-42
      {program} rerun order-42 -p amount=20 --wait
      {program} rerun order-42 --input @order.json --name order-43 --logs
      {program} rerun --workflow order-flow --since 12h
    """
    choice = Choice(names=names, workflow_id=workflow_id, **chosen)
    single = choice.single
    launch.check()
    if not single:
        _check_several(launch, new_name)
    values = inputs_of(inputs)
    route = archive.ArchiveRoute(address=address, account=account, system=system, cluster=launch.cluster)

    async def read() -> list[Object]:
        async with connect(context=launch.cluster, namespace=launch.namespace, program=program_of(context)) as reached:
            if not choice.matching:
                found = [await route.find(reached, name, workflow_id) for name in dict.fromkeys(names) or (None,)]
            else:
                matching = await choice.matches(reached, UNSUCCESSFUL)
                if launch.dry_run is None:
                    choice.confirm("rerun", matching)
                found = [await reached.runs.get(run["metadata"]["name"]) for run in matching]
            return [
                await reached.runs.with_definition(run) if run_manifests.scheduled_by(run) is not None else run
                for run in found
            ]

    bodies = []
    for found in asyncio.run(read()):
        _warn_of_previous(found)
        spec = {key: each for key, each in found["spec"].items() if key != "startPaused"}
        spec["input"] = with_input(spec, values, launch.parameters)
        bodies.append(copy_of(found, {key: each for key, each in spec.items() if each is not None}, new_name))
    if single:
        start_run(context, bodies[0], launch)
    else:
        start_runs(context, bodies, launch)


def _check_several(launch: Launch, new_name: str | None = None) -> None:
    """Check the options of a command that acts on several runs.

    Raises:
        BadParameter: An option is for one run.
    """
    if launch.follows:
        raise click.BadParameter("follows one run; leave it out for several", param_hint="--wait, --logs")
    if new_name is not None:
        raise click.BadParameter("names one run; leave it out for several", param_hint="--name")


def _warn_of_previous(run: Object) -> None:
    """Warn if a run of a Schedule reads the outcome of the Schedule's previous run, which only the operator can pass on."""
    tie = run_manifests.scheduled_by(run)
    if tie is None:
        return
    definition = mapping(run.get("status")).get("definition")  # code has none, and may read both
    previous = {"lastCompletionResult": tie.last_completion_result, "lastFailure": tie.last_failure}
    missing = [
        f"`schedule.{name}`"
        for name, each in previous.items()
        if each is not None and (definition is None or name in str(definition))
    ]
    if missing:
        click.echo(
            f"Warning: the new run does not receive {' and '.join(missing)}: only runs that the Schedule itself starts do, also "
            "with `schedule backfill`",
            err=True,
        )


@verb()
@runs_argument
@workflow_id_option
@option("--from", "steps", metavar="STEP", multiple=True, help="Run this step and all that follow again; repeatable")
@option("--reapply-signals/--no-reapply-signals", "reapply", default=True, help="Send later signals to the new run")
@option("--force", is_flag=True, help="Also retry a run whose retry has completed")
@option("--dry-run", "dry", is_flag=True, help="Print the runs, and change nothing")
@to_version_option
@reason_option
@_choice_options
@restarts_run
def retry(
    context: click.Context,
    launch: Launch,
    *,
    names: tuple[str, ...],
    workflow_id: str | None,
    steps: tuple[str, ...],
    reapply: bool,
    force: bool,
    dry: bool,
    to_version: str | None,
    reason: str,
    **chosen: Any,
) -> None:
    """Run the failed steps of closed runs again, and keep the rest.

    Starts a new run with the history up to the first failed step. It keeps the
    results of all successful steps, including later ones in other branches and
    items. Handlers such as `finally` and compensated steps run again. --from names
    further steps to run again, with all steps that follow, and items of loops by
    their index or by the values that `describe` shows; with it, you can also
    retry a completed run.

    A run of code, such as a flow in Python, keeps its history until the workflow
    task that started what failed last, or --from, the ID of an activity: what that
    task started at the same time, and all that followed, runs again. The new run is
    on the same version of the workers, unless --to-version names another one: after
    you have deployed a fix of a flow, pass --to-version current. If the code itself
    has failed, the new run continues from its last workflow task. Name such a run;
    --workflow and --selector retry only runs of Workflows in YAML.

    With --workflow or --selector, retries all failed and timed-out runs that match,
    after a confirmation. If a run was retried, only its last retry counts. A named
    run whose retry has completed is refused, unless you pass --force or --from.

    --output prints the Operation, and --output name the new run; with --wait or
    --logs, it prints the new run, as it is at the end or after --timeout, and
    everything else goes to standard error.

    Exit status: 0 done, 1 refused (for example, the run is open), 2 error,
    124 timeout. With --wait or --logs: 0 if the new run completed, 1 if it ended
    in another way.

    \b
    Examples:
      {program} retry order-42 --reason "charge is fixed"
      {program} retry order-42 --from charge --from 'rooms[3]'
      {program} retry sweep-7 --from 'train[lr=0.1]'
      {program} retry sweep-7 --to-version current
      {program} retry order-42 --logs
      {program} retry order-42 order-43
      {program} retry --workflow order-flow --since 12h --yes
    """
    launch.check()
    choice = Choice(names=names, workflow_id=workflow_id, **chosen)
    options: dict[str, Any] = {
        "namespace": launch.namespace,
        "cluster": launch.cluster,
        "wait": launch.wait is not False,
        "timeout": ANSWER_TIMEOUT,
        "output": launch.output,
    }
    several = not choice.single
    if several:
        _check_several(launch)
        if to_version is not None:
            raise click.BadParameter("requires exactly one run", param_hint="--to-version")
    if any(_BY_VALUE.search(step) for step in steps):
        steps = asyncio.run(_paths_of(context, choice, launch, steps))
    request = {"from": steps or None, "reapplySignals": None if reapply else False, "reason": reason or None}
    refused = {} if choice.matching or force or steps else asyncio.run(_already_retried(context, choice, launch))
    if refused and len(refused) == len(dict.fromkeys(names) or (None,)):
        raise AlreadyRetriedError("\nError: ".join(refused.values()))
    if several or dry:
        for message in refused.values():
            click.echo(f"Error: {message}", err=True)
        choice = replace(choice, names=tuple(name for name in names if name not in refused))
        send_to_choice(context, "retry", request, RequestOptions(**options), choice, phases=UNSUCCESSFUL, dry_run=dry)
        if refused:
            context.exit(ExitCode.NO)
        return
    target = TargetOptions(name=names[0] if names else None, workflow_id=workflow_id, **options)
    wanted = {"reapply_signals": reapply, "reason": reason, "to_version": to_version}
    word, request = asyncio.run(_request_of(context, target, steps, request, **wanted))
    started = send_to_start(context, word, request, target, follows=launch.follows)
    if started is not None:
        follow(context, started, launch)


_BY_VALUE = re.compile(r"\[[^\]]*=")
"""An item of a loop that is named by its values, such as `train[lr=0.1]`."""


async def _paths_of(context: click.Context, choice: Choice, launch: Launch, steps: tuple[str, ...]) -> tuple[str, ...]:
    """The paths of steps, some of which are named by the values of items, in the chosen run.

    Raises:
        UsageError: Several runs are chosen, whose items differ.
        CliError: The run cannot be read, or does not have exactly one step of a name.
    """
    if not choice.single:
        raise click.UsageError("--from names items by their values, which needs exactly one run")
    async with connect(context=launch.cluster, namespace=launch.namespace, program=program_of(context)) as reached:
        found = await reached.runs.find(choice.names[0] if choice.names else None, choice.workflow_id)
        found = await reached.runs.with_history(found)
    view = run_view.read_run(found, now=clock.now(), trace=replay.trace(found))
    paths = []
    for step in steps:
        matching = [path for path, title in view.titles.items() if step in logs.names_of(path, title)]
        if len(matching) != 1:
            which = f"several: {', '.join(f'`{path}`' for path in matching[:10])}" if matching else "none"
            raise CliError(f"--from: the run `{view.name}` must have one step `{step}`, but has {which}")
        paths += matching
    return tuple(paths)


async def _request_of(
    context: click.Context,
    target: TargetOptions,
    steps: tuple[str, ...],
    request: dict[str, Any],
    **options: Any,
) -> tuple[str, dict[str, Any]]:
    """Return the field and the value of the request for a run, which differ for runs of code. `options`: those of the request.

    Raises:
        RefusedError: There is nothing to run again.
    """
    async with connect(context=target.cluster, namespace=target.namespace, program=program_of(context)) as reached:
        try:
            found = await reached.runs.find(target.name, target.workflow_id)
            return await operations.retry_request(reached, found, steps=steps, **options)
        except RefusedError:
            raise
        except CliError:
            if options["to_version"] is not None:
                raise
            return "retry", request  # the Operation reports it


async def _already_retried(context: click.Context, choice: Choice, launch: Launch) -> dict[str | None, str]:
    """The named runs of which a retry has completed, each with an error; warns of failed retries, which have more results."""
    refused: dict[str | None, str] = {}
    async with connect(context=launch.cluster, namespace=launch.namespace, program=program_of(context)) as reached:
        for name in dict.fromkeys(choice.names) or (None,):
            try:
                found = await reached.runs.find(name, choice.workflow_id)
                later = await reached.runs.later(found)
            except CliError:
                continue  # the Operation reports it
            run = found["metadata"]["name"]
            completed = next((each for each in later if phase_of(each) == Phase.COMPLETED), None)
            if completed is not None:
                refused[name] = (
                    f"the run `{run}` was already retried: `{completed['metadata']['name']}` has completed; to run its steps "
                    "once more, pass --force, or name them with --from"
                )
            elif later:
                last = newest(later, 1)[0]["metadata"]["name"]
                click.echo(
                    f"Warning: `{last}` already retries the run `{run}`, and may have more results to keep", err=True
                )
    return refused


class AlreadyRetriedError(CliError):
    """A retry of the run has completed."""

    status = ExitCode.NO
