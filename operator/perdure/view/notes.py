"""Formats notes about a step in one line."""

from perdure.view import text
from perdure.view.facts import ShownRun
from perdure.view.failure import summary
from perdure.view.openings import OpenActivity, OpenChild, OpenOperation
from perdure.view.page import Page
from perdure.view.steps import ShownStep


def note(step: ShownStep, run: ShownRun, page: Page) -> str:
    """Return the note about a step, with information that its line does not contain.

    Args:
        step: The step.
        run: Its run.
        page: The page for the output.

    Returns:
        One line; empty if there is no note.
    """
    match step.state:
        case "Succeeded" | "Compensated":
            cached = f"cached result {step.cached}" if step.cached else ""
            note = text.join((cached, _before(step), step.remark))
        case "Failed" | "TimedOut" | "Terminated":
            note = _failed(step, run)
        case "Skipped":
            note = "its `when` was false"
        case "Stopped":
            note = f"interrupted when the run ended {run.phase}"
        case "Running" if run.closed:
            note = f"keeps running after the run ended {run.phase}"
        case _:
            note = _pending(step, page)
    if step.earlier_run and step.kind in {"activity", "childWorkflow", "child"} and not step.steps:
        note = text.join((f"ran in the earlier run {step.earlier_run}", note))
    if step.limit is not None and not run.closed:
        note = text.join((note, f"times out {page.near(step.limit.fires)}"))
    return text.one_line(note)


def _pending(step: ShownStep, page: Page) -> str:
    """Return the state of an open step and the reason of its wait."""
    if step.open is not None and step.kind == "limits":
        return step.open.waits_for or "waits for its WorkflowLimits"
    if step.open is not None:
        return _attempt(step.open, page)
    if step.child is not None:
        return _child(step.child)
    if step.operation is not None:
        return _operation(step.operation, page)
    return _waiting(step, page) if step.state == "Waiting" else ""


def _before(step: ShownStep) -> str:
    """Return the failures before the step succeeded."""
    if step.failure:  # its `catch` has handled it
        return f"caught: {summary(step.failure)}"
    return f"attempt {(step.attempt or 2) - 1} failed: {summary(step.last_failure)}" if step.last_failure else ""


def _failed(step: ShownStep, run: ShownRun) -> str:
    """Return why a step failed, if no step inside it shows the failure."""
    if any(inner.state == "Failed" for inner in step.steps):
        return ""
    # The failure of a run of steps is that of one of them.
    of_run = run.code is None and "/" not in step.path and not step.path.startswith(":")
    failure = step.failure or (run.failure if of_run else None)
    return text.join((summary(failure) if failure else "", step.retry_state))


def _waiting(step: ShownStep, page: Page) -> str:
    if step.timer is None:
        return step.note
    verb = "times out" if step.kind in {"waitForSignal", "waitUntil"} else "fires"
    return text.join((step.note, "is due" if step.timer.fires <= page.now else f"{verb} {page.near(step.timer.fires)}"))


def _child(child: OpenChild) -> str:
    where = f"run {child.workflow_run}" if child.workflow_run else f"workflow ID {child.workflow_id}"
    return text.join((where, text.join((child.phase, child.progress), " "), child.waits_for))


def _operation(operation: OpenOperation, page: Page) -> str:
    cancellation = "cancellation requested" if operation.cancellation else None
    if operation.started is not None:
        return text.join((f"started in namespace {operation.handler_namespace}", cancellation))
    due = page.near(operation.next_attempt) if operation.next_attempt else "waits for its handler"
    before = operation.last_failure
    failed = f"attempt {operation.attempt - 1} failed: {summary(before)}" if before else None
    return text.join((f"attempt {operation.attempt} {due}", failed, cancellation))


def _attempt(activity: OpenActivity, page: Page) -> str:
    attempt = f"attempt {activity.attempt}"
    failed = f"attempt {activity.attempt - 1} failed: {summary(activity.last_failure)}" if activity.last_failure else ""
    if activity.next_attempt is not None:
        return text.join((f"{attempt} {page.near(activity.next_attempt)}", failed))
    if activity.state == "Scheduled":
        whom = "a worker" if activity.task_queue else "its pod"
        return text.join(
            (f"{attempt}: {activity.waits_for}" if activity.waits_for else f"{attempt} waits for {whom}", failed)
        )
    return text.join((heartbeat(activity, page), failed))


def heartbeat(activity: OpenActivity, page: Page) -> str:
    """Describe the last heartbeat of an attempt: its time and details.

    Args:
        activity: The open activity.
        page: The page for the output.

    Returns:
        One line; empty if there was none.
    """
    details = "" if activity.details is None else text.value(activity.details)
    if activity.heartbeat is None:
        return f"last heartbeat: {details}" if details else ""
    return text.join((f"heartbeat {page.near(activity.heartbeat)}", details), ": ")
