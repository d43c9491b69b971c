"""Runs of a program that fail, and their resets to the last workflow task."""

from copy import copy
from typing import Any, Self, TypeVar

import yaml

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.engine import history
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.resets import begin, kept_results, reset_event, restarted, since
from perdure.engine.state import RunStatus
from perdure.language.compiler import compile_program
from perdure.language.interpreter import Interpreter, RunScope
from perdure.language.resets import RetryPlan, last_task, plan_retry
from support.engine.script import T0, Drive, seconds

SCOPE = RunScope(name="r", namespace="n", workflow_id="w", run_id="r", attempt=1)
COMMON = """
activities: [{name: work, container: {image: i}, startToCloseTimeout: 60s}]
blocks:
- {name: tidy, steps: [{name: note, activity: {name: work}}]}
- {name: tidy-and-fail, steps: [{name: note, activity: {name: work}}, {name: stop, fail: {type: Stopped}}]}
finally: {block: tidy}
"""
BAD = Failure(kind=FailureKind.APPLICATION, type="Bad", message="no", non_retryable=True)


class Run:
    """A run of a program in YAML, driven to its end."""

    def __init__(self, steps: str, **more: Any) -> None:
        spec = {**yaml.safe_load(COMMON), "steps": yaml.safe_load(steps), **more}
        self.program = compile_program(WorkflowSpec.parse(spec))
        self.decider = Interpreter(self.program, SCOPE, input=None, start_time=T0)
        self.drive = Drive.by(self.decider)
        self.clock = 0.0

    def at(self, *inputs: inp.RunInput, after: float = 1) -> Self:
        self.clock += after
        self.drive.at(self.clock, *inputs)
        return self

    def key(self, path: str) -> dict[str, int]:
        (found,) = (a for a in self.drive.state.activities.values() if a.activity_id == path)
        return {"scheduled_event_id": found.scheduled_event_id, "attempt": found.attempt}

    def done(self, *paths: str) -> Self:
        for path in paths:
            self.at(inp.AttemptCompleted(**self.key(path), result=path))
        return self

    def failed(self, path: str) -> Self:
        return self.at(inp.AttemptFailed(**self.key(path), failure=BAD))

    def open(self) -> list[str]:
        return [activity.activity_id for activity in self.drive.state.activities.values()]

    @property
    def point(self) -> int:
        return last_task(self.drive.history, self.program, SCOPE, input=None, start_time=T0)

    @property
    def type_at_point(self) -> str:
        return type(self.drive.history[self.point - 1]).__name__

    def reset(self) -> Self:
        """The run created by a reset to the point."""
        first: Any = self.drive.history[0]
        other = copy(self)
        other.clock += 10
        now, point = T0 + seconds(other.clock), self.point
        state = history.fork(self.drive.history, point, self.decider)
        reported = reset_event(first, point + 1, now, base_run_id="r", new_run_id="s", successor="next")
        later = list(since(state, self.drive.history[point:], "r", signals=True))
        other.drive = Drive(self.decider, now=now, history=list(self.drive.history[:point]))
        other.drive.take(begin(state, reported, later, self.decider, ()))
        return other

    @property
    def status(self) -> RunStatus:
        return self.drive.state.status


def do(name: str, more: str = "") -> str:
    return f"{{name: {name}, activity: {{name: work}}{more}}}"


def plan(run: Run, *steps: str) -> RetryPlan:
    return plan_retry(run.drive.history, run.program, SCOPE, input=None, start_time=T0, steps=steps)


AnyRun = TypeVar("AnyRun", bound=Run)


def retried(run: AnyRun, *steps: str) -> AnyRun:
    """The run that does it again, a minute later."""
    found, past = plan(run, *steps), run.drive.history
    state = history.fork(past, found.point, run.decider)
    first: Any = past[0]
    now = T0 + seconds(run.clock + 60)
    before, later = past[: found.point], past[found.point :]
    starts = restarted(state, before, later, str, found.repeated)
    reported = reset_event(
        first, found.point + 1, now, base_run_id="r", new_run_id="s", successor="next", restarted=starts
    )
    new = copy(run)
    new.clock += 60
    new.drive = Drive(run.decider, now=now, history=list(before))
    again = list(since(state, later, "r", signals=True, restarted=starts))
    new.drive.take(begin(state, reported, again, run.decider, (), kept=kept_results(state, later, found.kept)))
    return new
