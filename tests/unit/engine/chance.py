"""Random tests of the engine: deciders with random commands, in a world with random events in any order."""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st

from perdure.api.policies import ParentClosePolicy
from perdure.engine import commands as cmd
from perdure.engine import effects as fx
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine import inputs as inp
from perdure.engine.commands import Decision, UndecidableError
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.fold import apply, as_recorded
from perdure.engine.resets import begin, reset_event, since
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import CarriedSignal, WorkflowStart
from perdure.engine.state import DEAD_LETTER, RunState
from perdure.engine.step import RunTransition, next_wake, start, step
from support.engine.script import T0, application, first_event, seconds

lengths = st.integers(1, 50).map(seconds)
policies = st.builds(
    RetryPolicy,
    initial_interval=lengths,
    maximum_attempts=st.integers(0, 4),
    non_retryable_error_types=st.sampled_from([(), ("Declined",)]),
)


MAX_HEARD = 60


class Chance:
    """Draws the properties of a run and its events."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def often(self, probability: float) -> bool:
        return self.random.random() < probability

    def length(self, longest: int = 50) -> timedelta:
        return seconds(self.random.randint(1, longest))

    def maybe(self) -> timedelta | None:
        return self.length() if self.often(0.3) else None

    def policy(self) -> RetryPolicy:
        return RetryPolicy(
            initial_interval=self.length(20),
            maximum_attempts=self.random.randint(0, 4),
            non_retryable_error_types=("Declined",) if self.often(0.2) else (),
        )

    def program(self) -> Any:
        """The commands for each event, in one or several parts; the number of events until the end, and the outcome; the cost."""
        batches = [
            [self.wishes() for _ in range(self.random.choice([1, 1, 1, 2, 3]))]
            for _ in range(self.random.randint(1, 6))
        ]
        ending = (self.random.randint(2, 40), self.random.choice(_ENDINGS)) if self.often(0.7) else None
        return batches, ending, self.random.choice([0, 0, 0, 150_000, 400_000])

    def wishes(self) -> list[Any]:
        return [self.wish() for _ in range(self.random.choice([0, 0, 0, 1, 1, 2, 3]))]

    def wish(self) -> Any:
        kind = self.random.choice(_WISHES)
        match kind:
            case "activity":
                return kind, self.policy(), self.maybe(), self.maybe(), self.maybe()
            case "timer":
                return kind, self.random.randint(0, 60)
            case "child":
                return kind, self.random.choice(list(ParentClosePolicy))
            case "marker":
                return kind, self.random.choice([DEAD_LETTER, "note"])
            case _:
                return kind, self.random.randint(0, 4)

    def start(self) -> dict[str, Any]:
        drawn: dict[str, Any] = {"attempt": self.random.randint(1, 3)}
        if self.often(0.3):
            drawn["workflow_run_timeout"] = self.length(600)
        if self.often(0.2):
            drawn["workflow_execution_expiration_time"] = T0 + self.length(900)
        if self.often(0.2):
            drawn["first_workflow_task_backoff"] = self.length()
        if self.often(0.4):
            drawn["retry_policy"] = self.policy()
        return drawn

    def happening(self) -> Any:
        """The kind, the subject, the attempt relative to the open one (-1 and 1 are stale or invented), and a variant."""
        shift = self.random.choice([0, 0, 0, 0, 0, 0, -1, 1])
        return self.random.choice(_KINDS), self.random.randint(0, 7), shift, self.random.randint(0, 3)

    def moment(self) -> tuple[float, list[Any], bool]:
        """How long nothing happens, what happens then, and whether there is a crash afterwards.

        In a crash, what was not committed is lost, and the rest comes back as plain JSON with its keys in another order.
        """
        wait = self.random.choice([0, 0.5, 3, 10, 60]) * self.random.random()
        return wait, [self.happening() for _ in range(self.random.randint(0, 4))], self.often(0.3)


_WISHES = [
    *["activity"] * 5,
    *["timer", "child", "cancel activity"] * 2,
    *["signal", "cancel other", "cancel child", "marker", "cancel timer"],
]
_ENDINGS = ["complete", "fail", "cancel", "continue", "continue", "impossible", "continue and go on"]
_KINDS = [
    *["started", "completed", "failed", "lost", "cancelled", "beat", "waiting"] * 4,
    *["child started", "child not started", "child closed", "child closed", "other done", "other failed"] * 3,
    *["signal", "signal", "unpause", "hold", "release", "answer", "forget", "nothing", "mend", "mend"] * 2,
    *["cancel", "pause", "terminate", "chore", "break"],
]


class Whim:
    """Decides by a cyclic program of wishes; names come from a counter in its memory."""

    def __init__(self, program: Any) -> None:
        self.batches, self.ending, self.work = program
        self.broken = False
        self.asked: list[int | None] = []

    def decide(self, memory: Any, event: ev.AnyEvent | None, *, continue_as_new_suggested: bool = False) -> Decision:
        assert not continue_as_new_suggested
        if self.broken:
            raise UndecidableError("nobody knows")
        self.asked.append(event.event_id if event else None)
        known = dict(memory) if memory else {"heard": 0, "part": 0, "made": 0, "signals": []}
        if event is None:
            assert known["part"]
        else:
            assert known["part"] == 0
            known["heard"] += 1
        if isinstance(event, ev.WorkflowExecutionSignaled):
            known["signals"] = [*known["signals"], event.identity]
        # It ends eventually: otherwise it could loop forever by cancelling its own commands.
        batch = self.batches[known["heard"] % len(self.batches)] if known["heard"] < MAX_HEARD else [[]]
        commands: list[cmd.Command] = [self.command(known, wish) for wish in batch[known["part"]]]
        known["part"] = (known["part"] + 1) % len(batch)
        if self.ending and known["heard"] >= self.ending[0] and not known["part"]:
            commands += self.end(known)
        return Decision(tuple(commands), known, work=self.work, more=bool(known["part"]))

    def command(self, known: dict[str, Any], wish: Any) -> cmd.Command:
        kind, *rest = wish
        name = str(known["made"])
        match kind:
            case "activity":
                known["made"] += 1
                policy, schedule_to_close, schedule_to_start, heartbeat = rest
                return cmd.ScheduleActivityTask(
                    activity_id=name,
                    activity_type="work",
                    input={"b": 1, "a": [known["heard"]]},
                    retry_policy=policy,
                    start_to_close_timeout=seconds(60),
                    schedule_to_close_timeout=schedule_to_close,
                    schedule_to_start_timeout=schedule_to_start,
                    heartbeat_timeout=heartbeat,
                )
            case "timer":
                known["made"] += 1
                return cmd.StartTimer(timer_id=name, start_to_fire_timeout=seconds(rest[0]))
            case "child":
                known["made"] += 1
                begin = WorkflowStart(workflow_type="t", workflow_id=f"w-{name}")
                return cmd.StartChildWorkflowExecution(child_id=name, start=begin, parent_close_policy=rest[0])
            case "signal":
                return cmd.SignalExternalWorkflowExecution(signal_id=name, workflow_id="other", signal_name="s")
            case "cancel other":
                return cmd.RequestCancelExternalWorkflowExecution(workflow_id="other", reason="enough")
            case "cancel child":
                return cmd.RequestCancelExternalWorkflowExecution(child_id=self.one_of(known, rest[0]))
            case "marker":
                return cmd.RecordMarker(marker_name=rest[0], details={"heard": known["heard"]})
            case "cancel activity":
                return cmd.RequestCancelActivityTask(activity_id=self.one_of(known, rest[0]))
            case _:
                return cmd.CancelTimer(timer_id=self.one_of(known, rest[0]))

    def one_of(self, known: dict[str, Any], back: int) -> str:
        return str(known["made"] - 1 - back)

    def end(self, known: dict[str, Any]) -> list[cmd.Command]:
        assert self.ending is not None
        kept = tuple(CarriedSignal(signal_name="s", identity=who) for who in known["signals"])
        on = cmd.ContinueAsNewWorkflowExecution(input=known["heard"], signals=kept)
        match self.ending[1]:
            case "complete":
                return [cmd.CompleteWorkflowExecution(result=known["heard"])]
            case "fail":
                return [cmd.FailWorkflowExecution(failure=application())]
            case "cancel":
                return [cmd.CancelWorkflowExecution(failure=application())]
            case "continue":
                return [on]
            case "impossible":
                twice = cmd.StartTimer(timer_id="twice", start_to_fire_timeout=seconds(5))
                return [twice, twice]
            case _:
                return [on, cmd.RecordMarker(marker_name="too late")]


@dataclass
class World:
    """A run with random events; the invariants are checked after every step."""

    program: Any
    state: RunState = field(init=False)
    offset: float = 0.0
    history: list[ev.AnyEvent] = field(default_factory=list)
    retired: list[tuple[int, int]] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)
    folded: RunState | None = None
    splits: int = 0

    def __post_init__(self) -> None:
        self.decider = Whim(self.program)

    def begin(self, started: dict[str, Any], signals: int, *, paused: bool) -> None:
        carried = [CarriedSignal(signal_name="s", identity=f"carried-{n}") for n in range(signals)]
        first = first_event(**{"successor": "next", **started})
        self.take(start(first, self.decider, carried, paused=paused))

    @property
    def now(self) -> Any:
        return T0 + seconds(self.offset)

    def take(self, transition: RunTransition) -> None:
        assert transition.durable or not transition.events
        self.state = transition.state
        self.history += transition.events
        fresh = [(r.scheduled_event_id, r.attempt) for r in transition.retired]
        assert not set(fresh) & set(self.retired), "an attempt is retired once"
        self.retired += fresh
        if transition.durable:
            self.committed = msgspec.json.encode(self.state)
        self.check()
        if transition.more:
            self.splits += 1
            assert self.splits < 10_000
            self.take(step(self.state, (), self.now, self.decider))
        wake = next_wake(self.state, self.now)
        assert wake is None or wake > self.now

    def live(self, wait: float, happenings: list[Any], *, crash: bool) -> None:
        self.offset += wait
        inputs: list[inp.RunInput] = []
        for happened in happenings:
            inputs += self.inputs(*happened)
        before = self.state
        transition = step(before, inputs, self.now, self.decider)
        stored = history.decode_state(json.loads(json.dumps(history.encode(before), sort_keys=True)))
        assert stored == before
        assert step(stored, inputs, self.now, self.decider) == transition, "the order of keys makes no difference"
        self.check_answers(inputs, transition)
        self.check_fence(inputs)
        if not [i for i in inputs if not isinstance(i, inp.RequestForgotten)]:
            self.check_silence(before, transition)
        self.take(transition)
        if crash:
            self.state = history.decode_state(json.loads(json.dumps(json.loads(self.committed), sort_keys=True)))

    def inputs(self, kind: str, whom: int, shift: int, variant: int) -> list[inp.RunInput]:
        """Random inputs for the run. Many of them are stale or repeated."""
        state, request = self.state, f"r{whom}"
        if request in self.forgotten:
            request = f"r{whom}-{len(self.history)}-{variant}"
        made = str(whom)
        known = list(state.activities.values())
        at = known[whom % len(known)] if known else None
        which: dict[str, Any] = {
            "scheduled_event_id": at.scheduled_event_id if at and variant < 3 else whom,
            "attempt": (at.attempt if at else 1) + shift,
        }
        children = sorted(map(int, state.children))
        child = children[whom % len(children)] if children and variant < 3 else whom
        others = sorted(map(int, state.externals))
        other = others[whom % len(others)] if others and variant < 3 else whom
        match kind:
            case "started":
                return [inp.AttemptStarted(time=self.now - seconds(whom), **which)]
            case "completed":
                return [inp.AttemptCompleted(result=whom, **which)] * (1 + variant % 2)
            case "failed":
                failure = application(non_retryable=variant == 1)
                return [inp.AttemptFailed(failure=failure, started_time=self.now, **which)]
            case "lost":
                return [inp.AttemptLost(failure=Failure(kind=FailureKind.SERVER, message="gone"), **which)]
            case "cancelled":
                return [inp.AttemptCancelled(details=[whom], **which)]
            case "beat":
                return [inp.HeartbeatRead(time=self.now - seconds(3 * variant), details=[1], **which)]
            case "waiting":
                return [inp.AttemptWaiting(reason="no node", stuck=variant == 1, **which)]
            case "child started":
                return [inp.ChildStarted(initiated_event_id=child, run_id="c")] * (1 + variant % 2)
            case "child not started":
                return [inp.ChildStartFailed(initiated_event_id=child, failure=application())]
            case "child closed":
                outcome = list(inp.ChildOutcome)[whom % 5]
                return [inp.ChildClosed(initiated_event_id=child, run_id="c", outcome=outcome, result=variant)] * 2
            case "other done":
                return [inp.ExternalDone(initiated_event_id=other)] * (1 + variant % 2)
            case "other failed":
                return [inp.ExternalDone(initiated_event_id=other, failure=application())]
            case "signal":
                signal = inp.SignalRequested(request_id=request, signal_name="s", identity=request)
                return [signal] * (1 + variant % 2)
            case "cancel":
                return [inp.CancelRequested(request_id=f"c{request}", reason="enough")]
            case "terminate":
                return [inp.TerminateRequested(request_id=f"t{request}", reason="enough")] * (whom < 2)
            case "pause":
                return [inp.PauseRequested(request_id=f"p{len(self.history)}{variant}")]
            case "unpause":
                return [inp.UnpauseRequested(request_id=f"u{len(self.history)}{variant}")]
            case "hold":
                return [
                    inp.PauseRequested(request_id=f"h{request}{variant}", activity_id=at.activity_id if at else made)
                ]
            case "release":
                name = at.activity_id if at else made
                return [inp.UnpauseRequested(request_id=f"l{request}{variant}", activity_id=name)]
            case "answer":
                answered = {"failure": application()} if variant == 0 else {"cancelled": variant == 1}
                name = at.activity_id if at else made
                return [inp.ActivityAnswered(request_id=f"a{request}{variant}", activity_id=name, **answered)]
            case "forget":
                self.forgotten.add(request)
                return [inp.RequestForgotten(request_id=request)]
            case "chore":
                done = [
                    fx.StartSuccessor(),
                    fx.CloseChild(child),
                    fx.RequestExternal(other),
                    fx.WriteDeadLetter(whom),
                ]
                return [inp.EffectDone(effect=done[variant])]
            case "break" | "mend":
                self.decider.broken = kind == "break"
                return []
            case _:
                return []

    # Invariants

    def check(self) -> None:
        ids = [event.event_id for event in self.history]
        assert ids == list(range(1, len(ids) + 1)), "no gaps"
        closings = [event for event in self.history if isinstance(event, ev.CLOSING)]
        assert len(closings) == self.state.closed
        assert not closings or self.history[-1] is closings[0]
        reported = [e.identity for e in self.history if isinstance(e, ev.WorkflowExecutionSignaled)]
        assert len(reported) == len(set(reported)), "no request is recorded twice"
        assert sum(isinstance(e, ev.WorkflowExecutionCancelRequested) for e in self.history) <= 1
        assert not {(a.scheduled_event_id, a.attempt) for a in self.state.activities.values()} & set(self.retired)
        asked = [e.activity_id for e in self.history if isinstance(e, ev.ActivityTaskCancelRequested)]
        assert len(asked) == len(set(asked)), "an activity is asked to stop once"
        for activity in self.state.activities.values():
            assert not activity.cancel_requested or activity.started_time, (
                "it is asked while it runs, and not tried again"
            )
        ended = [e.scheduled_event_id for e in self.history if hasattr(e, "retry_state") and hasattr(e, "attempt")]
        assert len(ended) == len(set(ended)), "an activity closes once"
        for event in self.history[self.folded.next_event_id - 1 if self.folded else 0 :]:
            self.folded = apply(self.folded, event)
        assert self.folded is not None
        kept = as_recorded(self.state)
        assert as_recorded(self.folded) == msgspec.structs.replace(kept, memory=None)
        if self.state.closed:
            assert self.state.undecided == ()
            assert not self.state.unfinished

    def check_fence(self, inputs: list[inp.RunInput]) -> None:
        """Check that reports of attempts other than the open one change nothing."""
        attempts = {(a.scheduled_event_id, a.attempt) for a in self.state.activities.values()}
        stale = [
            i for i in inputs if isinstance(i, inp.AttemptInput) and (i.scheduled_event_id, i.attempt) not in attempts
        ]
        if (
            stale and not self.state.undecided and not self.state.unfinished
        ):  # otherwise an invented one may become real in the step
            without = step(self.state, (), self.now, self.decider)
            for report in stale:
                assert step(self.state, (report,), self.now, self.decider) == without

    def check_answers(self, inputs: list[inp.RunInput], transition: RunTransition) -> None:
        asked = {request.request_id for request in inputs if isinstance(request, inp.Request)}
        assert set(transition.answers) == asked
        for request_id, answer in transition.answers.items():
            assert (answer.reason == "") is (answer.message == "")
            assert answer.ok is (answer.reason == "") or answer.reason in {inp.CLOSED, "Deferred"}
            if answer.ok and not transition.state.closed:
                assert request_id in transition.state.requests or request_id in self.forgotten

    def check_silence(self, before: RunState, transition: RunTransition) -> None:
        """No decision is made while it is not allowed."""
        first = before.first_decision_time
        if before.paused or (first and first > self.now):
            assert transition.state.memory == before.memory
            assert not any(isinstance(event, ev.WorkflowExecutionCompleted) for event in transition.events)

    def check_replay(self) -> None:
        """The history replays to the state, with a decider of the same program and in its stored form."""
        undecided, unfinished = len(self.state.undecided), self.state.unfinished
        for events in (self.history, history.decode_events(history.encode(self.history))):
            decider = Whim(self.program)
            replayed = history.replay(events, decider, undecided=undecided, unfinished=unfinished)
            ours, theirs = as_recorded(self.state), as_recorded(replayed)
            decided = not unfinished and not isinstance(
                self.history[-1], ev.WorkflowExecutionTerminated | ev.WorkflowExecutionTimedOut
            )
            if not decided:
                ours, theirs = (msgspec.structs.replace(state, memory=None) for state in (ours, theirs))
            assert theirs == ours
            if decided and not self.state.closed:
                assert replayed.undecided == self.state.undecided

    def check_fork(self, whom: int) -> None:
        """From any point of a decision on, another history can follow."""
        points = history.decision_points(self.history)
        point = points[whom % len(points)]
        state = history.fork(self.history, point, Whim(self.program))
        assert state.next_event_id == point + 1
        assert state.undecided[-1] == self.history[point - 1]
        other = World(self.program)
        other.history = list(self.history[:point])
        other.offset = max((event.event_time - T0).total_seconds() for event in other.history)
        first = self.history[0]
        assert isinstance(first, ev.WorkflowExecutionStarted)
        reported = reset_event(first, point + 1, other.now, base_run_id="r", new_run_id="s", successor="next")
        again = list(since(state, self.history[point:], "r", signals=True))
        other.take(begin(state, reported, again, other.decider, self.state.requests))
        assert other.history[point] == reported
        assert other.state.requests == self.state.requests
        other.check_replay()


__all__ = ["Chance", "Whim", "World", "policies"]
