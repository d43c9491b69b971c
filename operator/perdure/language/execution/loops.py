"""Loops: `forEach` runs a step as one task for each item, with a limit on open items."""

from typing import Any, Final

import msgspec

from perdure.language.coercion import shown
from perdure.language.execution.context import WORK, WORK_OF_A_START, Location, replace
from perdure.language.execution.parts import Parts
from perdure.language.memory import CANCELLED, ForEachLoop, Outcome, Status, failed, succeeded
from perdure.language.step_failures import EXPRESSION_ERROR, StepError, application
from perdure.language.step_paths import Path

MAX_OPEN: Final = 250
"""Number of open tasks in a run above which loops start no more items; each loop still has one."""
MAX_OPEN_BYTES: Final = 128 * 1024
"""Bytes of inputs of open tasks above which loops start no more items."""
MAX_LOOP_OUTPUT: Final = 192 * 1024
"""Maximum bytes of the outputs of the items of a loop."""


class Loops:
    """Starts, stops and closes loops and their items."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._context = parts.context
        self._stopping: set[str] = set()
        """Loops whose items are being canceled one by one; they close after the last."""

    def start(self, at: Location) -> None:
        """Evaluate the items, and enqueue the first ones. Raises StepError."""
        loop = at.compiled.loop
        items = self._parts.evaluation.of_step(at, loop.items if loop is not None else None)
        if isinstance(items, dict):
            items = [{"key": key, "value": items[key]} for key in sorted(items)]
        if not isinstance(items, list):
            message = f"{at.where}: `forEach.items` must give a list or a map, not {shown(items)}"
            raise StepError(application(EXPRESSION_ERROR, message))
        self._context.work += len(items)
        first = items[0] if items and type(items[0]) is int else 0
        kept = None if _consecutive(items, first) else items
        self._context.put_loop(at.path, ForEachLoop(items=kept, first=first, count=len(items)))
        self._context.enqueue_first(at.path)

    def start_items(self, path: Path) -> None:
        """Start items up to the limit; close the loop if no items are left or open."""
        context = self._context
        definition = context.locate(path).compiled.loop
        most = definition.max_concurrency if definition is not None else None
        while not context.closed:
            loop = context.loop(path)
            if loop is None or loop.outcome is not None:
                return
            if loop.next == loop.count:
                if not loop.open:
                    self._complete(path, loop)
                return
            if most and loop.open >= most:
                return
            if loop.open and self._run_is_full():
                if path.text not in context.memory.blocked_loops:
                    context.update(blocked_loops=(*context.memory.blocked_loops, path.text))
                return
            if context.work > WORK:
                context.enqueue_first(path)
                return
            context.work += WORK_OF_A_START
            context.put_loop(path, replace(loop, next=loop.next + 1, open=loop.open + 1))
            self._parts.tasks.start(path.item(loop.next))

    def unblock(self) -> None:
        """Enqueue the loops that waited for a task to close."""
        memory = self._context.memory
        if memory.blocked_loops and not self._run_is_full():
            self._context.enqueue(Path.parse(path) for path in memory.blocked_loops if path in memory.loops)
            self._context.update(blocked_loops=())

    def stop(self, path: Path, outcome: Outcome) -> None:
        """Cancel the open items of a loop; it closes with the outcome once they have closed."""
        loop = self._context.memory.loops[path.text]
        if loop.outcome is not None:
            return
        self._context.put_loop(path, replace(loop, outcome=outcome))
        self._stopping.add(path.text)
        for index in range(loop.next):
            item = path.item(index)
            if self._context.task(item) is not None:
                self._parts.tasks.stop(item, CANCELLED)
        self._stopping.discard(path.text)
        self._close_if_stopped(path)

    def item_closed(self, at: Location, outcome: Outcome) -> None:
        """Record the outcome of an item, and start another one or stop the loop."""
        self._context.observer.closed(at.path, outcome, self._context.now)
        path = at.path.loop
        loop = self._context.memory.loops[path.text]
        loop = replace(loop, open=loop.open - 1)
        given = {"outputs": outcome.output, "artifacts": outcome.artifacts}
        given = {field: value for field, value in given.items() if value is not None}
        if outcome.status is Status.SUCCEEDED and given and at.path.step in at.flow.kept:
            size = loop.size + sum(len(msgspec.json.encode(value)) for value in given.values())
            added = {field: {**getattr(loop, field), str(at.path.index): value} for field, value in given.items()}
            loop = replace(loop, **added, size=size)
            if size > MAX_LOOP_OUTPUT:
                message = (
                    f"the outputs of the items of step `{path}` have more than {MAX_LOOP_OUTPUT // 1024} KiB; let the "
                    "items return less, or keep large data elsewhere"
                )
                outcome = failed(application("OutputTooLarge", message))
        self._context.put_loop(path, loop)
        if loop.outcome is not None:
            self._close_if_stopped(path)
        elif outcome.status is Status.SUCCEEDED:
            self._context.enqueue([path])
        else:
            self.stop(path, outcome)

    def _run_is_full(self) -> bool:
        """Whether loops must wait because of the number of open tasks."""
        tasks = self._context.memory.tasks
        return len(tasks) >= MAX_OPEN or sum(task.size for task in tasks.values()) > MAX_OPEN_BYTES

    def _close_if_stopped(self, path: Path) -> None:
        loop = self._context.memory.loops[path.text]
        if path.text not in self._stopping and not loop.open and loop.outcome is not None:
            self._context.put_loop(path, None)
            self._parts.steps.close(path, loop.outcome)

    def _complete(self, path: Path, loop: ForEachLoop) -> None:
        """Close a loop after all its items have succeeded."""
        output = artifacts = None
        if path.step in self._context.locate(path).flow.kept:
            output = [loop.outputs.get(str(index)) for index in range(loop.count)]
            artifacts = [loop.artifacts.get(str(index), {}) for index in range(loop.count)] if loop.artifacts else None
        self._context.put_loop(path, None)
        self._parts.steps.close(path, succeeded(output, artifacts))


def _consecutive(items: list[Any], first: int) -> bool:
    """Whether the items are consecutive integers, which need not be kept."""
    return items == list(range(first, first + len(items))) and all(type(item) is int for item in items)
