"""The timeouts of workflow tasks, and the recovery of tasks that another process has delivered."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from perdure.engine.code import Code, WorkflowTask
from perdure.engine.failures import TimeoutType
from perdure.engine.state import RunState

SPECULATIVE_START_TIMEOUT = timedelta(seconds=5)
"""How long a speculative task waits for a worker."""
_FIRST_EXTENSION, _LONGEST_EXTENSION = timedelta(seconds=5), timedelta(minutes=10)
_ATTEMPTS_WITHOUT_EXTENSION = 3


def wake_times(state: RunState) -> Iterator[datetime]:
    """Yield when the workflow task of a run needs its next step."""
    code = state.code
    if code is None:
        return
    if code.task is not None:
        found = deadline(code.task, code)
        if found is not None:
            yield found[0]
    elif code.wanted and state.first_decision_time:
        yield state.first_decision_time


def deadline(task: WorkflowTask, code: Code) -> tuple[datetime, TimeoutType] | None:
    """The next timeout of a task and its end; None if the task waits for a worker without a limit."""
    if task.started_time is not None:
        return task.started_time + _start_to_close(task), TimeoutType.START_TO_CLOSE
    if task.sticky_queue:
        return task.scheduled_time + code.sticky_timeout, TimeoutType.SCHEDULE_TO_START
    if task.speculative:
        return task.scheduled_time + SPECULATIVE_START_TIMEOUT, TimeoutType.SCHEDULE_TO_START
    return None


def _start_to_close(task: WorkflowTask) -> timedelta:
    """The time limit of a worker. It grows from the fourth attempt, so that a task that always fails keeps no worker busy.

    As on Temporal's server (service/history/workflow/workflow_task_state_machine.go: getStartToCloseTimeout).
    """
    if task.attempt <= _ATTEMPTS_WITHOUT_EXTENSION:
        return task.start_to_close_timeout
    extension = _FIRST_EXTENSION * (1 << min(task.attempt - _ATTEMPTS_WITHOUT_EXTENSION - 1, 16))
    return task.start_to_close_timeout + min(extension, _LONGEST_EXTENSION)


def reclaim(state: RunState, epoch: str) -> RunState:
    """Return a state in which workers can take a task that another process has delivered."""
    code = state.code
    if code is None or code.task is None or code.task.started_time is None or code.task.epoch == epoch:
        return state
    task = None if code.task.speculative else not_started(code.task)
    return msgspec.structs.replace(state, code=msgspec.structs.replace(code, task=task))


def not_started(task: WorkflowTask) -> WorkflowTask:
    """Return the task as it was before a worker took it."""
    return msgspec.structs.replace(
        task, started_time=None, started_event_id=0, epoch="", identity="", request_id="", sticky_queue=""
    )
