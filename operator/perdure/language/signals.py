"""Signals: those that a run waits for, and those that a definition waits for and sends, with checks of their names."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches

from perdure.engine.state import PendingTimer
from perdure.language.expressions import Template
from perdure.language.memory import Memory
from perdure.language.program import CompiledStep, Finding, Program, Severity, WaitForSignal, WaitUntil
from perdure.language.step_paths import MAIN, Path


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
    """Return when the wait of a task times out: its own timer, the `timeout` of a step, or a `stepsTimeout` around it fires."""
    path = Path.parse(text)
    around = [MAIN, *map(Path.parse, path.enclosing())]
    limits = [path.text, path.timeout.text]
    limits += [limit.text for each in around for limit in (each.timeout, each.steps_timeout)]
    return min((timers[limit].fire_time for limit in limits if limit in timers), default=None)


@dataclass(frozen=True, slots=True)
class Signals:
    """The signals of one definition."""

    awaited: frozenset[str] | None = frozenset()
    """Names of the signals that a step waits for or an expression reads; None if an expression computes a name."""
    sent: tuple[tuple[str, str], ...] = ()
    """Names of the signals that steps send, if they are literal: the path of the field, and the name."""
    misread: tuple[Finding, ...] = ()
    """Signals that an expression reads, but whose names look like a misspelling of a signal that a step waits for."""


def signals_of(program: Program) -> Signals:
    """Collect the signals of a compiled definition.

    Args:
        program: The definition; parts that did not compile are omitted.
    """
    waited: dict[str, None] = {}
    read: dict[str, str] = {}
    computed = False
    sent: list[tuple[str, str]] = []
    for name, flow in program.flows.items():
        blocks = [block for block in program.flows if block]
        path = f"spec.blocks[{blocks.index(name)}]" if name else "spec"
        for i, compiled in enumerate(flow.steps):
            where = f"{path}.steps[{i}]"
            if compiled.step.wait_for_signal is not None:
                waited[compiled.step.wait_for_signal.name] = None
            if compiled.step.signal is not None and "${" not in compiled.step.signal.name:
                sent.append((f"{where}.signal.name", compiled.step.signal.name))
            computed |= _reads(compiled.templates.values(), where, read)
        if flow.output is not None:
            computed |= _reads([flow.output], f"{path}.output", read)
    for name, handler in program.handlers.items():
        computed |= _reads([handler.input], f"spec.{name}.input", read)
    misread = _misread(read, waited)
    awaited = None if computed else frozenset(waited) | (read.keys() - misread.keys())
    return Signals(awaited, tuple(sent), tuple(misread.values()))


def _reads(templates: Iterable[Template], where: str, read: dict[str, str]) -> bool:
    """Collect the signals that templates read by name; returns whether one of them computes a name."""
    computed = False
    for template in templates:
        for name in template.references.signals:
            read.setdefault(name, where)
        computed |= "signals" in template.references.roots and not template.references.signals
    return computed


def _misread(read: Mapping[str, str], waited: Iterable[str]) -> dict[str, Finding]:
    """Report names in expressions that look like misspellings of signals that a step waits for."""
    names = list(waited)
    found = {}
    for name, where in read.items():
        near = [] if name in names else get_close_matches(name, names, 1)
        if near:
            message = f"reads `signals.{name}`, but a step waits for the signal `{near[0]}`; is that the same signal?"
            found[name] = Finding(where, message, Severity.WARNING)
    return found


@dataclass(frozen=True, slots=True)
class SignalNames:
    """The signals that the Workflows and runs of some files wait for."""

    by_workflow: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    """Signal names by the name of the Workflow; None if the names cannot be known."""
    others: frozenset[str] | None = frozenset()
    """Signal names of inline definitions; None if the names cannot be known."""

    def unmatched(self, path: str, name: str, workflow: str | None = None) -> Iterator[Finding]:
        """Warn about a signal that the receiver does not wait for.

        Args:
            path: The field with the name of the signal.
            name: The name of the signal.
            workflow: The Workflow of the receiver; None if it is not in the files. Then only a name that
                looks like a misspelling is a finding.
        """
        if workflow is not None:
            known = self.by_workflow.get(workflow)
            if known is None or name in known:
                return
            near = get_close_matches(name, sorted(known), 1)
            hint = f", did you mean `{near[0]}`" if near else ""
            there = ", ".join(sorted(known)) or "none"
            message = f"Workflow `{workflow}` does not wait for the signal `{name}`{hint}; it waits for: {there}"
            yield Finding(path, message, Severity.WARNING)
            return
        sets = [*self.by_workflow.values(), self.others]
        if None in sets:
            return
        known = frozenset[str]().union(*(each for each in sets if each is not None))
        near = [] if name in known else get_close_matches(name, sorted(known), 1)
        if near:
            message = f"nothing in the files waits for the signal `{name}`, did you mean `{near[0]}`?"
            yield Finding(path, message, Severity.WARNING)
