"""What one parent with many children costs, each of which does some activities: how it grows with the number of children.

Pure: the simulation is the real engine and interpreter, in virtual time. Bytes are those of the JSON that a status would hold.
"""

import time
from itertools import count as count_from
from typing import Any

import msgspec
import pytest
import yaml

from perdure.engine import history
from perdure.engine.state import RunState
from perdure.simulation.manifests import Manifest, read_definitions, read_scenario
from perdure.simulation.simulator import Simulator
from perdure.simulation.transcript import SimulatedChain, SimulatedRun

pytestmark = pytest.mark.bench

CHILDREN = (10, 100, 1_000)
ACTIVITIES = 10
MANIFESTS = f"""
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {{name: parent}}
spec:
  steps:
  - name: all
    forEach: {{items: "${{lists.range(input)}}", as: child, maxConcurrency: 50}}
    childWorkflow: {{workflow: {{name: child}}, input: {{child: "${{child}}"}}}}
  - {{name: done, return: {{output: done}}}}
---
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {{name: child}}
spec:
  activities:
  - {{name: work, startToCloseTimeout: 1m, container: {{image: i}}}}
  steps:
  - name: all
    forEach: {{items: "${{lists.range({ACTIVITIES})}}", maxConcurrency: 5}}
    activity: {{name: work, input: {{child: "${{input.child}}", item: "${{item}}"}}}}
  - {{name: done, return: {{output: done}}}}
"""
SCENARIO = {
    "workflow": "parent",
    "maxEvents": 1_000_000,
    "activities": {"work": [{"output": {"ok": True}, "after": 1}]},
}


def test_cost_of_children() -> None:
    """In total, and for each child. The parent's share must fit into one object."""
    print(f"\n  one parent, {ACTIVITIES} activities in each child")
    print(
        "  children    events  ms a child  parent: events  a child  history KiB  a child B  largest state KiB  child: KiB"
    )
    for count in CHILDREN:
        begun = time.process_time()
        world, largest = play(count)
        spent = time.process_time() - begun
        chains = [execution for execution in world.transcript.executions if isinstance(execution, SimulatedChain)]
        parent, *children = (chain.current for chain in chains)
        assert len(children) == count
        assert parent.state is not None
        assert parent.state.status.value == "Completed"
        recorded, per_child = size(history.encode(parent.events)), max(map(bytes_of, children))
        everything = sum(len(chain.current.events) for chain in chains)
        print(
            f"  {count:8,}  {everything:8,}  {spent * 1e3 / count:10.1f}  {len(parent.events):14,}"
            f"  {len(parent.events) / count:7.1f}  {recorded / 1024:11.1f}  {recorded / count:9,.0f}"
            f"  {largest / 1024:17.1f}  {per_child / 1024:10.1f}"
        )
        # A cost that grows with the number of children would show here on any machine.
        assert len(parent.events) <= 3 * count + 2
        assert {len(child.events) for child in children} == {3 * ACTIVITIES + 2}


def play(count: int) -> tuple[Simulator, int]:
    """Simulate, and return the simulation and the bytes of the largest state of the parent after a step."""
    reported = read_scenario({**SCENARIO, "input": count}, "scenario")
    played = Simulator(
        read_definitions([Manifest("m", one) for one in yaml.safe_load_all(MANIFESTS)], reported, "scenario"), reported
    )
    sizes: list[int] = []
    commits = count_from(1)

    def measure(run: SimulatedRun, state: RunState) -> None:
        """Look at the parent's state every now and then."""
        if run is played.transcript.root.current and next(commits) % 10 == 1:
            sizes.append(size(history.encode(state)))

    played.transcript.on_commit = measure
    played.run()
    return played, max(sizes)


def bytes_of(run: SimulatedRun) -> int:
    assert run.state is not None
    return size(history.encode(run.events)) + size(history.encode(run.state))


def size(data: Any) -> int:
    return len(msgspec.json.encode(data))
