"""The pending workflow task of a run of code, and its last failure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.api.lenient import Json, integer, mapping, read_time
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.view import text
from perdure.view.failure import task_failure
from perdure.view.page import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTask:
    """A workflow task for a worker."""

    attempt: int
    scheduled: datetime | None
    started: datetime | None
    """When a worker started it, if the status records the start: usually it only records the response."""
    worker: str
    failed: str
    """The failure of an attempt, if the history records it: of consecutive failures, it only records the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCode:
    """The state of a run of code."""

    task_queue: str
    task: ShownTask | None
    """The pending workflow task; None if no task is pending."""


def read_code(reference: Json, state: Json, failed: Json) -> ShownCode | None:
    """Read the specific state of a run of code.

    Args:
        reference: The reference to the workflow in its spec.
        state: The engine's state; empty if the run has not started.
        failed: The event with the failure of its last workflow task; empty if the task has not failed.

    Returns:
        The state; None for a run of steps.
    """
    code = mapping(state.get("code"))
    queue: Any = code.get("taskQueue") or reference.get("taskQueue")
    if not queue or (not code and queue == WORKFLOWS_QUEUE):
        return None
    task = mapping(code.get("task"))
    return ShownCode(task_queue=str(queue), task=_task(task, failed) if task else None)


def _task(task: Json, failed: Json) -> ShownTask:
    return ShownTask(
        attempt=integer(task.get("attempt")) or 1,
        scheduled=read_time(task.get("scheduledTime")),
        started=read_time(task.get("startedTime")),
        worker=str(task.get("identity") or ""),
        failed=task_failure(failed) if failed else "",
    )


def standing(task: ShownTask, page: Page) -> str:
    """Describe the state of a workflow task.

    Args:
        task: The workflow task.
        page: The page for the output.

    Returns:
        For instance `attempt 2, no worker has answered since 2026-01-01T12:00:00Z (5s ago)`.
    """
    if task.started is not None:
        status = text.join(("running", f"by {task.worker}" if task.worker else None), " ")
        since: datetime | None = task.started
    else:
        status, since = "no worker has answered", task.scheduled
    status = text.join((status, f"since {page.moment(since)}" if since else None), " ")
    attempt = f"attempt {task.attempt}" if task.attempt > 1 or task.failed else None
    return text.join((text.join((attempt, status), ", "), f"failed before: {task.failed}" if task.failed else None))
