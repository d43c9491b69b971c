"""The whole engine: pure functions that take a run from one state to the next, with the time as an argument.

Each result is committed in one write. The effects of the committed state (pods, timers) follow, and can be repeated.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.activities import activity_deadlines
from perdure.engine.decider import Decider
from perdure.engine.fold import apply
from perdure.engine.nexus import wake_times as operation_wake_times
from perdure.engine.retry import RetryPolicy
from perdure.engine.run_step import RunStep, RunTransition
from perdure.engine.starts import CarriedSignal
from perdure.engine.state import RunState
from perdure.engine.tasks import task_deadlines


def start(
    attributes: ev.WorkflowExecutionStarted,
    decider: Decider,
    signals: Sequence[CarriedSignal] = (),
    *,
    applied: Sequence[str] = (),
    requests: Sequence[inp.SignalRequested] = (),
    paused: bool = False,
    policies: Mapping[str, RetryPolicy] | None = None,
) -> RunTransition:
    """The first step of a run.

    Args:
        attributes: The attributes of its first event.
        decider: The decider of the run.
        signals: Signals that the previous run of the chain has not consumed.
        applied: IDs of requests that the previous run has applied. They change nothing if they are sent again.
        requests: The signals that start the run. It gets them before its first decision.
        paused: Whether the run must be unpaused before its first decision.
        policies: The RetryPolicies that deciders can name.
    """
    first = RunStep(apply(None, attributes), attributes.event_time, decider, policies)
    ledger = first.ledger
    ledger.events.append(attributes)
    if ledger.tasks is None:
        ledger.queue.append(attributes)
    ledger.has_new_events = True
    ledger.change(requests=tuple(applied))
    for signal in signals:
        carried = msgspec.structs.asdict(signal)
        ledger.emit(ev.WorkflowExecutionSignaled(**carried, **ledger.here), decide=True)
    for request in requests:
        first.request(request)
    if paused:
        ledger.emit(ev.WorkflowExecutionPaused(**ledger.here), decide=False)
    return first.run(())


def step(
    state: RunState,
    inputs: Sequence[inp.RunInput],
    now: datetime,
    decider: Decider,
    policies: Mapping[str, RetryPolicy] | None = None,
    *,
    together: bool = False,
) -> RunTransition:
    """The next step of a run, open or closed.

    Args:
        state: The state of the run.
        inputs: Observations and requests since the last step, in order. Stale inputs (another attempt, a closed activity)
            change nothing.
        now: The time, UTC. Passed deadlines fire in order after the inputs, so a result counts even if it is late.
        decider: The decider of the run.
        policies: The RetryPolicies that deciders can name.
        together: Whether to record all inputs before the first decision.
    """
    return RunStep(state, now, decider, policies).run(inputs, together=together)


def terminate(state: RunState, reason: str, now: datetime, decider: Decider) -> RunTransition:
    """Terminate a run immediately, without further decisions.

    Args:
        state: The state of an open run.
        reason: Why it is terminated, as a sentence.
        now: The time, UTC.
        decider: Not used.
    """
    last = RunStep(state, now, decider)
    last.ledger.close(ev.WorkflowExecutionTerminated(reason=reason, identity=inp.OPERATOR, **last.ledger.here))
    return last.transition()


def next_wake(state: RunState, after: datetime) -> datetime | None:
    """When a run needs its next step if nothing happens before.

    Args:
        state: Its state after a step.
        after: The time of that step, which has processed everything that was due by then.

    Returns:
        A time after `after`; None if the run is closed, or waits only for inputs.
    """
    if state.closed:
        return None
    return min((time for time in _wake_times(state) if time > after), default=None)


def _wake_times(state: RunState) -> Iterator[datetime]:
    if state.run_deadline:
        yield state.run_deadline
    if state.code is not None:
        yield from task_deadlines.wake_times(state)
    if not state.paused and (state.undecided or state.unfinished):
        if state.task:
            yield state.task.next_attempt_time
        if state.first_decision_time:
            yield state.first_decision_time
    for timer in state.timers.values():
        yield timer.fire_time
    yield from activity_deadlines.wake_times(state)
    yield from operation_wake_times(state)


__all__ = ["RunTransition", "next_wake", "start", "step", "terminate"]
