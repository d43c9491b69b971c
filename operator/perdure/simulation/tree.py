"""The tree of steps: gathered while a run is decided, since its memory forgets blocks that have ended."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perdure.api.rules import json_name
from perdure.api.steps import STEP_KINDS, Step
from perdure.engine import events as ev
from perdure.engine.decider import Decider, Decision
from perdure.language.memory import Frame, Memory, Status, step_path
from perdure.language.program import Program

_LAST = re.compile(r"^(.*)([/.:\[][^/.:\[]*)$")
_KINDS = {"[": "item", ".": "branch", ":": "handler"}

_IDS = ("activity_id", "timer_id", "child_id", "signal_id")
"""Attributes by which events name steps."""

_ENDINGS: dict[type[ev.Event], Status] = {
    ev.ActivityTaskCompleted: Status.SUCCEEDED,
    ev.ActivityTaskFailed: Status.FAILED,
    ev.ActivityTaskTimedOut: Status.FAILED,
    ev.ActivityTaskCanceled: Status.CANCELLED,
    ev.ActivityTaskCancelRequested: Status.CANCELLED,
    ev.TimerFired: Status.SUCCEEDED,
    ev.TimerCanceled: Status.CANCELLED,
    ev.ChildWorkflowExecutionCompleted: Status.SUCCEEDED,
    ev.ChildWorkflowExecutionFailed: Status.FAILED,
    ev.ChildWorkflowExecutionTimedOut: Status.FAILED,
    ev.ChildWorkflowExecutionTerminated: Status.FAILED,
    ev.ChildWorkflowExecutionCanceled: Status.CANCELLED,
    ev.StartChildWorkflowExecutionFailed: Status.FAILED,
    ev.ExternalWorkflowExecutionSignaled: Status.SUCCEEDED,
    ev.SignalExternalWorkflowExecutionFailed: Status.FAILED,
}


@dataclass(slots=True)
class Node:
    """A step, or a part of one: an item, a branch, what handles a failure of it or undoes it."""

    path: str
    kind: str
    target: str = ""
    """What it is about: the activity, the block, how long a sleep takes."""
    status: str = ""
    """Empty: it has not begun."""
    start: datetime | None = None
    end: datetime | None = None
    guessed: bool = False
    """Whether the status is only likely."""
    nodes: list["Node"] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name below the node above it: `reserve`, `[3]`, `fast`, `compensate`."""
        found = _LAST.match(self.path)
        return found[2].lstrip("/.:") if found else self.path


