"""Workflow tasks that other members of the fleet have just passed to workers, and that may not have arrived."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from perdure.controller.directory import Entry
from perdure.frontend.messages.task_tokens import WorkflowTaskToken
from perdure.kube.clock import monotonic

_SECONDS: Final = 15.0
"""How long tasks count as in transit, which is longer than detecting the loss of a member takes."""


@dataclass(frozen=True, slots=True)
class _Sent:
    entry: Entry
    token: WorkflowTaskToken
    time: float


class TasksInTransit:
    """The tasks that this member must repeat if another member is lost."""

    def __init__(self) -> None:
        """Create it without tasks."""
        self._sent: dict[str, deque[_Sent]] = {}
        """The sent tasks by member, in order."""

    def note(self, member: str, entry: Entry, token: WorkflowTaskToken) -> None:
        """Record a task that is sent to a worker of a member."""
        sent, time = self._sent.setdefault(member, deque()), monotonic()
        sent.append(_Sent(entry, token, time))
        while sent[0].time < time - _SECONDS:
            sent.popleft()

    def lost(self, member: str) -> list[tuple[Entry, WorkflowTaskToken]]:
        """Return the tasks that may not have arrived because a member is lost."""
        since = monotonic() - _SECONDS
        return [(each.entry, each.token) for each in self._sent.pop(member, ()) if each.time >= since]
