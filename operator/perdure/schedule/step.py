"""One pass over a schedule: (spec, state, what has happened, now) -> (state, what to tell).

    closed runs, requests ─┐
    times that are due    ─┼─▶ buffer ─▶ overlap policy ─▶ runs to be started, cancelled, terminated
    backfills             ─┘

Nothing is done here. The state that comes out is committed first; then whoever has called makes the runs that have no `run_id`,
asks to cancel or terminate those that are marked, and reports back. So a crash at any instant neither loses nor doubles a start:
before the commit the times are still due, after it the runs have names.

Nothing fires retroactively: when the spec's times change, when a pause ends, or when there are actions again, times up to
now count as dealt with. When the clock goes back, times that were only missed while it was ahead are due again, and those
that were really dealt with are not.

Behaviour is Temporal's (service/worker/scheduler) unless docs/schedules.md says otherwise.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

from msgspec.structs import replace

from perdure.api.reasons import ConditionReason, EventReason
from perdure.api.schedule import MAX_BUFFER, OverlapPolicy, PausedBy, ScheduleSpec
from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.engine.inputs import Answer
from perdure.engine.opaque import size_of
from perdure.engine.retry import RetryPolicy, decide_run_retry
from perdure.schedule import inputs as inp
from perdure.schedule.errors import InvalidTimesError
from perdure.schedule.handled import is_handled, joined
from perdure.schedule.inputs import Outcome
from perdure.schedule.state import (
    Answered,
    Backfilling,
    Handled,
    Paused,
    PendingRetry,
    Recent,
    Running,
    ScheduleState,
    Start,
)
from perdure.schedule.times import EARLIEST, Times

AT_ONCE = 1_000
"""Times that one pass deals with; more are left to the next."""

RECENT = 10
"""Actions that are shown."""

REMEMBERED = 100
"""Requests whose answers are kept in case somebody asks again."""

NAMES_TRIED = 5
"""Names that a run is given after its first one, while WorkflowRuns that the schedule did not create have them."""

_TIMES_FIELDS = {
    "cron",
    "intervals",
    "calendars",
    "exclude",
    "start_time",
    "end_time",
    "jitter",
    "time_zone",
    "time_zone_data",
    "daylight_saving",
}
_REFUSAL_LIMIT = 1024
"""Characters that are kept of why a run was refused."""
_RESULT_LIMIT = 128 * 1024
"""Bytes of a last completion result, as JSON, that is handed on; it has to fit into an annotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a schedule was told to do."""

    name: str
    seed: str
    """What jitter depends on, beside the time."""
    spec: ScheduleSpec
    times: Times | None
    """None: they cannot be followed."""
    retry_policy: RetryPolicy | None = None
    """The one that `spec.retryPolicy` names or is."""
    created: datetime

    def times_hash(self) -> str:
        """A hash of that part of the spec which says when."""
        when = self.spec.model_dump(mode="json", include=_TIMES_FIELDS)
        return hashlib.sha256(json.dumps(when, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Note:
    """Something to tell in an Event, once it is recorded."""

    reason: EventReason
    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class ScheduleTransition:
    """What a pass has come to."""

    state: ScheduleState
    notes: tuple[Note, ...] = ()
    answers: dict[str, Answer] = field(default_factory=dict)
    durable: bool = True
    """Whether the state must be committed: more has changed than that a run was made."""
    more: bool = False
    """Whether the pass stopped because it has done enough, and the next should follow at once."""


def step(
    rules: Rules, state: ScheduleState | None, happened: Sequence[inp.ScheduleInput], now: datetime
) -> ScheduleTransition:
    """Take a schedule to `now`.

    Args:
        rules: What it was told to do.
        state: What it remembers; None for a new one.
        happened: What has happened since.
        now: The time.

    Raises:
        InvalidTimesError: The search for the next time does not end.
    """
    work = SchedulePass(rules, state, now)
    work.notice_changes()
    closed = [each for each in happened if isinstance(each, inp.RunClosed)]
    for each in sorted(closed, key=lambda run: (run.time, run.name)):
        work.take_closed(each)
    for other in happened:
        if not isinstance(other, inp.RunClosed):
            work.take(other)
    work.take_due()
    work.take_backfills()
    work.begin_retry()
    work.release()
    work.notice_blocked()
    return work.transition(state)


def next_wake(rules: Rules, state: ScheduleState, now: datetime) -> datetime | None:
    """When there is something to do by time; None if only something outside can wake the schedule.

    Raises:
        InvalidTimesError: The search for the next time does not end.
    """
    wakes = []
    if state.retry is not None:
        wakes.append(max(state.retry.due, now) if _has_room_for_retry(rules, state) else None)
    if rules.times is not None and not state.blocked:
        due = next(rules.times.dues(state.cursor, rules.seed), None)
        wakes.append(due.actual if due else None)
    return min(filter(None, wakes), default=None)


class SchedulePass:
    """A pass at work."""

    def __init__(self, rules: Rules, state: ScheduleState | None, now: datetime) -> None:
        self._rules = rules
        self._spec = rules.spec
        self._now = now
        created = min(rules.created, now)
        self._state = state or ScheduleState(
            cursor=created,
            handled_after=created,
            times=rules.times_hash(),
            remaining_given=rules.spec.remaining_actions,
            remaining=rules.spec.remaining_actions,
        )
        self._notes: list[Note] = []
        self._answers: dict[str, Answer] = {}
        self._starts: dict[str, str] = {}
        """What became of requests to start something: the name of the run, or why there is none."""
        self._fresh: list[Running] = []
        """Begun in this pass: nothing of it was done yet."""
        self._more = False

    def _set(self, **changes: Any) -> None:
        self._state = replace(self._state, **changes)

    def _count(self, name: str, by: int = 1) -> None:
        counts = self._state.counts
        self._set(counts=replace(counts, **{name: getattr(counts, name) + by}))

    def _note(self, reason: EventReason, text: str, *, warning: bool = False) -> None:
        self._notes.append(Note(reason, text, warning))

    # Whether anything is started by time

    @property
    def _blocked(self) -> bool:
        state = self._state
        return self._rules.times is None or self._spec.paused or state.paused is not None or state.remaining == 0

    def notice_changes(self) -> None:
        """The spec may have changed, a pause ended, the clock gone back: what is due counts from now on then."""
        state, times = self._state, self._rules.times_hash()
        if state.remaining_given != self._spec.remaining_actions:
            self._set(remaining_given=self._spec.remaining_actions, remaining=self._spec.remaining_actions)
        if state.times != times:
            self._forget_times_until_now()
            self._set(times=times, handled=())  # of other times
        elif state.blocked and not self._blocked:
            self._forget_times_until_now()
        if self._now < self._state.cursor:
            self._clock_went_back()

    def _forget_times_until_now(self) -> None:
        self._go_on_from(self._now)
        self._set(blocked=self._blocked)

    def _clock_went_back(self) -> None:
        if self._state.handled_after > self._now:
            # Some of the times to come were counted as missed while the clock was ahead: they are due after all.
            self._go_on_from(self._before_what_is_due())

    def _go_on_from(self, cursor: datetime) -> None:
        """Look at the times after `cursor` next; what was dealt with is remembered."""
        state = self._state
        known = Handled(after=state.handled_after, until=state.cursor)
        self._set(cursor=cursor, handled_after=cursor, handled=joined((*state.handled, known)))

    def _before_what_is_due(self) -> datetime:
        """Now; with jitter, what lies before the time that has passed and is due only after now."""
        times, now = self._rules.times, self._now
        if times is None or not self._spec.jitter:
            return now
        nominal = times.latest(now, self._spec.jitter)
        due = next(times.dues(nominal - timedelta(seconds=1), self._rules.seed), None) if nominal else None
        return due.nominal - timedelta(seconds=1) if due and due.nominal <= now < due.actual else now

    def notice_blocked(self) -> None:
        """What is paused, or out of actions, drops what waits by time."""
        blocked = self._blocked
        if blocked and not self._state.blocked:
            self._drop_what_waits()
        if blocked != self._state.blocked:
            self._set(blocked=blocked)

    def _drop_what_waits(self) -> None:
        self._set(buffer=tuple(start for start in self._state.buffer if not start.by_time), retry=None)

    # What has happened

    def take(self, happened: "inp.ScheduleInput") -> None:
        """Take something that has happened."""
        match happened:
            case inp.RunMade(name=name, run_id=run_id):
                self._change_running(name, lambda run: replace(run, run_id=run_id))
                self._change_recent(name, run_id=run_id)
                self._set(refused="")
            case inp.RunRefused(name=name, message=message):
                self._take_refused(name, message)
            case inp.NameTaken():
                self._take_name_taken(happened)
            case inp.RunClosed():
                self.take_closed(happened)
            case _:
                self._take_request(happened)

    def _take_request(self, request: "inp.Request") -> None:
        known = next((a for a in self._state.answered if a.request == request.request_id), None)
        if known is not None:
            self._answers[request.request_id] = Answer(known.ok, known.reason, known.message, known.result)
            return
        match request:
            case inp.Triggered() | inp.BackfillRequested() if self._rules.times is None:
                message = "nothing is started by a spec that cannot be followed; the condition Ready says what to mend"
                self._answer(request.request_id, Answer(ok=False, reason=ConditionReason.INVALID_SPEC, message=message))
            case inp.Triggered(request_id=request_id, overlap_policy=policy, scheduled_time=time):
                nominal = (time or self._now).replace(microsecond=0)
                start = Start(nominal=nominal, actual=self._now, policy=policy, request=request_id, triggered=True)
                self._set(buffer=(*self._state.buffer, start))
                self._starts[request_id] = ""
            case inp.BackfillRequested():
                self._take_backfill(request)
            case inp.PauseRequested(request_id=request_id, reason=reason):
                if self._state.paused is None:
                    self._set(paused=Paused(by=PausedBy.OPERATION, reason=reason, time=self._now))
                    self._drop_what_waits()
                    self._note(EventReason.PAUSED, f"Paused by an Operation{': ' if reason else ''}{reason}")
                self._answer(request_id, Answer(ok=True, message="nothing is started by time until it is unpaused"))
            case inp.UnpauseRequested(request_id=request_id, reason=reason):
                self._take_unpause(request_id, reason)

    def _take_unpause(self, request_id: str, reason: str) -> None:
        if self._state.paused is not None:
            self._set(paused=None)
            self._note(EventReason.UNPAUSED, f"Unpaused by an Operation{': ' if reason else ''}{reason}")
            if not self._blocked:
                self._forget_times_until_now()
        still = "`spec.paused` is true, and still pauses it: set it to false" if self._spec.paused else ""
        going = "runs are started by time again; what has passed is not made up for"
        reason = ConditionReason.PAUSED_BY_SPEC if still else ""
        self._answer(request_id, Answer(ok=not still, reason=reason, message=still or going))

    def _take_backfill(self, asked: inp.BackfillRequested) -> None:
        assert self._rules.times is not None
        if asked.start < EARLIEST:
            message = f"`startTime` {_text(asked.start)} is before {_text(EARLIEST)}: there are no times so early"
            self._answer(asked.request_id, Answer(ok=False, reason=ConditionReason.INVALID_SPEC, message=message))
            return
        after, end = asked.start - timedelta(microseconds=1), min(asked.end, self._now)
        filling = Backfilling(request=asked.request_id, after=after, end=end, policy=asked.overlap_policy)
        self._set(backfills=(*self._state.backfills, filling))
        times = takewhile(lambda time: time <= end, self._rules.times.nominal(after))
        try:
            count = sum(1 for _ in islice(times, AT_ONCE + 1))
        except InvalidTimesError as error:  # the search does not end: `take_backfills` goes on as far as it does
            self._answer(
                asked.request_id, Answer(ok=True, message=f"the times are started as far as known: {error.message}")
            )
            return
        told = f"more than {AT_ONCE}" if count > AT_ONCE else str(count)
        message = f"{told} times from {_text(asked.start)} to {_text(end)} are started, by {asked.overlap_policy}"
        kept = self._spec.successful_runs_history_limit
        if count > kept:
            message += f"; of the runs that complete, {kept} are kept (successfulRunsHistoryLimit)"
        self._answer(asked.request_id, Answer(ok=True, message=message))

    def _answer(self, request_id: str, answer: Answer) -> None:
        self._answers[request_id] = answer
        kept = Answered(
            request=request_id, ok=answer.ok, reason=answer.reason, message=answer.message, result=answer.result
        )
        self._set(answered=(*self._state.answered, kept)[-REMEMBERED:])

    # Runs that have closed

    def take_closed(self, closed: inp.RunClosed) -> None:
        """A run has closed: what later ones learn of it, and what follows from a failure."""
        run = next((run for run in self._state.running if run.name == closed.name), None)
        if run is None:
            return
        self._set(running=tuple(other for other in self._state.running if other is not run))
        self._change_recent(closed.name, status=closed.outcome.value)
        if closed.outcome is Outcome.COMPLETED:
            self._take_result(closed)
        elif closed.outcome in {Outcome.FAILED, Outcome.TIMED_OUT}:
            self._take_failure(run, closed)

    def _take_result(self, closed: inp.RunClosed) -> None:
        state = self._state
        if closed.result is not None and (state.result_time is None or closed.time >= state.result_time):
            result = closed.result
            if size_of(json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()) > _RESULT_LIMIT:
                text = f"The output of `{closed.name}` has more than 128 KiB, and is not kept as the last completion result"
                self._note(EventReason.PAYLOAD_TOO_LARGE, text, warning=True)
                result = None
            self._set(result=result, result_time=closed.time)
        if state.closed_time is None or closed.time >= state.closed_time:
            self._set(failure=None, closed_time=closed.time)

    def _take_failure(self, run: Running, closed: inp.RunClosed) -> None:
        state = self._state
        if state.closed_time is None or closed.time >= state.closed_time:
            self._set(failure=closed.told or {"kind": "Server", "message": "unknown"}, closed_time=closed.time)
        if self._retry(run, closed) or not self._spec.pause_on_failure or state.paused is not None:
            return
        message = closed.failure.full_message if closed.failure else ""
        reason = f"run `{closed.name}` is {closed.outcome}{': ' if message else ''}{message}"
        self._set(paused=Paused(by=PausedBy.FAILURE, reason=reason[:1024], time=self._now))
        self._note(EventReason.PAUSED_BY_FAILURE, f"Paused, as {reason}", warning=True)

    def _retry(self, run: Running, closed: inp.RunClosed) -> bool:
        """Whether a run that has failed is started again: the newest by time, until its next time comes."""
        state = self._state
        newest = run.start.by_time and run.start.nominal == state.last_scheduled
        if not newest or self._blocked_for_retry or any(start.by_time for start in state.buffer):
            return False
        assert self._rules.times is not None
        first = run.first_started or run.started
        # Where there are no actions left, no next time comes.
        due = next(self._rules.times.dues(state.cursor, self._rules.seed), None) if state.remaining != 0 else None
        decision = decide_run_retry(
            self._rules.retry_policy,
            closed.failure or Failure(kind=FailureKind.SERVER),
            attempt=run.attempt,
            now=self._now,
            expiration=due.actual if due else None,
            since=first,
        )
        if decision.state is not RetryState.IN_PROGRESS or decision.delay is None:
            return False
        again = PendingRetry(
            start=run.start,
            attempt=run.attempt + 1,
            due=self._now + decision.delay,
            first_started=first,
            instead=run.instead,
        )
        self._set(retry=again)
        self._note(
            EventReason.RETRYING, f"Run `{closed.name}` is {closed.outcome}; it is started again at {_text(again.due)}"
        )
        return True

    @property
    def _blocked_for_retry(self) -> bool:
        """A retry is no new action: that there is none left does not keep it."""
        return self._rules.times is None or self._spec.paused or self._state.paused is not None

    def _take_refused(self, name: str, message: str) -> None:
        self._set(running=tuple(run for run in self._state.running if run.name != name))
        self._change_recent(name, status="Refused")
        # The name differs from one time to the next, the reason does not: one Event for each reason is enough.
        reason = message.replace(name, f"{self._rules.name}-…")[:_REFUSAL_LIMIT]
        if reason != self._state.refused:
            self._note(EventReason.RUN_REFUSED, f"Run `{name}` was refused: {message}", warning=True)
            self._set(refused=reason)

    def _take_name_taken(self, taken: inp.NameTaken) -> None:
        """Give a run another name: its time is not lost because someone else has used the name."""
        run = next((run for run in self._state.running if run.name == taken.name), None)
        if run is None:
            return
        if run.renamed == NAMES_TRIED:
            message = f"it and {NAMES_TRIED} other names belong to WorkflowRuns that this Schedule did not create"
            self._take_refused(taken.name, message)
            return
        instead = hashlib.sha256(taken.uid.encode()).hexdigest()[:4]
        name = run.start.run_name(self._rules.name, run.attempt, instead)
        self._change_running(taken.name, lambda run: replace(run, name=name, instead=instead, renamed=run.renamed + 1))
        self._set(recent=tuple(replace(e, name=name) if e.name == taken.name else e for e in self._state.recent))
        text = f"WorkflowRun `{taken.name}` exists and was not created by this Schedule; the run starts as `{name}` instead"
        self._note(EventReason.RUN_NAME_TAKEN, text, warning=True)

    # What is due

    def take_due(self) -> None:
        """Put into the buffer what is due by time; count what is too old."""
        if self._blocked or self._rules.times is None:
            return
        looked_at = missed = 0
        first_missed = last_missed = None
        due_now: list[Start] = []
        cursor, handled_after, handled = self._state.cursor, self._state.handled_after, self._state.handled
        started = self._started()
        for due in self._rules.times.dues(cursor, self._rules.seed):
            if due.actual > self._now:
                break
            if looked_at == AT_ONCE:
                self._more = True
                break
            looked_at += 1
            before, cursor = cursor, due.nominal
            if self._state.retry is not None and due.nominal > self._state.retry.start.nominal:
                self._set(retry=None)  # its next time has come, whatever becomes of that
            if due.nominal in started or is_handled(handled, due.nominal):
                continue
            if self._now - due.actual > self._spec.catchup_window:
                missed += 1
                first_missed, last_missed = first_missed or due.nominal, due.nominal
                handled = joined((*handled, Handled(after=handled_after, until=before)))
                handled_after = due.nominal
            else:
                due_now.append(Start(nominal=due.nominal, actual=due.actual))
        if not looked_at:
            return
        buffer = (*self._state.buffer, *due_now)
        self._set(cursor=cursor, handled_after=handled_after, handled=handled, buffer=buffer)
        if missed:
            assert first_missed is not None
            assert last_missed is not None
            self._count("missed_catchup_window", missed)
            text = f"{missed} times from {_text(first_missed)} to {_text(last_missed)} are older than catchupWindow"
            self._note(EventReason.CATCHUP_WINDOW_MISSED, text, warning=True)

    def _started(self) -> set[datetime]:
        """The times of the runs that are open, or among the last: after an edit, the spec may name them once more."""
        found = {run.start.nominal for run in self._state.running if run.start.by_time}
        for each in self._state.recent:
            if each.nominal is not None:
                name = Start(nominal=each.nominal, actual=each.nominal).run_name(self._rules.name)
                if each.name == name or each.name.startswith((f"{name}-r", f"{name}-x")):
                    found.add(each.nominal)
        return found

    def take_backfills(self) -> None:
        """Put into the buffer what backfills ask for, as far as there is room: they take half of it.

        While the times cannot be followed, backfills wait.
        """
        if self._rules.times is None:
            return
        kept = []
        for filling in self._state.backfills:
            starts: list[Start] = []
            try:
                left = self._fill(self._rules.times, filling, starts)
            except InvalidTimesError as error:
                left = None  # what is asked for can be asked for again; the times to come may be found all the same
                text = f"The backfill of the times after {_text(filling.after)} ends here: {error.message}"
                self._note(EventReason.BUFFER_DROPPED, text, warning=True)
            self._set(buffer=(*self._state.buffer, *starts))
            if left is not None:
                kept.append(left)
                self._more = self._more or bool(starts)
        self._set(backfills=tuple(kept))

    def _fill(self, times: Times, filling: Backfilling, starts: list[Start]) -> Backfilling | None:
        """Add what a backfill asks for to `starts`; what is left of it."""
        room = min(MAX_BUFFER // 2 - len(self._state.buffer), AT_ONCE)
        left = filling
        for nominal in times.nominal(filling.after):
            if nominal > filling.end:
                return None
            if len(starts) >= room:
                return left
            starts.append(Start(nominal=nominal, actual=self._now, policy=filling.policy, request=filling.request))
            left = replace(filling, after=nominal)
        return None

    def begin_retry(self) -> None:
        """Start a failed run again when its wait is over and nothing else runs; a pause drops it."""
        if self._blocked_for_retry:
            self._set(retry=None)
        retry = self._state.retry
        if retry is None or retry.due > self._now or not _has_room_for_retry(self._rules, self._state):
            return
        self._set(retry=None)
        run = Running(
            overlapping=_policy_of(retry.start, self._rules) is OverlapPolicy.ALLOW_ALL,
            name=retry.start.run_name(self._rules.name, retry.attempt, retry.instead),
            start=retry.start,
            started=self._now,
            attempt=retry.attempt,
            first_started=retry.first_started,
            instead=retry.instead,
        )
        self._show(run)
        self._set(running=(*self._state.running, run))

    # Overlap

    def release(self) -> None:
        """Let what is in the buffer start, wait, or go, by its overlap policy."""
        kept: list[Start] = []
        for start in self._state.buffer:
            if start.by_time and self._out_of_turn():
                continue
            policy = _policy_of(start, self._rules)
            free = policy is OverlapPolicy.ALLOW_ALL or not self._in_the_way()
            if len(self._state.running) + len(self._fresh) >= MAX_BUFFER:
                self._keep(kept, start)
            elif free:
                self._begin(start)
            else:
                _POLICIES[policy](self, start, kept)
        if tuple(kept) != self._state.buffer:
            self._set(buffer=tuple(kept))
        for run in self._fresh:
            self._record_begun(run)
        for request_id, name in self._starts.items():
            self._answer_start(request_id, name)

    def _out_of_turn(self) -> bool:
        """Whether nothing more may be started by time."""
        used = sum(run.start.by_time for run in self._fresh)
        return self._blocked or (self._state.remaining is not None and used >= self._state.remaining)

    def _in_the_way(self) -> list[Running]:
        """The open runs that another one has to wait for, or to end."""
        return [run for run in (*self._state.running, *self._fresh) if not run.overlapping]

    def _begin(self, start: Start) -> None:
        name = start.run_name(self._rules.name)
        overlapping = _policy_of(start, self._rules) is OverlapPolicy.ALLOW_ALL
        self._fresh.append(Running(name=name, start=start, started=self._now, overlapping=overlapping))
        if start.request in self._starts:
            self._starts[start.request] = name

    def _skip(self, start: Start, kept: list[Start]) -> None:  # noqa: ARG002 (one signature for all policies)
        self._count("overlap_skipped")
        if start.request in self._starts:
            self._starts[start.request] = "skipped"
        if start.by_time and not self._state.skipping:
            open_ = next(iter((*self._in_the_way(), *self._fresh)))
            self._set(skipping=True)
            self._note(
                EventReason.RUN_SKIPPED, f"Nothing is started for {_text(start.nominal)}: `{open_.name}` is open"
            )

    def _buffer_one(self, start: Start, kept: list[Start]) -> None:
        self._skip(start, kept) if kept else self._keep(kept, start)

    def _buffer_all(self, start: Start, kept: list[Start]) -> None:
        self._keep(kept, start)

    def _cancel_other(self, start: Start, kept: list[Start]) -> None:
        if all(run.overlapping for run in self._state.running):
            self._replace_fresh(start, kept)
            return
        self._set(running=tuple(replace(run, cancel=not run.overlapping) for run in self._state.running))
        for other in [o for o in kept if _policy_of(o, self._rules) is OverlapPolicy.CANCEL_OTHER]:
            kept.remove(other)
            self._skip(other, kept)
        self._keep(kept, start)

    def _terminate_other(self, start: Start, kept: list[Start]) -> None:
        self._replace_fresh(start, kept)
        self._set(running=tuple(replace(run, terminate=not run.overlapping) for run in self._state.running))

    def _replace_fresh(self, start: Start, kept: list[Start]) -> None:
        """Begin this instead of what was about to begin."""
        fresh, self._fresh = self._fresh, []
        self._begin(start)
        for run in fresh:
            self._skip(run.start, kept)

    def _keep(self, kept: list[Start], start: Start) -> None:
        if len(kept) >= MAX_BUFFER:
            self._count("buffer_dropped")
            if not any(note.reason is EventReason.BUFFER_DROPPED for note in self._notes):
                text = f"Nothing is started for {_text(start.nominal)} and perhaps others: {MAX_BUFFER} wait already"
                self._note(EventReason.BUFFER_DROPPED, text, warning=True)
            return
        kept.append(start)

    def _record_begun(self, run: Running) -> None:
        self._count("actions")
        self._show(run)
        self._set(running=(*self._state.running, run))
        if run.start.by_time:
            self._set(last_scheduled=run.start.nominal, retry=None, skipping=False)
            if self._state.remaining is not None:
                self._set(remaining=self._state.remaining - 1)
                if self._state.remaining == 0:
                    text = "The last of `remainingActions` was started; nothing more is started by time"
                    self._note(EventReason.OUT_OF_ACTIONS, text)

    def _answer_start(self, request_id: str, name: str) -> None:
        if name == "skipped":
            open_ = next(iter(run.name for run in (*self._in_the_way(), *self._fresh)), "another run")
            message = f"nothing was started: `{open_}` is open"
            answer = Answer(ok=False, reason=ConditionReason.OVERLAP_SKIPPED, message=message)
        elif name:
            answer = Answer(ok=True, message=f"`{name}` is started", result={"workflowRun": name})
        elif any(start.request == request_id for start in self._state.buffer):
            answer = Answer(ok=True, message="it starts when an earlier run has closed")
        else:
            answer = Answer(ok=False, reason=ConditionReason.OVERLAP_SKIPPED, message="too many starts wait already")
        self._answer(request_id, answer)

    # What is shown

    def _show(self, run: Running) -> None:
        """Add a run to the last actions; a retry takes the place of the run before."""
        nominal = None if run.start.triggered else run.start.nominal
        entry = Recent(name=run.name, started=run.started, nominal=nominal)
        before = run.start.run_name(self._rules.name, run.attempt - 1, run.instead) if run.attempt > 1 else ""
        recent = [entry if each.name == before else each for each in self._state.recent]
        if entry not in recent:
            recent.append(entry)
        self._set(recent=tuple(recent[-RECENT:]))

    def _change_recent(self, name: str, **changes: Any) -> None:
        self._set(recent=tuple(replace(e, **changes) if e.name == name else e for e in self._state.recent))

    def _change_running(self, name: str, change: Callable[[Running], Running]) -> None:
        self._set(running=tuple(change(run) if run.name == name else run for run in self._state.running))

    def transition(self, before: ScheduleState | None) -> ScheduleTransition:
        """What has come of the pass."""
        return ScheduleTransition(
            self._state,
            tuple(self._notes),
            self._answers,
            durable=before is None or _anonymous(before) != _anonymous(self._state),
            more=self._more,
        )


_POLICIES: dict[OverlapPolicy, Callable[[SchedulePass, Start, list[Start]], None]] = {
    OverlapPolicy.SKIP: SchedulePass._skip,  # noqa: SLF001 (the table belongs to the class)
    OverlapPolicy.BUFFER_ONE: SchedulePass._buffer_one,  # noqa: SLF001
    OverlapPolicy.BUFFER_ALL: SchedulePass._buffer_all,  # noqa: SLF001
    OverlapPolicy.CANCEL_OTHER: SchedulePass._cancel_other,  # noqa: SLF001
    OverlapPolicy.TERMINATE_OTHER: SchedulePass._terminate_other,  # noqa: SLF001
}
"""What happens to a start while a run is open; with AllowAll, it starts."""


def _has_room_for_retry(rules: Rules, state: ScheduleState) -> bool:
    """Whether the run that has failed may be started again beside those that are open."""
    if state.retry is not None and _policy_of(state.retry.start, rules) is OverlapPolicy.ALLOW_ALL:
        return len(state.running) < MAX_BUFFER
    return all(run.overlapping for run in state.running)


def _policy_of(start: Start, rules: Rules) -> OverlapPolicy:
    return start.policy or rules.spec.overlap_policy


def _anonymous(state: ScheduleState) -> ScheduleState:
    """The state without the ids of its runs."""
    return replace(
        state,
        running=tuple(replace(run, run_id="") for run in state.running),
        recent=tuple(replace(each, run_id="") for each in state.recent),
    )


def _text(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")
