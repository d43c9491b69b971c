"""Finds the signals that a run waits for, and the signals in its definition."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from perdure.engine.state import PendingTimer
from perdure.language.memory import Memory
from perdure.language.program import CompiledStep, Program, WaitForSignal, WaitUntil
from perdure.language.step_paths import Path


@dataclass(frozen=True, slots=True, order=True)
class Awaited:
    """A signal that a step waits for."""

    step: str
    """Path of the step."""
    signal: str
    until: datetime | None = None
    """When the wait times out, by its own timeout or the timeout of its step or an enclosing block. None: never."""


def awaited(program: Program, memory: Memory, timers: Mapping[str, PendingTimer]) -> list[Awaited]:
    """Find the signals that a run waits for: in `waitForSignal`, and in the condition of a `waitUntil`.

    Args:
        program: The program of the run.
        memory: The state of the run.
        timers: The open timers of the run, by ID.

    Returns:
        The signals, the longest wait first.
    """
    found = []
    for path in (*memory.signal_waiters, *memory.condition_waiters):
        step = _step_at(program, memory, path)
        if step is not None:
            found += [Awaited(path, signal, _until(path, timers)) for signal in sorted(_signals_of(step))]
    return found


def known_signals(program: Program) -> frozenset[str] | None:
    """Find the signals that any step waits for or any expression reads; None if an expression may read all of them."""
    actions = [step.action for flow in program.flows.values() for step in flow.steps]
    names = {action.name for action in actions if isinstance(action, WaitForSignal)}
    for template in program.templates():
        reads = template.references
        if reads.every_signal:
            return None
        names |= reads.signals
    return frozenset(names)


def unknown_signal(program: Program, name: str) -> str:
    """Return a warning if nothing in a definition consumes signals of a name.

    Returns:
        A clause for users; empty if something may consume the signal.
    """
    known = known_signals(program)
    if known is None or name in known:
        return ""
    others = f"; it waits for {_listed(sorted(known))}" if known else ""
    return f"the workflow never waits for signal `{name}`, so nothing will receive it{others}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _step_at(program: Program, memory: Memory, path: str) -> CompiledStep | None:
    found = Path.parse(path)
    frame = memory.frames.get(found.frame)
    return None if frame is None else program.flows[frame.block].by_name.get(found.step)


def _signals_of(step: CompiledStep) -> frozenset[str]:
    match step.action:
        case WaitForSignal(name):
            return frozenset({name})
        case WaitUntil(condition):
            return condition.references.signals
        case _:
            return frozenset()


def _until(text: str, timers: Mapping[str, PendingTimer]) -> datetime | None:
    """Return when the wait of a task times out: its own timer or the `timeout` of an enclosing step or handler fires."""
    path = Path.parse(text)
    around = (Path.parse(each).timeout.text for each in path.enclosing())
    limits = [path.text, path.timeout.text, *around]
    return min((timers[limit].fire_time for limit in limits if limit in timers), default=None)
