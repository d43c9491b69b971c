"""What the body of a step is, and what it sees of the decision that it is part of."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from perdure.engine import commands as cmd
from perdure.language.memory import Ending, Frame, Memory, Task
from perdure.language.program import CompiledStep, Flow, Program


@dataclass(frozen=True, slots=True)
class At:
    """Where a task stands."""

    path: str
    frame: str
    flow: Flow
    compiled: CompiledStep
    index: int | None

    @property
    def where(self) -> str:
        """For messages."""
        return f"step `{self.path}`"


class Steps(Protocol):
    """The work of one decision, as bodies see it. Whatever raises StepError fails the step."""

    program: Program
    scope: Mapping[str, Any]
    memory: Memory
    now: datetime
    commands: list[cmd.Command]
    work: int
    dirty: bool
    """Conditions that are waited for have to be asked again."""

    def at(self, path: str) -> At:
        """Where a task or step of that path stands; its frame is open."""
        ...

    def set(self, **changes: Any) -> None:
        """Change what is remembered."""
        ...

    def put_task(self, path: str, task: Task | None) -> None:
        """Remember a task, or forget it."""
        ...

    def put_frame(self, path: str, frame: Frame | None) -> None:
        """Remember a frame, or forget it."""
        ...

    def evaluate(self, at: At, key: str, **extra: Any) -> Any:
        """The value of an expression of a step; raises StepError."""
        ...

    def limit(self, at: At, key: str, given: timedelta | str | None) -> timedelta | None:
        """A timeout of a task that begins; what an expression gives is remembered. Raises StepError."""
        ...

    def limit_of(self, path: str, key: str, given: timedelta | str | None) -> timedelta:
        """A timeout of a task that has begun, for messages."""
        ...

    def start_timer(self, timer_id: str, length: timedelta) -> None:
        """Start a timer."""
        ...

    def open_frame(
        self, path: str, block: str, params: Any = None, *, branch: str = "", outer: str | None = None
    ) -> None:
        """Begin to run a block. `outer` is the frame that calls it; None: it stands outside of all others. Raises StepError."""
        ...

    def stop_frame(self, path: str, ending: Ending) -> None:
        """Stop what runs in a frame."""
        ...

    def end_body(self, path: str, ending: Ending) -> None:
        """The body of a task has ended."""
        ...

    def continue_as_new(self, value: Any) -> None:
        """Go on in a new run."""
        ...


class Body(Protocol):
    """A kind of step."""

    def begin(self, steps: Steps, at: At) -> Ending | None:
        """Begin; raises StepError."""
        ...

    def stop(self, steps: Steps, at: At) -> Ending | None:
        """Stop what was begun."""
        ...
