"""Verbs that send a request to a run, as an Operation."""

import asyncio
from typing import Any

import click

from perdure.api.policies import ResetPoint
from perdure.cli.command import Decorator, Verb, WholeNumber, Words, option, stacked, verb
from perdure.cli.connection import connect
from perdure.cli.inputs import value
from perdure.cli.operations import (
    BatchOptions,
    TargetOptions,
    reason_option,
    request_to_run,
    request_to_runs,
    send,
    send_to_runs,
    send_to_start,
    step_option,
)
from perdure.cli.options import check_named, open_workflow_id_option, run_argument, runs_argument, to_version_option
from perdure.cli.starts import check_input
from perdure.cli.terminal import program_of
from perdure.client import versions


def _request(name: str, text: str, *options: Decorator) -> Verb:
    """Create the verb of a request to runs whose fields are its options.

    Args:
        name: The name of the verb, and the field of the request in the spec of an Operation.
        text: The help.
        options: The options of the verb in addition to `--reason`.
    """

    @request_to_runs
    def request(context: click.Context, batch: BatchOptions, *, reason: str, **fields: Any) -> None:
        send_to_runs(context, name, {**fields, "reason": reason or None}, batch)

    decorated = stacked((runs_argument, open_workflow_id_option, *options, reason_option))(request)
    return click.command(name, cls=Verb, help=text)(decorated)


cancel = _request(
    "cancel",
    """Request the cancellation of runs, by name, or of all open runs that match.

The run executes its handlers (`onCancel`, `finally`) before it ends. The
command returns as soon as the run has recorded the request; to wait for the
end, use `{program} wait`.

Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
124 timeout.

\b
Examples:
  {program} cancel order-42 --reason "ordered twice"
  {program} cancel --workflow-id order-42
  {program} cancel order-42 order-43
  {program} cancel --workflow order-flow --dry-run
  {program} cancel --selector team=shop --yes
""",
)

terminate = _request(
    "terminate",
    """Close runs immediately, without handlers, and delete their pods.

Takes names, or closes all open runs that match, after a confirmation.

Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
124 timeout.

\b
Examples:
  {program} terminate order-42 --reason "runs in circles"
  {program} terminate --workflow-id order-42
  {program} terminate --workflow order-flow --yes
""",
)

stop = _request(
    "stop",
    """Stop runs: cancel their open steps, and run only `finally`.

Compensations and `onCancel` do not run; use `cancel` to run them. The runs end
as cancelled. Takes names, or stops all open runs that match, after a confirmation.

Exit status: 0 done, 1 refused (for example, SDK workers run it), 2 error,
124 timeout.

\b
Examples:
  {program} stop order-42 --reason "wrong input"
  {program} stop --selector team=shop --yes
""",
)

pause = _request(
    "pause",
    """Pause runs, by name, or all open runs that match.

Running activities continue, and nothing new starts. With --step, pauses only
the activity of that step: no new attempts start.

Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
124 timeout.

\b
Examples:
  {program} pause order-42 --reason "the bank is down"
  {program} pause order-42 --step charge
  {program} pause --selector team=shop --yes
""",
    step_option,
)

unpause = _request(
    "unpause",
    """Unpause runs, by name, or all open runs that match.

A run that was created paused starts. With --step, unpauses only the activity
of that step.

Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
124 timeout.

\b
Examples:
  {program} unpause order-42
  {program} unpause order-42 --step charge
  {program} unpause --selector team=shop --yes
""",
    step_option,
)


@verb()
@run_argument
@open_workflow_id_option
@option("--step", required=True, help="Step of the activity, such as rooms[3]")
@option("--result", help="Succeed with this output")
@option("--failure", help="Fail with this failure type")
@option("--cancelled", is_flag=True, help="Confirm the cancellation")
@option("--message", default="", show_default=False, help="Message of the failure")
@option("--details", help="Details of the failure or cancellation")
@option("--non-retryable", "final", is_flag=True, help="Do not retry the failure")
@request_to_run
def complete(
    context: click.Context,
    target: TargetOptions,
    *,
    step: str,
    result: str | None,
    failure: str | None,
    cancelled: bool,
    message: str,
    details: str | None,
    final: bool,
) -> None:
    """Complete a pending activity from outside.

    With --result, the activity succeeds. With --failure, the attempt fails and
    the retry policy applies. With --cancelled, the activity ends as cancelled on
    request. --result and --details take JSON or @FILE.

    Exit status: 0 done, 1 refused (for example, the run is closed), 2 error,
    124 timeout.

    \b
    Examples:
      {program} complete order-42 --step charge --result @receipt.json
      {program} complete order-42 --step charge --failure CardDeclined \\
        --message "declined by phone" --non-retryable
    """
    if sum((result is not None, failure is not None, cancelled)) != 1:
        raise click.BadParameter("set one of the three", param_hint="--result, --failure, --cancelled")
    parsed = value(details, "--details")
    carried = {} if parsed is None else {"details": parsed}
    request: dict[str, Any] = {"step": step}
    if result is not None:
        output_ = value(result, "--result")
        request["result"] = {} if output_ is None else {"output": output_}
    elif failure is not None:
        request["failure"] = {"type": failure, "message": message, "nonRetryable": final, **carried}
    else:
        request["cancelled"] = carried
    send(context, "completeActivity", request, target)


