"""Reads and writes the paths of the steps of a run, which are strings in the memory, in events, and for users.

====================  ==============================================================
``hotel``             a step of the main list, and the block that it calls
``rooms[3]``          an item of a `forEach`
``rooms[3]/check``    a step of the block that the item calls
``race.fast``         the block of a branch of `parallel`
``hotel:catch``       the block of a `catch`
``hotel:onStart``     the block of the `onStart` of a step; likewise `onEnd`
``hotel:compensate``  the compensation of a step
``hotel:timeout``     the timer of the `timeout` of a step
``hotel:stepsTimeout``  the timer of the `stepsTimeout` of a block; of the main steps ``:stepsTimeout``
``hotel:limits``      the activity that takes the `limits` of a step
``hotel:service.db``  the activity that is service `db` of a block; of the main steps ``:service.db``
``hotel:ready.db``    the activity that waits until this service is ready
``:finally``          the block of a handler; its timer is ``:finally:timeout``
(empty)               the main steps
====================  ==============================================================
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Self

_SEGMENT: Final = re.compile(r"([^\[.:]*)(?:\[(\d+)\])?(.*)", re.DOTALL)
_CATCH: Final = ":catch"
_ON_START: Final = ":onStart"
_ON_END: Final = ":onEnd"
_COMPENSATE: Final = ":compensate"
TIMEOUT: Final = ":timeout"
"""Suffix of the path of a step or handler: the timer of its `timeout`."""
STEPS_TIMEOUT: Final = ":stepsTimeout"
"""Suffix of the path of a block, which is empty for the main steps: the timer of its `stepsTimeout`."""
_LIMITS: Final = ":limits"
_SERVICE: Final = ":service."
_READY: Final = ":ready."


@dataclass(frozen=True, slots=True)
class Path:
    """The path of a task, a step, a frame or a timer."""

    text: str
    frame: str = field(default="", compare=False)
    """The path of the frame that contains the step, as a string; empty for the main steps."""
    step: str = field(default="", compare=False)
    """Name of the step; empty for the main steps and for handlers."""
    index: int | None = field(default=None, compare=False)
    """Number of the item."""
    part: str = field(default="", compare=False)
    """The suffix of the step or item: ``.fast``, ``:catch``; for a handler ``:finally``."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a path."""
        frame, _, last = text.rpartition("/")
        found = _SEGMENT.fullmatch(last)
        assert found is not None  # the expression matches any text
        step, index, part = found.groups()
        return cls(text, frame, step, None if index is None else int(index), part)

    @classmethod
    def handler(cls, name: str) -> Self:
        """The frame of a handler, such as `finally`."""
        return cls(f":{name}", part=f":{name}")

    def __str__(self) -> str:
        return self.text

    # Within a frame

    def child(self, name: str) -> "Path":
        """A step of this frame."""
        return Path(f"{self.text}/{name}" if self.text else name, self.text, name)

    @property
    def is_handler(self) -> bool:
        """Whether it is the frame of a handler, or its timer."""
        return not self.frame and not self.step and bool(self.part)

    @property
    def handler_name(self) -> str:
        """Return the name of the handler of the frame or timer."""
        return self.part[1:].removesuffix(TIMEOUT)

    @property
    def is_compensation(self) -> bool:
        """Whether it is a compensation."""
        return self.part == _COMPENSATE

    @property
    def is_timeout(self) -> bool:
        """Whether it is the timer of a `timeout`."""
        return self.part.endswith(TIMEOUT)

    @property
    def is_steps_timeout(self) -> bool:
        """Whether it is the timer of the `stepsTimeout` of a frame."""
        return self.part.endswith(STEPS_TIMEOUT)

    @property
    def is_limits(self) -> bool:
        """Whether it is the activity that takes the `limits` of a step."""
        return self.part == _LIMITS

    # Services of a frame

    def run_service(self, name: str) -> "Path":
        """The activity that is a service of this frame."""
        return self._with(f"{_SERVICE}{name}")

    def await_service(self, name: str) -> "Path":
        """The activity that waits until a service of this frame is ready."""
        return self._with(f"{_READY}{name}")

    @property
    def service(self) -> str:
        """Return the name of the service that the activity is; empty if it is none."""
        return self.text.rpartition(_SERVICE)[2] if _SERVICE in self.part else ""

    @property
    def awaited(self) -> str:
        """Return the name of the service that the activity waits for; empty if it waits for none."""
        return self.text.rpartition(_READY)[2] if _READY in self.part else ""

    @property
    def served_frame(self) -> "Path":
        """The frame to which the service belongs."""
        return Path.parse(self.text.rpartition(_SERVICE if self.service else _READY)[0])

    # Of a task or step

    def item(self, index: int) -> "Path":
        """An item of this step."""
        return Path(f"{self.text}[{index}]", self.frame, self.step, index)

    def branch(self, name: str) -> "Path":
        """The frame of a branch."""
        return self._with(f".{name}")

    @property
    def catch(self) -> "Path":
        """The frame of the block of a `catch`."""
        return self._with(_CATCH)

    @property
    def on_start(self) -> "Path":
        """The frame of the block that runs before the step."""
        return self._with(_ON_START)

    @property
    def on_end(self) -> "Path":
        """The frame of the block that runs after the step."""
        return self._with(_ON_END)

    @property
    def compensation(self) -> "Path":
        """The activity or frame that compensates the step."""
        return self._with(_COMPENSATE)

    @property
    def timeout(self) -> "Path":
        """The timer of the `timeout` of the step or handler."""
        return self._with(TIMEOUT)

    @property
    def steps_timeout(self) -> "Path":
        """The timer of the `stepsTimeout` of the frame."""
        return self._with(STEPS_TIMEOUT)

    @property
    def timed_frame(self) -> "Path":
        """The frame whose `stepsTimeout` the timer is."""
        return Path.parse(self.text.removesuffix(STEPS_TIMEOUT))

    @property
    def limits(self) -> "Path":
        """The activity that takes the `limits` of the step."""
        return self._with(_LIMITS)

    def _with(self, part: str) -> "Path":
        return Path(self.text + part, self.frame, self.step, self.index, self.part + part)

    # Upwards

    @property
    def parent(self) -> "Path":
        """The frame that contains the step."""
        return Path.parse(self.frame)

    @property
    def loop(self) -> "Path":
        """Return the step of the item."""
        return self.parent.child(self.step)

    @property
    def owner(self) -> "Path":
        """The task of a frame or timer: the path without its part."""
        return Path(self.text.removesuffix(self.part), self.frame, self.step, self.index) if self.part else self

    @property
    def lineage(self) -> "tuple[Path, ...]":
        """Return the enclosing frames, the outermost first, and this path."""
        return (*self.parent.lineage, self) if self.frame else (self,)

    def enclosing(self) -> Iterator[str]:
        """Yield the paths of all enclosing items, loops, branches, and blocks."""
        for end, character in enumerate(self.text):
            if end and character in "/[.:":
                yield self.text[:end]


MAIN: Final = Path("")
"""The main steps."""


def title(path: str) -> str:
    """Name a path for readers: a service, and the wait for it, in words; everything else as it is."""
    parsed = Path.parse(path)
    name = parsed.service or parsed.awaited
    if not name:
        return path
    frame = parsed.served_frame.text
    return f"{'service' if parsed.service else 'readiness of service'} {name}{f' of {frame}' if frame else ''}"


def limited(timer: str) -> str:
    """The path of the step, handler, or block that a timer limits; that of the timer itself if it is the timer of a wait."""
    return timer.removesuffix(TIMEOUT).removesuffix(STEPS_TIMEOUT)


def is_limit(timer: str) -> bool:
    """Whether a timer limits a step, a handler, or a block."""
    return timer.endswith((TIMEOUT, STEPS_TIMEOUT))
