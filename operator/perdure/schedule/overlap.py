"""Overlap policies: what happens to a buffered start while an earlier run is open."""

from collections.abc import Callable
from functools import partial

from perdure.api.schedule import OverlapPolicy
from perdure.schedule.buffered_starts import Starter, request_stop
from perdure.schedule.draft import ScheduleDraft
from perdure.schedule.state import Start


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
    if starter.anything_waits:
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


_POLICIES: dict[OverlapPolicy, Callable[[Starter, Start], None]] = {
    OverlapPolicy.SKIP: skip,
    OverlapPolicy.BUFFER_ONE: buffer_one,
    OverlapPolicy.BUFFER_ALL: buffer_all,
    OverlapPolicy.CANCEL_OTHER: cancel_other,
    OverlapPolicy.TERMINATE_OTHER: terminate_other,
}
