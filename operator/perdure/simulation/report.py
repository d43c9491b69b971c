"""The outcome of a simulation as JSON, and its comparison with the expectations."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from perdure.api.phases import Phase
from perdure.api.times import format_decimal_duration, format_time
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.failures import Failure
from perdure.engine.state import RunStatus
from perdure.language.coercion import format_value
from perdure.language.memory import load_memory
from perdure.language.step_failures import as_json, matches, steps_of
from perdure.language.step_paths import Path
from perdure.language.step_tree import StepNode
from perdure.simulation.scenario import Between, Expect
from perdure.simulation.simulator import Simulator
from perdure.simulation.transcript import Attempt, SimulatedChain, SimulatedChild, SimulatedRun, length

Json = dict[str, Any]

_SLACK = timedelta(milliseconds=1)
"""Tolerance of expected times: manifests cannot express smaller units."""


class Report:
    """The outcome of a simulation."""

    def __init__(self, world: Simulator) -> None:
        self.transcript = world.transcript
        self.root = self.transcript.root
        self.last = self.root.current
        self.start = world.start
        self.schedules = world.definitions.schedules
        """The Schedules that start the Workflow, if the scenario names none of them."""
        closed = self.last.state.close_time if self.last.state else None
        self.elapsed = (closed or self.transcript.end) - self.start

    # Details

    @property
    def phase(self) -> str:
        """The phase of the last run of the chain."""
        return _phase(self.root)

    @property
    def output(self) -> Any:
        """The output of the run, if it completed."""
        return getattr(self.last.events[-1], "result", None) if self.root.status is RunStatus.COMPLETED else None

    @property
    def failure(self) -> Failure | None:
        """The failure of the run, if it did not complete."""
        return ev.failure_of(self.last.events[-1])

    @property
    def attempts(self) -> dict[str, list[Attempt]]:
        """The attempts by activity, over all runs."""
        found: dict[str, list[Attempt]] = {}
        for attempt in self.transcript.attempts:
            found.setdefault(attempt.activity, []).append(attempt)
        return found

    @property
    def waits_for(self) -> list[str]:
        """The conditions that the last run waits for if it has not closed. None of them will occur."""
        return list(_waits_for(self.last)) if self.root.open else []

    # As JSON

    def as_json(self) -> Json:
        """The report with the field names of a run's status; times are in seconds since the start."""
        report: Json = {
            "phase": self.phase,
            "output": self.output,
            "failure": as_json(self.failure) if self.failure else None,
            "elapsed": _number(self.elapsed),
            "runs": len(self.root.runs),
            "name": self.root.runs[0].name,
            "workflow": self.root.workflow.workflow_type,
            "workflowId": self.root.workflow.workflow_id,
            "startTime": format_time(self.start),
        }
        if self.root.open:
            report["waitsFor"] = self.waits_for
        report["attempts"] = {
            activity: [self._attempt(attempt) for attempt in attempts] for activity, attempts in self.attempts.items()
        }
        report["steps"] = self._steps(self.last.steps)
        report["events"] = [event for run in self.root.runs for event in self._events(run)]
        report["children"] = [self._child(p) for p in self.transcript.executions if p is not self.root]
        if self.transcript.dead_letters:
            report["deadLetters"] = self.transcript.dead_letters
        return report

    def _attempt(self, attempt: Attempt) -> Json:
        report = {
            "run": attempt.run.name,
            "step": attempt.path,
            "attempt": attempt.number,
            "start": self._since(attempt.start) if attempt.end is None or attempt.start <= attempt.end else None,
            "end": self._since(attempt.end),
            "outcome": attempt.outcome,
        }
        return report | ({"failure": as_json(attempt.failure)} if attempt.failure else {})

    def _steps(self, steps: Iterable[StepNode]) -> list[Json]:
        return [
            {
                "name": step.name,
                "path": step.path,
                "kind": step.part or step.kind,
                **({"target": target} if (target := target_of(step)) else {}),
                "status": step.state,
                "start": self._since(step.start),
                "end": self._since(step.end),
                **({"steps": self._steps(step.steps)} if step.steps else {}),
            }
            for step in steps
        ]

    def _events(self, run: SimulatedRun) -> Iterator[Json]:
        for event, data in zip(run.events, history.encode(run.events), strict=True):
            yield {**data, "run": run.name, "time": self._since(event.event_time)}

    def _child(self, child: SimulatedChain | SimulatedChild) -> Json:
        if isinstance(child, SimulatedChild):
            return {
                "workflow": child.workflow_type,
                "workflowId": child.workflow_id,
                "parent": child.parent[0].name,
                "phase": child.status.value,
                "scripted": True,
                "start": self._since(child.start),
                "end": self._since(child.end),
            }
        closing = child.current.events[-1]
        failure = ev.failure_of(closing)
        state = child.current.state
        return {
            "workflow": child.workflow.workflow_type,
            "workflowId": child.workflow.workflow_id,
            "name": child.runs[0].name,
            "parent": child.parent[0].name if child.parent else None,
            "phase": _phase(child),
            "output": getattr(closing, "result", None) if child.status is RunStatus.COMPLETED else None,
            "failure": as_json(failure) if failure else None,
            "runs": len(child.runs),
            "start": self._since(child.runs[0].first.event_time),
            "end": self._since(state.close_time if state else None),
            "steps": self._steps(child.current.steps),
            "events": [event for run in child.runs for event in self._events(run)],
        }

    def _since(self, time: datetime | None) -> float | None:
        return None if time is None else _number(time - self.start)

    # Expectations

    def unmet(self, expect: Expect) -> list[str]:
        """One sentence for each unmet expectation; empty if all are met."""
        failure = self.failure
        ended = Ended(
            phase=self.phase,
            output=self.output,
            failure_types=tuple(min(node.type_names()) for node in failure.chain()) if failure else (),
            message=failure.full_message if failure else "",
            elapsed=self.elapsed,
            runs=len(self.root.runs),
            attempts={activity: [each.outcome for each in attempts] for activity, attempts in self.attempts.items()},
            has_failure_type=lambda name: failure is not None and matches(failure, [name]),
        )
        return list(unmet(expect, ended))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What expectations are about."""

    phase: str
    output: Any
    failure_types: tuple[str, ...]
    """The types of the failure and of its causes."""
    message: str
    elapsed: timedelta
    runs: int
    attempts: Mapping[str, Sequence[str]]
    """The outcomes by activity."""
    has_failure_type: Callable[[str], bool]


def unmet(expect: Expect, ended: Ended) -> Iterator[str]:
    """Yield one sentence for each unmet expectation."""
    completed = ended.phase == Phase.COMPLETED
    because = f" ({ended.message})" if ended.message else ""
    if expect.phase is not None and expect.phase.value != ended.phase:
        yield f"phase: expected {expect.phase.value}, got {ended.phase}{because}"
    if "output" in expect.model_fields_set and (ended.output != expect.output or not completed):
        got = format_value(ended.output) if completed else f"none, it is {ended.phase}"
        yield f"output: expected {format_value(expect.output)}, got {got}"
    if expect.failure_type is not None and not ended.has_failure_type(expect.failure_type):
        yield f"failureType: expected {expect.failure_type}, got {' > '.join(ended.failure_types) or 'no failure'}"
    if expect.elapsed is not None and not _within(ended.elapsed, expect.elapsed):
        yield f"elapsed: expected {_expected_text(expect.elapsed)}, got {format_decimal_duration(ended.elapsed)}"
    if expect.runs is not None and expect.runs != ended.runs:
        yield f"runs: expected {expect.runs}, got {ended.runs}"
    for activity, wanted in expect.attempts.items():
        outcomes = list(ended.attempts.get(activity, ()))
        if wanted not in (outcomes, len(outcomes)):
            expected = ", ".join(wanted) or "none" if isinstance(wanted, list) else wanted
            yield f"attempts.{activity}: expected {expected}, got {len(outcomes)}: {', '.join(outcomes) or 'none'}"


def target_of(step: StepNode) -> str:
    """Return the target of a step. That of a part is what its step or block says, except for a compensation."""
    if step.part:
        return step.target if step.name == "compensate" and step.kind == "activity" else ""
    return "" if step.kind == "parallel" else step.target


def _phase(chain: SimulatedChain) -> str:
    state = chain.current.state
    return "Paused" if state and state.paused else chain.status.value


def _waits_for(run: SimulatedRun) -> Iterator[str]:
    state = run.state
    assert state is not None
    if state.paused:
        yield "the run is paused"
    if state.task:
        yield f"cannot be decided: {state.task.message}"
    memory = load_memory(state.memory)
    targets = {step.path: target_of(step) for top in run.steps for step in top.walk()}
    for path in memory.signal_waiters:
        yield f"step `{path}`: signal `{targets[path]}`" if targets.get(path) else f"step `{path}`: a signal"
    for path in memory.condition_waiters:
        yield f"step `{path}`: its condition"
    for activity in state.activities.values():
        if activity.takes_limits:
            yield f"step `{Path.parse(activity.activity_id).owner}`: its WorkflowLimits"
            continue
        if activity.awaits_service:
            wait = Path.parse(activity.activity_id)
            yield f"{steps_of(wait.served_frame)}: service `{wait.awaited}`"
            continue
        yield f"step `{activity.activity_id}`: activity `{activity.activity_type}`, attempt {activity.attempt}"
    for child in state.children.values():
        yield f"step `{child.child_id}`: child `{child.workflow_id}`"


def _number(time: timedelta) -> float:
    """A time in seconds, as an integer if possible."""
    seconds = time.total_seconds()
    return int(seconds) if seconds == int(seconds) else seconds


def _within(elapsed: timedelta, wanted: timedelta | Between) -> bool:
    if isinstance(wanted, timedelta):
        return abs(elapsed - wanted) <= _SLACK
    at_least, at_most = wanted.at_least, wanted.at_most
    return (at_least is None or elapsed + _SLACK >= at_least) and (at_most is None or elapsed - _SLACK <= at_most)


def _expected_text(wanted: timedelta | Between) -> str:
    if isinstance(wanted, timedelta):
        return length(wanted)
    bounds = (("at least", wanted.at_least), ("at most", wanted.at_most))
    return " and ".join(f"{word} {length(bound)}" for word, bound in bounds if bound is not None)
