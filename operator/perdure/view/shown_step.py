"""A step in the output of `describe`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.api.lenient import Json, mapping
from perdure.view.openings import OpenActivity, OpenChild, OpenOperation, Timer

OPEN = frozenset({"Running", "Scheduled", "BackingOff", "Waiting", "Paused", "CircuitOpen", "CancelRequested"})
"""The states of a step that has started and has not ended."""

_MODIFIERS = frozenset(
    {"name", "needs", "when", "forEach", "catch", "compensate", "timeout", "deadLetter", "limits", "onStart", "onEnd"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStep:
    """A step of the definition, or a part of one: an item, a branch, a failure handler, or a compensation."""

    path: str
    """Its path in the run, such as `rooms[3]/ask`."""
    name: str
    """Its name within its parent: `rooms`, `[3]`, `fast`, `catch`, `compensate`."""
    kind: str
    target: str
    """Its target: the activity, the block, or the duration of a sleep."""
    state: str
    attempt: int | None = None
    """Number of the last attempt; every pod is an attempt, and so is the use of a cached result."""
    maximum_attempts: int = 0
    losses: int = 0
    """Number of attempts that were lost to the infrastructure: they do not count."""
    start: datetime | None = None
    end: datetime | None = None
    last_start: datetime | None = None
    """When its last attempt started."""
    failure: Json | None = None
    """Its permanent failure, even if a `catch` handled the failure."""
    cached: str = ""
    """The CachedResult that had its result; empty if its last attempt ran."""
    earlier_run: str = ""
    """Name of the earlier run in which it ran, if a reset or a retry has kept its result."""
    remark: str = ""
    """A warning about a doubtful result."""
    retry_state: str | None = None
    last_failure: Json | None = None
    """The outcome of the attempt before the last one."""
    count: int | None = None
    """Number of items of a step with `forEach`, if known."""
    pods: tuple[str, ...] = ()
    """The pods of its attempts in order; they may no longer exist."""
    task_queue: str = ""
    """The task queue of its workers; empty if it runs in a pod."""
    worker: str = ""
    """The worker of the last attempt, if known."""
    open: OpenActivity | None = None
    note: str = ""
    """A message for users while the step waits."""
    timer: Timer | None = None
    """The timer of its sleep or wait."""
    limit: Timer | None = None
    """The timer of its `timeout`."""
    child: OpenChild | None = None
    operation: OpenOperation | None = None
    steps: "tuple[ShownStep, ...]" = ()
    """Its parts and nested steps."""

    def walk(self) -> "Iterator[ShownStep]":
        """Yield the step and every nested step."""
        yield self
        for step in self.steps:
            yield from step.walk()


def kind_and_target(step: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind of a step and its target.

    Args:
        step: The step in the definition.

    Returns:
        For instance `activity` and its name.
    """
    kind = next((key for key in step if key not in _MODIFIERS), "")
    body = mapping(step.get(kind))
    match kind:
        case "activity" | "waitForSignal" | "signal":
            target = body.get("name")
        case "sleep":
            target = body.get("duration") or f"until {body.get('until')}"
        case "call":
            target = body.get("block")
        case "parallel":
            target = body.get("wait")
        case "childWorkflow":
            reference = mapping(body.get("workflow"))
            target = reference.get("name") or reference.get("type")
        case "fail":
            target = body.get("type")
        case "set":
            target = ", ".join(map(str, body))
        case _:
            target = ""
    return kind, str(target or "")