@verb()
@run_argument
@open_workflow_id_option
@option("--event-id", metavar="N", type=WholeNumber(min=1), help="ID of the last event to keep")
@option(
    "--type", "point", type=Words(ResetPoint), help="Instead of --event-id: before the first or the last workflow task"
)
@option("--reapply-signals/--no-reapply-signals", "reapply", default=True, help="Send later signals to the new run")
@to_version_option
@reason_option
@request_to_run
def reset(
    context: click.Context,
    target: TargetOptions,
    *,
    event_id: int | None,
    point: ResetPoint | None,
    reapply: bool,
    to_version: str | None,
    reason: str,
) -> None:
    """Start a new run from a point in the history of a run.

    The new run begins with the history up to that point. If the old run is open,
    it is terminated. The new run gets the signals that arrived later.

    A run of code stays on the version of its workers, such as the code of a flow
    with which it started, unless --to-version names another one. A reset to the
    first workflow task begins on the current version.

    Exit status: 0 done, 1 refused (for example, no such event), 2 error,
    124 timeout.

    \b
    Examples:
      {program} reset order-42 --event-id 12 --reason "charge is fixed"
      {program} reset order-42 --type FirstWorkflowTask
      {program} reset order-42 --type LastWorkflowTask
      {program} reset nightly-7 --type LastWorkflowTask --to-version current
    """
    if (event_id is None) == (point is None):
        raise click.BadParameter("set one of the two", param_hint="--event-id, --type")
    to = point and point.value
    request: dict[str, Any] = {"eventId": event_id, "to": to, "reapplySignals": reapply, "reason": reason or None}
    if to_version is not None:
        request["updateOptions"] = asyncio.run(_moved(context, target, to_version))
    send(context, "reset", request, target)


async def _moved(context: click.Context, target: TargetOptions, to: str) -> dict[str, Any]:
    """The options with which the run that a reset starts is on a version.

    Raises:
        CliError: The run, or the version, cannot be found.
    """
    check_named(target.name, target.workflow_id)
    async with connect(context=target.cluster, namespace=target.namespace, program=program_of(context)) as cluster:
        found = await cluster.runs.find(target.name, target.workflow_id)
        return await versions.options_of_move(cluster, [found], to)


@verb()
@run_argument
@open_workflow_id_option
@option("--step", required=True, help="Step of the activity, such as rooms[3]")
@option("--reset-heartbeats", "heartbeat", is_flag=True, help="Also discard the details of the last heartbeat")
@option("--keep-paused", is_flag=True, help="Do not unpause the activity")
@request_to_run
def reset_activity(
    context: click.Context, target: TargetOptions, *, step: str, heartbeat: bool, keep_paused: bool
) -> None:
    """Count the attempts of a pending activity from 1 again.

    A retry that is due later starts immediately, and the retry policy permits its
    maximum number of attempts again. A running attempt continues. The activity is
    named by its step; for a workflow as code, by its activity ID.

    Exit status: 0 done, 1 refused (for example, the activity has ended), 2 error,
    124 timeout.

    \b
    Examples:
      {program} reset-activity order-42 --step charge
      {program} reset-activity order-42 --step 'rooms[3]' --reset-heartbeats
    """
    send(context, "resetActivity", {"step": step, "resetHeartbeat": heartbeat, "keepPaused": keep_paused}, target)


@verb()
@runs_argument
@open_workflow_id_option
@option("--name", "signal", required=True, help="Name of the signal")
@option("--input", "-i", "input_text", help="Input of the signal: JSON or @FILE")
@option("--start", help="Workflow to start if no run is open; requires --workflow-id")
@option("--start-input", help="Input of that run: JSON or @FILE")
@request_to_runs
def signal(
    context: click.Context,
    batch: BatchOptions,
    *,
    signal: str,
    input_text: str | None,
    start: str | None,
    start_input: str | None,
) -> None:
    """Send a signal to runs, by name, or to all open runs that match.

    A run receives the signal exactly once, in order. With --start, a run of that
    Workflow starts first if no run with the workflow ID is open.

    Warns if the workflow never waits for a signal of that name.

    Exit status: 0 done, 1 refused (the run is closed, or the input of the new run
    is invalid), 2 error, 124 timeout.

    \b
    Examples:
      {program} signal order-42 --name approved --input true
      {program} signal -w order-42 --name approved --input @approval.json
      {program} signal --selector team=shop --name reload --rps 10 --yes
      {program} signal -w cart-7 --name add --input '"lamp"' --start cart
    """
    request = {"name": signal, "input": value(input_text, "--input")}
    if start is None:
        if start_input is not None:
            raise click.BadParameter("requires --start", param_hint="--start-input")
        send_to_runs(context, "signal", request, batch)
        return
    if batch.choice.matching or batch.dry_run or batch.rps is not None:
        raise click.BadParameter("leave out --selector, --workflow, --rps, and --dry-run", param_hint="--start")
    target = batch.one
    if target.workflow_id is None:
        raise click.BadParameter("requires --workflow-id, because it may have to start the run", param_hint="--start")
    run = {"workflow": {"name": start}, "input": value(start_input, "--start-input")}
    run = {key: each for key, each in run.items() if each is not None}
    asyncio.run(_check(context, start, run.get("input"), target, target.workflow_id))
    send_to_start(context, "signalWithStart", {**request, "start": run}, target)


async def _check(context: click.Context, workflow: str, input_: Any, target: TargetOptions, workflow_id: str) -> None:
    """Before sending the request, check the input of the run to start if no run is open."""
    async with connect(context=target.cluster, namespace=target.namespace, program=program_of(context)) as cluster:
        if await cluster.runs.open_run(workflow_id) is None:
            await check_input(cluster, workflow, input_)