class Tree:
    """The steps of a run, as far as they were reached."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._nodes: dict[str, Node] = {"": Node("", "run")}
        self._frames: dict[str, Frame] = {}
        self._tasks: set[str] = set()
        for step in program.main.steps:
            self._step(step.step.name, step.step)

    @property
    def nodes(self) -> list[Node]:
        """The main steps, compensations and handlers."""
        return self._nodes[""].nodes

    def see(self, memory: Memory, event: ev.AnyEvent | None, now: datetime) -> None:
        """Look at where a run stands after a decision; what has changed is taken over."""
        for path, frame in memory.frames.items():
            if self._frames.get(path) is not frame:
                self._see_frame(path, frame, now)
        for path in memory.tasks.keys() - self._tasks:
            if path.endswith("]"):
                self._at(path, now)
        # What has ended together with the block it stands in has left no record: its end is told by events, or guessed.
        gone = {path for path in self._tasks - memory.tasks.keys() if path.endswith("]")}
        for path in self._frames.keys() - memory.frames.keys():
            gone |= {path, *(step_path(path, name) for name in self._frames[path].steps)}
        for path in sorted(gone, key=len, reverse=True):
            self._guess(path, event, now)
        self._frames = dict(memory.frames)
        self._tasks = set(memory.tasks)

    def hear(self, event: ev.AnyEvent) -> None:
        """Take over what an event says of a step; a record of it says more, and comes later."""
        path = next((p for p in (getattr(event, key, "") for key in _IDS) if p), "")
        if isinstance(event, ev.ActivityTaskScheduled) and path.endswith(":compensate"):
            self._at(path, event.event_time).target = event.activity_type
        status = _ENDINGS.get(type(event))
        node = self._nodes.get(path)
        if not path or node is None or status is None or not (node.guessed or node.status == Status.RUNNING):
            return
        if isinstance(event, ev.TimerFired | ev.TimerCanceled):
            step = self._nodes.get(path.rpartition("[")[0]) if path.endswith("]") else node
            if step is None or step.kind != "sleep":
                return  # the time limit of something else
        node.status, node.guessed, node.end = status.value, False, event.event_time

    def close(self, now: datetime) -> None:
        """The run has closed: what was open is cut off."""
        self._resolve(self._nodes[""])
        for node in self._nodes.values():
            if node.status == Status.RUNNING:
                node.status, node.end = "Stopped", now

    def _see_frame(self, path: str, frame: Frame, now: datetime) -> None:
        flow = self._program.flows[frame.block]
        if path:
            self._at(path, now)
        for compiled in flow.steps:
            record = frame.steps.get(compiled.step.name)
            if record is not None:
                node = self._step(step_path(path, compiled.step.name), compiled.step)
                node.status, node.start, node.end = record.status.value, record.start_time, record.end_time

    def _guess(self, path: str, event: ev.AnyEvent | None, now: datetime) -> None:
        node = self._nodes.get(path)
        if node is None or node.status != Status.RUNNING:
            return
        node.end, node.guessed = now, True
        node.status = Status.SUCCEEDED.value
        if node.kind == "waitForSignal" and getattr(event, "signal_name", None) != node.target:
            node.status = Status.CANCELLED.value

    def _resolve(self, node: Node) -> None:
        """How something ended whose end was guessed goes by what is in it."""
        for below in node.nodes:
            self._resolve(below)
        if node.guessed and node.nodes:
            caught = [below for below in node.nodes if below.name == "catch"]
            ends = [below.status for below in caught or node.nodes]
            node.status = next((s.value for s in (Status.FAILED, Status.CANCELLED) if s in ends), node.status)

    def _at(self, path: str, now: datetime) -> Node:
        """The node of an item, a branch or a handler, which is open; that of a step as it is."""
        node = self._node(path)
        if node.start is None:
            node.start, node.status = now, Status.RUNNING.value
        return node

    def _step(self, path: str, step: Step) -> Node:
        node = self._node(path)
        if not node.kind:
            node.kind, node.target = kind_and_target(step)
        return node

    def _node(self, path: str) -> Node:
        if path not in self._nodes:
            found = _LAST.match(path)
            above, last = found.groups() if found else ("", path)
            self._nodes[path] = Node(path, _KINDS.get(last[0], ""))
            self._node(above).nodes.append(self._nodes[path])
        return self._nodes[path]


class Watcher:
    """A decider that another one decides for, with somebody who looks on."""

    def __init__(self, decider: Decider, tree: Tree) -> None:
        self._decider = decider
        self._tree = tree
        self._now: datetime | None = None

    def decide(self, memory: Any, event: ev.AnyEvent | None, *, continue_as_new_suggested: bool = False) -> Decision:
        """Decide what follows; see `perdure.engine.decider.Decider`."""
        if event is not None:
            self._tree.hear(event)
        decision = self._decider.decide(memory, event, continue_as_new_suggested=continue_as_new_suggested)
        self._now = event.event_time if event else self._now
        if isinstance(decision.memory, Memory) and self._now is not None:
            self._tree.see(decision.memory, event, self._now)
        return decision


def kind_and_target(step: Step) -> tuple[str, str]:
    """What a step does, in manifests' words, and about what."""
    kind = next(kind for kind in STEP_KINDS if getattr(step, kind) is not None)
    body = getattr(step, kind)
    match kind:
        case "activity" | "wait_for_signal" | "signal":
            target = body.name
        case "sleep":
            given = step.dump()["sleep"]
            target = given.get("duration") or f"until {given.get('until')}"
        case "call":
            target = body.block
        case "child_workflow":
            target = body.workflow.name or body.workflow.type or ""
        case "fail":
            target = body.type
        case "set_":
            target = ", ".join(body)
        case _:
            target = ""
    return json_name(kind), str(target)


def walk(nodes: list[Node], depth: int = 0) -> Iterator[tuple[int, Node]]:
    """Every node, each with how deep it lies."""
    for node in nodes:
        yield depth, node
        yield from walk(node.nodes, depth + 1)
