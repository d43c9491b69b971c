"""The workflow task in the state of a run, and the events that record it."""

from datetime import datetime
from typing import Any

import msgspec

from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.code import Code, WorkflowTask
from perdure.engine.ledger import Ledger


class TaskRecord:
    """Reads and changes the workflow task of a run during a step."""

    def __init__(self, ledger: Ledger) -> None:
        """`ledger`: collects the output of the step."""
        self.ledger = ledger
        self.completed_event_id = 0
        """ID of the WorkflowTaskCompleted of the decision, while the decision is recorded."""
        self.identity = ""
        """The worker that made the decision, while the decision is recorded."""
        self.following: inp.TaskTaken | None = None
        """How the worker takes the next task after its decision is recorded; None if it does not want one with the answer."""

    @property
    def code(self) -> Code:
        """The state for the workers."""
        code = self.ledger.state.code
        assert code is not None
        return code

    @property
    def task(self) -> WorkflowTask | None:
        """The task; None if none is scheduled."""
        return self.code.task

    def change(self, **attributes: Any) -> None:
        """Change the state for the workers."""
        self.ledger.change(code=msgspec.structs.replace(self.code, **attributes))

    def change_task(self, **attributes: Any) -> None:
        """Change the task."""
        assert self.code.task is not None
        self.change(task=msgspec.structs.replace(self.code.task, **attributes))

    def held_by(self, token: inp.TaskToken) -> WorkflowTask | None:
        """The task, if the worker with this token is deciding it."""
        task = self.code.task
        if task is None or task.started_time is None or not self.ledger.open():
            return None
        held = inp.TaskToken(
            scheduled_event_id=task.number,
            started_event_id=task.started_event_id,
            attempt=task.attempt,
            epoch=task.epoch,
        )
        return task if held == token else None

    def schedule(self, attempt: int, *, original: datetime | None = None) -> None:
        """Schedule a task. Only the first attempt is written immediately; others are written when one succeeds."""
        code, now = self.code, self.ledger.now
        if attempt == 1:
            self.ledger.emit(
                ev.WorkflowTaskScheduled(
                    task_queue=code.sticky_queue or code.task_queue,
                    sticky=bool(code.sticky_queue),
                    normal_name=code.task_queue if code.sticky_queue else "",
                    start_to_close_timeout=code.task_timeout,
                    **self.ledger.here,
                ),
                decide=False,
            )
            if original is not None:
                self.change_task(original_scheduled_time=original)
            return
        task = WorkflowTask(
            attempt=attempt,
            scheduled_time=now,
            original_scheduled_time=now,
            start_to_close_timeout=code.task_timeout,
            seen_event_id=self.ledger.state.next_event_id,
        )
        self.change(task=task, wanted=False)
        self.ledger.durable = True

    def convert_speculative(self) -> None:
        """Convert a speculative task to a normal one, because something else happens before a worker takes it."""
        task = self.code.task
        if task is not None and task.speculative and task.started_time is None:
            self.change(task=None)
            self.schedule(attempt=1)

    def write_scheduled(self, task: WorkflowTask) -> None:
        """Write the WorkflowTaskScheduled of a task that has none yet."""
        self.ledger.emit(
            ev.WorkflowTaskScheduled(
                task_queue=self.code.task_queue,
                start_to_close_timeout=task.start_to_close_timeout,
                attempt=task.attempt,
                event_id=self.ledger.state.next_event_id,
                event_time=task.scheduled_time,
            ),
            decide=False,
        )

    def write_started(self, task: WorkflowTask) -> None:
        """Write the WorkflowTaskStarted of the task, and its WorkflowTaskScheduled if it has none yet."""
        ledger = self.ledger
        if not task.scheduled_event_id:
            self.write_scheduled(task)
        ledger.emit(
            ev.WorkflowTaskStarted(
                event_id=ledger.state.next_event_id,
                event_time=task.started_time or ledger.now,
                scheduled_event_id=task.number,
                identity=task.identity,
                request_id=task.request_id,
                suggest_continue_as_new=task.suggest_continue_as_new,
                history_size_bytes=task.history_size_bytes,
                target_worker_deployment_version_changed=task.target_version_changed,
            ),
            decide=False,
        )
