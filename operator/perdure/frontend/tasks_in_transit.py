"""Workflow tasks that other members of the fleet have passed on to workers a moment ago: they may not have arrived."""

from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import Final

from perdure.controller.run_entries import Entry
from perdure.frontend.tokens import WorkflowTaskToken

_SECONDS: Final = 15.0
"""Longer than it takes to find out that a member is lost. What was sent to it before has arrived."""


@dataclass(frozen=True, slots=True)
class _Sent:
    entry: Entry
    token: WorkflowTaskToken
    time: float


class TasksInTransit:
    """What this member would have to repeat if another one were lost now."""

    def __init__(self) -> None:
        """Know of none."""
        self._sent: dict[str, deque[_Sent]] = {}
        """By member, in order."""

    def note(self, member: str, entry: Entry, token: WorkflowTaskToken) -> None:
        """A task of a run goes to a worker that is connected to a member."""
        sent, time = self._sent.setdefault(member, deque()), monotonic()
        sent.append(_Sent(entry, token, time))
        while sent[0].time < time - _SECONDS:
            sent.popleft()

    def lost(self, member: str) -> list[tuple[Entry, WorkflowTaskToken]]:
        """What may not have arrived, because a member is lost."""
        since = monotonic() - _SECONDS
        return [(each.entry, each.token) for each in self._sent.pop(member, ()) if each.time >= since]
