"""Suggests useful next commands for the state of a run, ready to copy."""

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from rich.text import Text

from perdure.api.json_values import Json, mapping
from perdure.api.pods import DEFAULT_CONTAINER
from perdure.view.page import Page
from perdure.view.runs.open_work import OpenActivity
from perdure.view.runs.run import CodeView, RunView, WorkflowTask
from perdure.view.runs.steps import StepView

Hint: TypeAlias = tuple[str, str]
"""The purpose, and the command."""

_MAX_ACTIVITIES = 3
_MAX_CONTAINERS = 3
_MAX_SIGNALS = 3
_NAMED = re.compile(r"`([a-z0-9.-]+)`")
"""Matches the first name of a run in a message."""
_LIMIT = re.compile(r"WorkflowLimit `([a-z0-9.-]+)`")
_ENDED_BY_REQUEST = frozenset({"Cancelled", "Terminated"})
_NO_LIMIT = "there is no valid WorkflowLimit"


def hints(run: RunView, page: Page) -> list[Hint]:
    """Find the useful next commands.

    Args:
        run: The run.
        page: The settings of the output.

    Returns:
        The purpose and the command of each hint; the most useful one is first.
    """
    first: dict[str, str] = {}  # each command once: several steps can wait for the same limit
    for purpose, command in _BY_PHASE.get(run.phase, _of_closed)(run, page):
        first.setdefault(command, purpose)
    return [(purpose, command) for command, purpose in first.items()]


def show(found: list[Hint]) -> Iterator[Text]:
    """Show hints.

    Args:
        found: The purpose and the command of each hint.

    Yields:
        Lines.
    """
    for purpose, command in found:
        yield Text(f"  {purpose}:", style="dim")
        yield Text(f"    {command}")


def _of_pending(run: RunView, page: Page) -> Iterator[Hint]:
    if not run.observed:
        yield (
            "no operator has seen the run yet; check whether one is running",
            page.kubectl(None, "get", "pods", "-A", "-l", "app.kubernetes.io/name=perdure"),
        )
    elif run.reason == "WorkflowNotFound":
        yield (
            "list the Workflows; the run starts once the Workflow exists",
            page.kubectl(run.namespace, "get", "workflows.perdure.dev"),
        )
    elif run.reason == "InvalidWorkflow" and run.workflow:
        yield (
            "show the Workflow; the run starts once it is valid",
            page.kubectl(run.namespace, "get", "workflow.perdure.dev", run.workflow, "-o", "yaml"),
        )
    elif run.reason == "RetryPolicyNotFound":
        yield (
            "list the RetryPolicies; the run starts once its RetryPolicy exists and is valid",
            page.kubectl(run.namespace, "get", "retrypolicies.perdure.dev"),
        )
    elif run.reason == "LimitNotFound":
        yield "list the WorkflowLimits; the run starts once its limit exists and is valid", _limits(run, page)
    elif run.reason == "LimitReached" and (limit := _NAMED.search(run.message)):
        yield "show who holds the limit, and who waits for it", _limits(run, page, limit[1], "-o", "yaml")
    elif run.reason == "WorkflowIdInUse" and (other := _NAMED.search(run.message)):
        yield "show the open run with its workflow ID", page.perdure(run.namespace, "describe", other[1])
    else:
        yield "follow it until it ends", page.perdure(run.namespace, "wait", run.name)
    yield "delete it", _delete(run, page)


def _of_open(run: RunView, page: Page) -> Iterator[Hint]:
    if run.phase == "Paused":
        yield "unpause it", page.perdure(run.namespace, "unpause", run.name)
    if run.undecided:
        yield (
            "the workflow task fails and is retried; see the log of the operator",
            page.kubectl("perdure-system", "logs", "deploy/perdure", "--since=15m"),
        )
    if run.code is not None and run.code.task is not None:
        yield from _of_task(run.code, run.code.task, run, page)
    waiting = [step for step in run.every_step() if step.kind == "waitForSignal" and step.state == "Waiting"]
    first = {step.target: step for step in reversed(waiting)}  # one step for each signal
    for step in [step for step in waiting if first[step.target] is step][:_MAX_SIGNALS]:
        until = min((timer.fires for timer in (step.timer, step.limit) if timer is not None), default=None)
        when = f" (it times out {page.relative(until)})" if until is not None and until > page.now else ""
        yield (
            f"send the signal that `{step.path}` waits for{when}; --input takes data as JSON",
            page.perdure(run.namespace, "signal", run.name, "--name", step.target),
        )
    for activity in run.activities[:_MAX_ACTIVITIES]:
        yield from _of_activity(activity, run, page)
    for operation in [each for each in run.operations if each.last_failure][:_MAX_ACTIVITIES]:
        yield (
            f"`{operation.name}` has no response; an administrator can see which task queue its workers must poll",
            page.endpoint(operation.endpoint),
        )
    for child in [child for child in run.children if child.phase][:_MAX_ACTIVITIES]:
        yield f"the child of `{child.step}`", page.perdure(run.namespace, "describe", child.workflow_run)
    yield "follow it until it ends", page.perdure(run.namespace, "wait", run.name)
    yield "what has happened so far", page.perdure(run.namespace, "history", run.name)


