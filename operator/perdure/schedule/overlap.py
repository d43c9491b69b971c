"""The buffered starts of a step: each begins, waits, or is skipped, by its overlap policy and the runs that are open."""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from perdure.api.kinds.schedule import MAX_BUFFER
from perdure.api.policies import OverlapPolicy
from perdure.api.reasons import EventReason
from perdure.schedule.draft import ScheduleDraft, time_text
from perdure.schedule.state import ScheduledRun, Start


class Starter:
    """Sorts the buffered starts of a step. The runs and the buffer of the draft do not change before `commit`."""

    def __init__(self, draft: ScheduleDraft) -> None:
        self._draft = draft
        self._began: list[ScheduledRun] = []
        self._waiting: list[Start] = []

    @property
    def any_waiting(self) -> bool:
        """Whether an earlier start stays in the buffer."""
        return bool(self._waiting)

    @property
    def full(self) -> bool:
        """Whether the schedule has its maximum number of open runs."""
        return len(self._draft.state.running) + len(self._began) >= MAX_BUFFER

    def must_wait(self) -> bool:
        """Whether a run is open that a start without AllowAll waits for."""
        return any(not run.overlapping for run in (*self._draft.state.running, *self._began))

    def out_of_actions(self) -> bool:
        """Whether no further scheduled run may begin: the schedule is blocked, or this step has used all actions."""
        used = sum(run.start.by_time for run in self._began)
        remaining = self._draft.state.remaining
        return self._draft.blocked or (remaining is not None and used >= remaining)

    def begin(self, start: Start) -> None:
        """Begin a run."""
        rules = self._draft.rules
        name = start.run_name(rules.name)
        self._began.append(
            ScheduledRun(name=name, start=start, started=self._draft.now, overlapping=rules.overlaps(start))
        )
        if start.request in self._draft.triggered:
            self._draft.triggered[start.request] = name

    def wait(self, start: Start) -> None:
        """Keep a start in the buffer, or drop it if the buffer is full."""
        if len(self._waiting) < MAX_BUFFER:
            self._waiting.append(start)
            return
        draft = self._draft
        draft.count("buffer_dropped")
        if not any(note.reason is EventReason.BUFFER_DROPPED for note in draft.notes):
            text = f"Dropped the start for {time_text(start.nominal)} and any later one: {MAX_BUFFER} starts are already buffered"
            draft.note(EventReason.BUFFER_DROPPED, text, warning=True)

    def skip(self, start: Start) -> None:
        """Skip a start because of an open run. Of consecutive skipped scheduled starts, only the first emits an Event."""
        draft = self._draft
        draft.count("overlap_skipped")
        if start.request in draft.triggered:
            draft.triggered[start.request] = None
        if start.by_time and not draft.state.skipping:
            draft.change(skipping=True)
            text = f"Skipped the start for {time_text(start.nominal)}: `{self._blocking_run()}` is open"
            draft.note(EventReason.RUN_SKIPPED, text)

    def skip_waiting(self, policy: OverlapPolicy) -> None:
        """Skip the waiting starts with a policy."""
        for other in [each for each in self._waiting if self._draft.rules.overlap_policy(each) is policy]:
            self._waiting.remove(other)
            self.skip(other)

    def replace_began(self, start: Start) -> None:
        """Begin a run in place of the runs that this step was about to begin."""
        began, self._began = self._began, []
        self.begin(start)
        for run in began:
            self.skip(run.start)

    def change_open(self, change: Callable[[ScheduledRun], ScheduledRun]) -> None:
        """Change every open run, except runs that this step begins."""
        self._draft.change(running=tuple(map(change, self._draft.state.running)))

    def only_overlapping(self) -> bool:
        """Whether AllowAll started every open run, not counting runs that this step begins."""
        return all(run.overlapping for run in self._draft.state.running)

    def commit(self) -> None:
        """Write the runs and the buffer to the draft."""
        if tuple(self._waiting) != self._draft.state.buffer:
            self._draft.change(buffer=tuple(self._waiting))
        for run in self._began:
            self._record(run)

    def _blocking_run(self) -> str:
        """Name of the run because of which a start is skipped."""
        return next(run.name for run in (*self._draft.state.running, *self._began) if not run.overlapping)

    def _record(self, run: ScheduledRun) -> None:
        draft = self._draft
        draft.count("actions")
        draft.record_action(run)
        draft.change(running=(*draft.state.running, run))
        if not run.start.by_time:
            return
        draft.change(last_scheduled=run.start.nominal, retry=None, skipping=False)
        if draft.state.remaining is not None:
            draft.change(remaining=draft.state.remaining - 1)
            if draft.state.remaining == 0:
                text = "The last of `remainingActions` started; no further scheduled runs start"
                draft.note(EventReason.OUT_OF_ACTIONS, text)


def start_buffered(draft: ScheduleDraft) -> None:
    """Start, keep, or skip every buffered start."""
    starter = Starter(draft)
    for start in draft.state.buffer:
        if start.by_time and starter.out_of_actions():
            continue
        policy = draft.rules.overlap_policy(start)
        if starter.full:
            starter.wait(start)
        elif policy is OverlapPolicy.ALLOW_ALL or not starter.must_wait():
            starter.begin(start)
        else:
            _POLICIES[policy](starter, start)
    starter.commit()


def skip(starter: Starter, start: Start) -> None:
    """Skip the start."""
    starter.skip(start)


def buffer_one(starter: Starter, start: Start) -> None:
    """Let one start wait for the open run, and skip further starts."""
    if starter.any_waiting:
        starter.skip(start)
    else:
        starter.wait(start)


def buffer_all(starter: Starter, start: Start) -> None:
    """Let every start wait, and begin it when its predecessor has closed."""
    starter.wait(start)


def cancel_other(starter: Starter, start: Start) -> None:
    """Cancel the open run, and start the next one when it has closed. A newer start replaces a waiting one."""
    if starter.only_overlapping():
        starter.replace_began(start)
        return
    starter.change_open(partial(request_stop, terminate=False))
    starter.skip_waiting(OverlapPolicy.CANCEL_OTHER)
    starter.wait(start)


def terminate_other(starter: Starter, start: Start) -> None:
    """Terminate the open run, and begin the start immediately."""
    starter.replace_began(start)
    starter.change_open(partial(request_stop, terminate=True))


def request_stop(run: ScheduledRun, *, terminate: bool) -> ScheduledRun:
    """Mark an open run to be stopped, because another run replaces it. Runs that AllowAll started keep running."""
    stop = not run.overlapping
    return replace(run, terminate=stop) if terminate else replace(run, cancel=stop)


_POLICIES: dict[OverlapPolicy, Callable[[Starter, Start], None]] = {
    OverlapPolicy.SKIP: skip,
    OverlapPolicy.BUFFER_ONE: buffer_one,
    OverlapPolicy.BUFFER_ALL: buffer_all,
    OverlapPolicy.CANCEL_OTHER: cancel_other,
    OverlapPolicy.TERMINATE_OTHER: terminate_other,
}
