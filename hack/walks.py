"""Count the modules that a reader enters on three ways through the code (docs/architecture-walkthroughs.md).

    python hack/walks.py            # how many modules each walk enters
    python hack/walks.py --modules  # and which, in order

Each walk runs in the simulator, without faults. From its begin to its end, `sys.setprofile` reports every function that is
called. A module of `perdure` counts as entered if

- one of its functions runs, or
- a function that runs names one of its classes: it builds one, checks for it, catches it, or has it in its signature. A reader
  has to open that module to know what the value is.

Constants and functions that are named but do not run do not count, and neither does the simulated cluster. The simulator calls
informers and the handlers of RPCs directly: kopf and gRPC, with what admits a caller, are not part of a walk.
"""

import argparse
import ast
import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "tests")]

from temporalio.api.command.v1 import Command  # noqa: E402 (after the path)

from perdure.simulation.cluster.store import Write  # noqa: E402
from rpc.served import Served, activity  # noqa: E402
from simulated.scenarios.definitions import activity as pod_activity  # noqa: E402
from simulated.scenarios.definitions import step  # noqa: E402
from simulated.world import Setting, World, simulate  # noqa: E402

_NOT_COUNTED = "perdure.simulation"
_OFFSET = "25s"
"""When in each minute the Schedule is due: not when the operator compares its lists with the API server."""


class Walk:
    """The functions that run between the begin and the end of a walk."""

    def __init__(self) -> None:
        self._called: dict[CodeType, dict[str, Any]] = {}
        """The functions in the order of their first calls, with their globals."""
        self.ended = False

    def traced(self, line: str) -> None:
        """Begin when the operator receives a line of the simulator's timeline: the end of a pod."""
        if re.search(r" watch \w+ pods .* Succeeded ", line):
            self.begin()

    def begin(self) -> None:
        """Record what runs from now on, unless the walk was made before."""
        if not self.ended:
            sys.setprofile(self._record)

    def end(self) -> None:
        """Record nothing from now on."""
        self.ended |= bool(self._called)
        sys.setprofile(None)

    def _record(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._called.setdefault(frame.f_code, frame.f_globals)

    def modules(self) -> dict[str, bool]:
        """The modules that were entered, in order, and whether a function of each has run."""
        found: dict[str, bool] = {}
        for code, names in self._called.items():
            module = str(names.get("__name__"))
            if module.startswith("perdure."):
                found[module] = True
                if (function := _functions(code.co_filename).get((code.co_name, code.co_firstlineno))) is not None:
                    for each in _types(function, names):
                        found.setdefault(each, False)
        return {module: runs for module, runs in found.items() if not module.startswith(_NOT_COUNTED)}


@cache
def _functions(file: str) -> dict[tuple[str, int], ast.AST]:
    """The functions of a file by name and first line, which is that of the first decorator."""
    if not file.endswith(".py"):
        return {}  # generated, as the constructor of a dataclass
    found: dict[tuple[str, int], ast.AST] = {}
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)])] = node
    return found


def _types(function: ast.AST, names: dict[str, Any]) -> Iterator[str]:
    """Yield the modules of the classes that a function names."""
    for node in ast.walk(function):
        value = _value(node, names)
        if isinstance(value, type) and value.__module__.startswith("perdure."):
            yield value.__module__


def _value(node: ast.AST, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(owner := _value(node.value, names), ModuleType | type):
        return getattr(owner, node.attr, None)
    return None


def play(scenario: Callable[[World, Walk], Any]) -> Walk:
    """Make a walk."""
    walk = Walk()

    async def play(world: World) -> None:
        await scenario(world, walk)

    result = simulate(play, Setting(seed=0, faults=0.0, kills=0), trace=lambda _, line, __: walk.traced(line))
    assert walk.ended, "the walk was not made"
    assert not result.violations, result.violations
    return walk


async def _pod_ends(world: World, walk: Walk) -> None:
    """From the watch event of the end of a run's first pod to the commit that schedules its second activity."""

    def observe(write: Write) -> None:
        if write.key.plural == "workflowruns" and (write.after.get("status") or {}).get("progress") == "1/2":
            walk.end()

    world.begin()
    world.server.observers.append(observe)
    world.create(
        "WorkflowRun",
        "order",
        {"inline": {"activities": [pod_activity("work")], "steps": [step("first", "work"), step("second", "work")]}},
    )
    await asyncio.sleep(120)


async def _worker_responds(world: World, walk: Walk) -> None:
    """From the call of RespondWorkflowTaskCompleted to its response, which follows the commit."""
    here = Served(world)
    await here.start()
    task = await here.task()
    await asyncio.sleep(5)  # the watches have caught up
    walk.begin()
    await here.complete(task, _scheduled())
    walk.end()
    await here.call("TerminateWorkflowExecution", workflow_execution={"workflow_id": "w"})


def _scheduled() -> Command:
    return activity("charge", start_to_close_timeout=timedelta(minutes=1))


async def _schedule_is_due(world: World, walk: Walk) -> None:
    """From shortly before the second due time of a Schedule to the run that it creates."""
    starts = 0

    def observe(write: Write) -> None:
        nonlocal starts
        if write.key.plural == "workflowruns" and write.type == "ADDED":
            walk.end()
            starts += 1
            if starts == 1:
                world.loop.call_later(59.5, walk.begin)

    world.begin()
    world.server.observers.append(observe)
    template = {"spec": {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "1s"}}]}}}
    world.create(
        "Schedule", "often", {"intervals": [{"every": "1m", "offset": _OFFSET}], "workflowRunTemplate": template}
    )
    await asyncio.sleep(200)
    world.delete("schedules", "often")


WALKS = {
    "a pod's end to the commit": _pod_ends,
    "RespondWorkflowTaskCompleted": _worker_responds,
    "a due Schedule to its run": _schedule_is_due,
}


def main() -> int:
    """Print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--modules", action="store_true", help="print the modules, too")
    chosen = arguments.parse_args()
    for name, scenario in WALKS.items():
        modules = play(scenario).modules()
        print(f"{len(modules):4}  {name}: {sum(modules.values())} run, of the others only classes are named")
        for module, runs in modules.items() if chosen.modules else ():
            print(f"        {module}{'' if runs else '  (classes)'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
