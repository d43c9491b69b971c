"""Scenarios for flows: a scenario in YAML decides how the attempts of activities end, and what is expected, as for Workflows.

The flow runs in this process. Activities without entries run their functions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from temporalio.exceptions import ApplicationError, CancelledError, FailureError

from perdure.api.phases import Phase
from perdure.api.times import format_time
from perdure.api.values import ValueTypeError
from perdure.flow.control import causes, type_of
from perdure.flow.definitions import environments_of
from perdure.flow.local import Ending, LocalRun, PodLostError, StuckError
from perdure.flow.modules import load
from perdure.simulation.manifests import BadFileError
from perdure.simulation.report import Ended, unmet
from perdure.simulation.script import ScriptedEntries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from perdure.api.kinds.retrypolicy import RetryPolicySpec
    from perdure.flow.definitions import Flow
    from perdure.flow.local import Call
    from perdure.simulation.scenario import Expect, Scenario, ScriptedAttempt

_ONLY_FOR_WORKFLOWS: Final = (
    *("cached", "children", "pause_at", "schedule", "terminate_at", "unpause_at", "workflows"),
)
_ONLY_FOR_PODS: Final = ("artifacts", "disrupted", "heartbeats", "ignores_cancel")
"""Fields of scenarios and of their entries that need the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReport:
    """The outcome of a scenario of a flow."""

    flow: str
    run: LocalRun
    phase: str
    output: Any
    error: BaseException | None
    waits_for: str
    """What it waits for if it has not ended."""

    @property
    def elapsed(self) -> timedelta:
        """The virtual time that it took."""
        return self.run.now - self.run.start

    @property
    def attempts(self) -> dict[str, list[Call]]:
        """The attempts by activity."""
        found: defaultdict[str, list[Call]] = defaultdict(list)
        for call in self.run.calls:
            found[call.activity].append(call)
        return dict(found)

    @property
    def rows(self) -> list[tuple[timedelta, str, int, str, str]]:
        """For each attempt: when it started, the activity's ID, its number, its outcome, and why it failed."""
        return [
            (
                each.time - self.run.start,
                each.id,
                each.attempt,
                each.outcome,
                "" if each.error is None else str(each.error),
            )
            for each in self.run.calls
        ]

    @property
    def failure(self) -> dict[str, Any] | None:
        """The failure with its causes, as in the report of a Workflow."""
        return None if self.error is None else _as_json(self.error)

    def unmet(self, expect: Expect) -> list[str]:
        """One sentence for each unmet expectation; empty if all are met."""
        chain = [] if self.error is None else causes(self.error)
        types = tuple(type_of(each) for each in chain)
        ended = Ended(
            phase=self.phase,
            output=self.output,
            failure_types=types,
            message=": ".join(each.message if isinstance(each, FailureError) else str(each) for each in chain),
            elapsed=self.elapsed,
            runs=self.run.runs,
            attempts={name: [each.outcome for each in calls] for name, calls in self.attempts.items()},
            has_failure_type=types.__contains__,
        )
        return list(unmet(expect, ended))

    def as_json(self) -> dict[str, Any]:
        """The report, with the names of the report of a Workflow; times are in seconds since the start."""
        report: dict[str, Any] = {
            "phase": self.phase,
            "output": self.output,
            "failure": self.failure,
            "elapsed": self.elapsed.total_seconds(),
            "runs": self.run.runs,
            "workflow": self.flow,
            "startTime": format_time(self.run.start),
            "attempts": {name: [self._attempt(each) for each in calls] for name, calls in self.attempts.items()},
        }
        return {**report, "waitsFor": [self.waits_for]} if self.waits_for else report

    def _attempt(self, call: Call) -> dict[str, Any]:
        start = (call.time - self.run.start).total_seconds()
        found = {"step": call.id, "attempt": call.attempt, "start": start, "outcome": call.outcome}
        return found if call.error is None else {**found, "failure": _as_json(call.error)}


def simulate_flow(module: str, scenario: Scenario, source: str, policies: Mapping[str, RetryPolicySpec]) -> FlowReport:
    """Run a flow as a scenario says.

    Args:
        module: File with the flow.
        scenario: The scenario.
        source: Its file, for messages.
        policies: The RetryPolicies in its files, by name.

    Raises:
        BadFileError: The module or the scenario is not valid.
    """
    flow = _flow_in(module, scenario.workflow, source)
    _check(scenario, flow, source, policies)
    run = _ScenarioRun(scenario, source)
    run.retry_policies |= policies
    for signal in scenario.signals:
        run.send_signal(signal.name, signal.input, after=signal.at)
    if scenario.cancel_at is not None:
        run.cancel(after=scenario.cancel_at)
    output, error, waits_for = None, None, ""
    try:
        arguments = flow.signature.decode_arguments(scenario.input)
        output = flow.signature.encode_result(run.run(flow, **arguments))
        phase = Phase.COMPLETED
    except StuckError as stuck:
        phase, waits_for = Phase.RUNNING, str(stuck)
    except ValueTypeError as wrong:
        raise BadFileError(f"{source}: {wrong}") from wrong
    except FailureError as failure:
        error = failure
        phase = Phase.CANCELLED if isinstance(failure, CancelledError) else Phase.FAILED
    return FlowReport(flow=flow.name, run=run, phase=phase.value, output=output, error=error, waits_for=waits_for)