def _of_task(code: CodeView, task: WorkflowTask, run: RunView, page: Page) -> Iterator[Hint]:
    queue = code.task_queue
    if code.failing and code.pinned:
        what = f"the workflow task fails, and the run stays on version `{code.build_id}` of its code: fix the code, deploy it,"
        yield (
            f"{what} and move the run to the new version, where it continues without repeating what is done",
            page.perdure(run.namespace, "set-version", run.name),
        )
        yield "why it fails", page.perdure(run.namespace, "history", run.name, "--detailed")
    elif code.failing:
        yield (
            f"the workflow task fails: fix the code and deploy the worker of `{queue}`; the run then continues. Details",
            page.perdure(run.namespace, "history", run.name, "--detailed"),
        )
    elif task.started is None:
        yield f"no worker has answered; see which workers poll task queue `{queue}`", page.pollers(run.namespace, queue)


def _of_activity(activity: OpenActivity, run: RunView, page: Page) -> Iterator[Hint]:
    pod = activity.pod
    if activity.task_queue:
        if activity.state == "Scheduled" and not activity.waits_for:
            yield (
                f"`{activity.step}` waits for a worker; see which workers poll task queue `{activity.task_queue}`",
                page.pollers(run.namespace, activity.task_queue),
            )
        return
    if activity.state == "BackingOff":
        step = next((step for step in run.every_step() if step.path == activity.step), None)
        failed = [name for name in (step.pods if step else ()) if _exists(name, run)]
        if failed:
            yield f"why `{activity.step}` failed", _logs(failed[-1], activity.last_failure, run, page)
    elif activity.state == "Running" and pod and _exists(pod, run):
        yield from _of_running(activity, pod, run, page)
    elif activity.waits_for and (limit := _LIMIT.search(activity.waits_for)):
        if activity.waits_for.startswith(_NO_LIMIT):
            purpose = f"list the WorkflowLimits; `{activity.step}` starts once `{limit[1]}` exists and is valid"
            yield purpose, _limits(run, page)
        else:
            purpose = f"show who holds the limit that `{activity.step}` waits for"
            yield purpose, _limits(run, page, limit[1], "-o", "yaml")
    elif activity.waits_for and pod and _exists(pod, run):
        yield f"why the pod of `{activity.step}` does not start", page.kubectl(run.namespace, "describe", "pod", pod)


def _of_running(activity: OpenActivity, pod: str, run: RunView, page: Page) -> Iterator[Hint]:
    live = run.live.attempts.get(pod) if run.live is not None else None
    if live is None or not live.containers:
        yield f"what `{activity.step}` is doing", page.kubectl(run.namespace, "logs", "-f", pod)
        return
    for container in live.containers[:_MAX_CONTAINERS]:
        purpose = f"what container `{container}` of `{activity.step}` is doing"
        yield purpose, page.kubectl(run.namespace, "logs", "-f", pod, "-c", container)


def _limits(run: RunView, page: Page, *arguments: str) -> str:
    return page.kubectl(run.namespace, "get", "workflowlimits.perdure.dev", *arguments)


def _of_prints(run: RunView, page: Page) -> Iterator[Hint]:
    """Suggest the logs of steps that may have printed their result instead of returning it."""
    for step in [step for step in run.every_step() if _printed_only(step, run)][:_MAX_ACTIVITIES]:
        yield (
            f"what `{step.path}` printed; a container returns what it writes to /dev/termination-log, not that",
            page.kubectl(run.namespace, "logs", step.pods[-1]),
        )


