"""Simulated workflow code. What it does depends only on its workflow ID, its input and its history, as SDKs require."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Final

from temporalio.api.enums.v1 import EventType, ParentClosePolicy
from temporalio.api.history.v1 import WorkflowExecutionStartedEventAttributes

from simulated.sdk import decisions, updates
from simulated.sdk.decisions import PODS, QUEUE, Decision
from simulated.sdk.updates import Update

WORKFLOWS: Final = 5
"""How many workflows clients start; they signal each other."""
_POLICIES: Final = (
    ParentClosePolicy.PARENT_CLOSE_POLICY_TERMINATE,
    ParentClosePolicy.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
    ParentClosePolicy.PARENT_CLOSE_POLICY_ABANDON,
)
_BY_SCHEDULED = frozenset(
    getattr(EventType, f"EVENT_TYPE_ACTIVITY_TASK_{how}") for how in ("COMPLETED", "FAILED", "TIMED_OUT", "CANCELED")
)
_BY_INITIATED = frozenset(
    {
        *(
            getattr(EventType, f"EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_{how}")
            for how in ("COMPLETED", "FAILED", "TIMED_OUT", "CANCELED", "TERMINATED")
        ),
        EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_EXTERNAL_WORKFLOW_EXECUTION_SIGNALED,
        EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED,
    }
)


@dataclass(slots=True)
class Item:
    """Something that the workflow waits for."""

    kind: str
    name: str
    waits: bool
    """Whether the workflow waits for its end even after it has requested the cancellation."""
    event: int = 0
    """The event that has opened it."""
    open: bool = True
    cancelled: bool = False
    """Whether its cancellation was requested."""


class Script:
    """The code of one run: rounds of activities, timers, children and signals, of each of which it waits for all, or for any."""

    def __init__(self, started: WorkflowExecutionStartedEventAttributes) -> None:
        """`started` is the first event of the run."""
        self.workflow_id = started.workflow_id
        self._run_id = started.original_execution_run_id
        options = decisions.first_value(started.input) or {}
        self._left: int = options.get("left", 0)
        """How often it may still continue as new."""
        self._is_leaf = bool(options.get("leaf"))
        self._random = Random(f"{self.workflow_id}/{self._left}")
        self._rounds = [self._random.choice(["all", "any"]) for _ in range(1 if self._is_leaf else 3)]
        self._number = 0
        self._any = False
        self._items: list[Item] = []
        """Of this round."""
        self._all: list[Item] = []
        self._requests = 0
        """Signals and updates in this round."""
        self._handlers: dict[str, Item] = {}
        """The timers of the updates that are not completed yet, by update ID."""
        self._is_cancelled = self._is_stopping = False

    def recorded(self, about: str, event_id: int) -> None:
        """Record that an event has opened the subject of a command."""
        for item in self._all:
            if item.name == about and not item.event:
                item.event = event_id

    @staticmethod
    def accepts(update: Update) -> bool:
        """Validate an update."""
        return update.how != "reject"

    def decide(self, events: list[tuple[int, Any]], accepted: list[Update]) -> list[Decision]:
        """Decide, given the events since the last decision: their types and attributes. Updates arrive after them."""
        for type_, attributes in events:
            self._note(type_, attributes)
        made = [*self._complete_updates()]
        for update in accepted:
            made += self._handle(update)
        if self._is_cancelled and not self._is_stopping:
            self._is_stopping, self._rounds, self._any = True, [], False
            made += self._cancel_rest()
        while self._rounds and not self._is_busy():
            made += self._cancel_rest()
            made += self._begin(self._rounds.pop(0))
        if not self._rounds and not self._is_busy():
            made += self._cancel_rest()
            if not any(item.open for item in self._all):
                made.append(self._end())
        return made

    def _note(self, type_: int, attributes: Any) -> None:
        if type_ == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            self._requests += 1
        elif type_ == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
            self._is_cancelled = True
        elif type_ in _BY_SCHEDULED:
            self._close(attributes.scheduled_event_id)
        elif type_ in _BY_INITIATED:
            self._close(attributes.initiated_event_id)
        elif type_ == EventType.EVENT_TYPE_TIMER_FIRED:
            self._close(attributes.started_event_id)

    def _close(self, event_id: int) -> None:
        for item in self._all:
            if item.event == event_id:
                item.open = False

    def _is_busy(self) -> bool:
        if self._any:
            return bool(self._items) and all(item.open for item in self._items) and not self._requests
        return any(item.open for item in self._items)

    # Updates

    def _handle(self, update: Update) -> Iterator[Decision]:
        """Accept an update, and complete it now, in a while, or never."""
        self._requests += 1
        name = update.update_id
        yield updates.accept(update)
        if update.how == "now":
            yield updates.succeed(name, f"{name} done")
        elif update.how == "fail":
            yield updates.fail(name, f"{name} not done")
        elif update.how == "later":
            timer = self._handlers[name] = Item("timer", f"for {name}", waits=True)
            self._all.append(timer)
            yield decisions.timer(timer.name, timedelta(seconds=4))

    def _complete_updates(self) -> Iterator[Decision]:
        """Complete the updates whose timers have fired or are cancelled."""
        for name, timer in [*self._handlers.items()]:
            if not timer.open:
                del self._handlers[name]
                yield (
                    updates.fail(name, "cut short") if timer.cancelled else updates.succeed(name, f"{name} done later")
                )

    # Rounds

    def _begin(self, rule: str) -> Iterator[Decision]:
        random = self._random
        self._number += 1
        self._any, self._requests, self._items = rule == "any", 0, []
        kinds = ["activity", "activity", "pod", "pod", "timer"]
        if not self._is_leaf:
            kinds += ["child", "signal"]
        for number in range(random.randint(1, 4)):
            kind = random.choice(kinds)
            make: Callable[[str, Random], tuple[str, Decision]] = getattr(self, f"_make_{kind}")
            name, decision = make(f"{self._number}.{number}", random)
            item = Item(kind, name, waits=random.random() < 0.6)
            self._items.append(item)
            self._all.append(item)
            yield decision

    def _make_activity(self, name: str, random: Random) -> tuple[str, Decision]:
        heartbeat = random.choice([None, timedelta(seconds=4)])
        return name, decisions.activity(name, "Work", QUEUE, heartbeat)

    def _make_pod(self, name: str, random: Random) -> tuple[str, Decision]:
        return name, decisions.activity(name, random.choice(["steady", "flaky"]), PODS, None)

    def _make_timer(self, name: str, random: Random) -> tuple[str, Decision]:
        return name, decisions.timer(name, timedelta(seconds=random.choice([0.5, 3, 8, 20])))

    def _make_child(self, name: str, random: Random) -> tuple[str, Decision]:
        name, policy = f"{self.workflow_id}-{self._left}-{name}", random.choice(_POLICIES)
        if random.random() < 0.3:
            return name, decisions.child(name, "child", "workflows", {}, policy)
        return name, decisions.child(name, "Flow", QUEUE, {"leaf": True, "left": random.choice([0, 0, 1])}, policy)

    def _make_signal(self, name: str, random: Random) -> tuple[str, Decision]:
        others = [f"flow{number}" for number in range(WORKFLOWS) if f"flow{number}" != self.workflow_id]
        decision = decisions.signal(random.choice(others), f"{self.workflow_id}/{self._run_id}/{name}")
        return decision.about, decision

    # Ends

    def _cancel_rest(self) -> Iterator[Decision]:
        """Cancel all open work, and complete the updates that have waited for it."""
        for item in self._all:
            if item.cancelled or not item.open or item.kind == "signal":
                continue
            item.cancelled, item.open = True, item.waits and item.kind != "timer"
            if item.kind == "timer":
                yield decisions.cancel_timer(item.name)
            elif item.kind == "child":
                yield decisions.cancel_child(item.name)
            else:
                yield decisions.cancel_activity(item.event)
        yield from self._complete_updates()

    def _end(self) -> Decision:
        if self._is_stopping:
            return decisions.cancel()
        if self._left:
            return decisions.continue_as_new({"left": self._left - 1, "leaf": self._is_leaf})
        if self._random.random() < 0.15:
            return decisions.fail("as the script says")
        return decisions.complete(f"done {self.workflow_id}")