class _ScenarioRun(LocalRun):
    """A local run whose attempts end as a scenario says."""

    def __init__(self, scenario: Scenario, source: str) -> None:
        super().__init__(start=scenario.start_time)
        self.max_actions = scenario.max_events
        self._entries = ScriptedEntries(scenario.activities)
        self._strict = scenario.strict
        self._source = source

    async def ending(self, task: Any, call: Call) -> Ending:
        """Take the next entry for the activity; without entries, the function decides."""
        entry = self._entries.next(call.activity, dict(call.arguments))
        if entry is None:
            if self._strict:
                raise BadFileError(f"{self._source}: the activity `{call.activity}` has no entry, but `strict` is set")
            return await super().ending(task, call)
        takes = None if entry.hang else entry.starts_after + entry.after
        return Ending(result=entry.output, error=_error_of(entry), takes=takes)


def _error_of(entry: ScriptedAttempt) -> BaseException | None:
    if entry.lost:
        return PodLostError("the pod was lost")
    if entry.fail is not None:
        failure = entry.fail
        return ApplicationError(
            failure.message or f"the container exited with {entry.exit_code or 1}",
            *([] if failure.details is None else [failure.details]),
            type=failure.type or f"ExitCode{entry.exit_code or 1}",
            non_retryable=failure.non_retryable,
            next_retry_delay=failure.next_retry_delay,
        )
    if entry.exit_code:
        message = f"the container exited with {entry.exit_code}"
        return ApplicationError(message, type=f"ExitCode{entry.exit_code}")
    return None


def _flow_in(module: str, name: str | None, source: str) -> Flow[..., Any]:
    try:
        environments = environments_of(load(module))
    except ImportError as error:
        raise BadFileError(f"{source}: {module} cannot be imported: {error}") from error
    flows = {flow.name: flow for environment in environments for flow in environment.flows.values()}
    if name is None and len(flows) == 1:
        return next(iter(flows.values()))
    if name not in flows:
        known = ", ".join(f"`{each}`" for each in sorted(flows)) or "no flows"
        wanted = "set `workflow` to one of its flows" if name is None else f"it has no flow `{name}`"
        raise BadFileError(f"{source}: {module} has {known}; {wanted}")
    return flows[name]


def _check(scenario: Scenario, flow: Flow[..., Any], source: str, policies: Mapping[str, RetryPolicySpec]) -> None:
    """Refuse what would be ignored, and what is missing."""
    for name in _ONLY_FOR_WORKFLOWS:
        if name in scenario.model_fields_set:
            raise BadFileError(f"{source}: `{type(scenario).model_fields[name].alias}` is only for Workflows in YAML")
    activities = [each for environment in _environments(flow) for each in environment.activities.values()]
    for each in activities:
        policy = each.options.retry
        if isinstance(policy, str) and policy not in policies:
            raise BadFileError(
                f"{source}: the activity `{each.name}` uses the RetryPolicy `{policy}`, which is in no file of "
                "`retryPolicies`; include its file"
            )
    known = {each.name for each in activities}
    for name, entries in scenario.activities.items():
        if name not in known:
            listed = ", ".join(f"`{each}`" for each in sorted(known)) or "none"
            raise BadFileError(
                f"{source}: activities.{name}: there is no such activity; the flow's module has {listed}"
            )
        for entry in entries:
            for option in _ONLY_FOR_PODS:
                if entry.sets(option):
                    label = type(entry).model_fields[option].alias
                    raise BadFileError(f"{source}: activities.{name}: `{label}` is only for Workflows in YAML")


def _environments(flow: Flow[..., Any]) -> list[Any]:
    return [flow.environment, *environments_of(load(flow.function.__module__))]


def _as_json(error: BaseException) -> dict[str, Any]:
    found: dict[str, Any] = {"type": type_of(error), "message": str(error)}
    if isinstance(error, FailureError) and error.__cause__ is not None:
        found["cause"] = _as_json(error.__cause__)
    return found