def _of_completed(run: RunView, page: Page) -> Iterator[Hint]:
    yield from _of_prints(run, page)
    yield "every event with its attributes", page.perdure(run.namespace, "history", run.name, "--detailed")
    if run.output is not None:
        yield (
            "the whole output",
            page.kubectl(run.namespace, "get", "workflowrun", run.name, "-o", "jsonpath={.status.output}"),
        )
    yield _removal(run, page)


def _of_closed(run: RunView, page: Page) -> Iterator[Hint]:
    if run.chain.continued_as:
        yield "the run that continues it", page.perdure(run.namespace, "describe", run.chain.continued_as)
    if run.retries:
        yield "the run that retries it", page.perdure(run.namespace, "describe", run.retries[-1].name)
    failed = [step for step in run.every_step() if step.state in {"Failed", "Stopped"}]
    logs = [(step, [name for name in step.pods if _exists(name, run)]) for step in failed]
    for step, pods in [(step, pods) for step, pods in logs if pods][:_MAX_ACTIVITIES]:
        last = pods[-1] == step.pods[-1]
        what = "the log of the last attempt" if last else "the log of an earlier attempt, whose pod exists,"
        yield f"{what} of `{step.path}`", _logs(pods[-1], step.failure if last else None, run, page)
    yield from _of_prints(run, page)
    if (
        not run.chain.continued_as
        and not run.retries
        and run.activity is None
        and run.operation is None
        and (run.steps or run.code is not None)
        and (run.phase not in _ENDED_BY_REQUEST or any(step.state == "Failed" for step in run.every_step()))
    ):
        yield _repetition(run, page)
    elif run.phase in _ENDED_BY_REQUEST and not run.retries and run.activity is None and run.operation is None:
        yield "run it again from the start, with the same input", page.perdure(run.namespace, "rerun", run.name)
    yield "every event with its attributes", page.perdure(run.namespace, "history", run.name, "--detailed")
    yield _removal(run, page)


def _repetition(run: RunView, page: Page) -> Hint:
    if run.code is None:
        what = "run the failed steps again in a new run, and keep the other results"
        return f"after you fix the cause: {what}", page.perdure(run.namespace, "retry", run.name)
    what = "run it again in a new run, from the workflow task that started what failed"
    if run.failed_from is None:
        what = "run it again in a new run, from its last workflow task"
    if run.code.pinned:
        fixed = f"after you fix the cause, and deploy a change of the code: {what}"
        return fixed, page.perdure(run.namespace, "retry", run.name, "--to-version", "current")
    arguments = ("retry", run.name) if run.failed_from else ("reset", run.name, "--type", "LastWorkflowTask")
    return f"after you fix the cause: {what}", page.perdure(run.namespace, *arguments)


def _removal(run: RunView, page: Page) -> Hint:
    when = "the operator deletes it after its TTL"
    if run.removed_at is not None:
        when = (
            f"the operator deletes it {page.relative(run.removed_at)}"
            if run.removed_at > page.now
            else "its deletion is due"
        )
    return f"delete it, to start another run of that name ({when})", _delete(run, page)


def _delete(run: RunView, page: Page) -> str:
    return page.kubectl(run.namespace, "delete", "workflowrun", run.name)


def _printed_only(step: StepView, run: RunView) -> bool:
    """Whether a step with an existing pod has a doubtful result, or is the last one and the run has no output."""
    last = run.output is None and bool(run.steps) and step is run.steps[-1] and step.state == "Succeeded"
    return (bool(step.remark) or last) and bool(step.pods) and _exists(step.pods[-1], run) and run.live is not None


def _logs(pod: str, failure: Json | None, run: RunView, page: Page) -> str:
    """Return the command that shows why an attempt in a pod failed."""
    container = _failed_container(failure)
    return page.kubectl(run.namespace, "logs", pod, *(("-c", container) if container else ()))


def _failed_container(failure: Json | None) -> str:
    """Return the container that failed, unless its pod has the usual one: `kubectl logs` shows the first by default."""
    details = mapping(mapping(failure).get("details"))
    container = str(details.get("container") or "") if "exitCode" in details else ""
    return "" if container == DEFAULT_CONTAINER else container


def _exists(pod: str, run: RunView) -> bool:
    """Whether the pod exists, or may exist if the cluster was not queried."""
    return run.live is None or pod in run.live.pods


_BY_PHASE: dict[str, Callable[[RunView, Page], Iterator[Hint]]] = {
    "Pending": _of_pending,
    "Running": _of_open,
    "Paused": _of_open,
    "Completed": _of_completed,
}
