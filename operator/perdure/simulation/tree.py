"""The tree of steps, built from the trace of a run because the run's state drops blocks that have ended."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from perdure.api.kinds.steps import STEP_KINDS, Step
from perdure.api.rules import json_name
from perdure.language.memory import Status
from perdure.language.program import Program
from perdure.language.step_paths import Path
from perdure.language.step_trace import Traced

_LAST = re.compile(r"^(.*)([/.:\[][^/.:\[]*)$")
_KINDS = {"[": "item", ".": "branch", ":": "handler"}


@dataclass(slots=True)
class Node:
    """A step, or a part of one: an item, a branch, a failure handler, or a compensation."""

    path: str
    kind: str
    target: str = ""
    """The target of the step: the activity, the block, or the duration of a sleep."""
    status: str = ""
    """The status; empty if it has not begun."""
    start: datetime | None = None
    end: datetime | None = None
    nodes: list["Node"] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name below its parent: `reserve`, `[3]`, `fast`, `compensate`."""
        found = _LAST.match(self.path)
        return found[2].lstrip("/.:") if found else self.path


class Tree:
    """The steps of a run that were reached."""

    def __init__(self, program: Program, trace: Mapping[str, Traced]) -> None:
        """Build the tree of a program.

        Args:
            program: The program.
            trace: The begin and end of its steps, by path; entries that are added later are included.
        """
        self._program = program
        self._trace = trace
        self._closed: datetime | None = None

    def close(self, now: datetime) -> None:
        """Mark open nodes as stopped, because the run has closed."""
        self._closed = now

    @property
    def nodes(self) -> list[Node]:
        """The main steps, compensations and handlers."""
        root = Node("", "run")
        known = {"": root}
        for step in self._program.main.steps:
            self._node(known, step.step.name)
        for path, traced in self._trace.items():
            node = self._node(known, path)
            node.status, node.start, node.end = traced.status.value, traced.start, traced.end
            if traced.status is Status.RUNNING and self._closed is not None:
                node.status, node.end = "Stopped", self._closed
        return root.nodes

    def _node(self, known: dict[str, Node], path: str) -> Node:
        if path not in known:
            found = _LAST.match(path)
            above, last = found.groups() if found else ("", path)
            step = self._step_at(above, last.removeprefix("/")) if last[0] not in _KINDS else None
            kind, target = kind_and_target(step) if step is not None else (_KINDS.get(last[0], ""), "")
            if last == ":compensate":
                target = self._undo(above)
            known[path] = Node(path, kind, target)
            self._node(known, above).nodes.append(known[path])
        return known[path]

    def _step_at(self, frame: str, name: str) -> Step | None:
        traced = self._trace.get(frame)
        flow = self._program.flows.get(traced.block if traced is not None else "")
        compiled = flow.by_name.get(name) if flow is not None else None
        return compiled.step if compiled is not None else None

    def _undo(self, path: str) -> str:
        """The activity that undoes the step at a path."""
        parsed = Path.parse(path)
        step = self._step_at(parsed.frame, parsed.step)
        undo = step.compensate if step is not None else None
        return undo.activity.name if undo is not None and undo.activity is not None else ""


def kind_and_target(step: Step) -> tuple[str, str]:
    """The kind and the target of a step, in the terms of manifests."""
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
    """Yield every node with its depth."""
    for node in nodes:
        yield depth, node
        yield from walk(node.nodes, depth + 1)
