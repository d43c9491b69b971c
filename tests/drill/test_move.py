"""A namespace with runs of every kind moves to another cluster, with the commands of docs/backup.md."""

import json
from collections import Counter
from pathlib import Path

import pytest

from drill.stand import COPIES, EFFECT, IMAGE, Drill, await_stage, finish, stand, twice
from support.cluster.artifacts import store
from support.cluster.command import perdure
from support.cluster.namespace import Cluster
from support.cluster.stages import STAGES, begin, worker

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]


def test_open_runs_move_to_another_cluster(drill: Drill, namespace: Cluster, tmp_path: Path) -> None:
    runs = begin(namespace, IMAGE, copies=COPIES, effect=EFFECT)
    await_stage(namespace, runs, 0)
    perdure(namespace, "schedule", "pause", "often")
    namespace.wait(
        "the runs of the Schedule",
        lambda: len(perdure(namespace, "list", "--running", "-o", "name").split()) == len(runs),
    )
    perdure(namespace, "pause", *runs)
    exported = perdure(namespace, "move", "export")
    file = tmp_path / "exported.json"
    file.write_text(exported)
    kinds = Counter(each["kind"] for each in json.loads(exported)["items"])
    print(f"exported: {dict(kinds)}")
    assert kinds["WorkflowRun"] == len(runs)
    done = drill.ledger(namespace)

    with stand("perdure-drill-other") as other:
        there = Cluster(other.system.kubectl, other.system.kubeconfig, namespace.namespace)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        there.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": there.namespace, "labels": labels}})
        worker(there, IMAGE)
        store(there, IMAGE)
        moved = perdure(there, "move", "import", "--file", str(file)).split()
        assert sorted(moved) == sorted(runs)
        assert not other.ledger(there), "nothing continues before the first cluster has forgotten it"
        namespace("delete", "workflowruns,schedules", "--all")
        perdure(there, "unpause", *perdure(there, "list", "--phase", "Paused", "-o", "name").split())
        perdure(there, "schedule", "unpause", "often")
        phases = finish(there, runs, stage=1)
        assert set(phases.values()) == {"Completed"}
        assert drill.ledger(namespace) == done
        assert twice(other, there, runs) == {name: set() for name in runs}
        began = {stage: sum(f"work-{stage}" in key for key in other.ledger(there)) for stage in range(STAGES)}
        print(f"activities of each stage in the first cluster: {sum(done.values())}; in the second: {began}")
        assert began[0] == 0
        assert all(began[stage] for stage in range(1, STAGES))
        there.wait("a run of the Schedule", lambda: there.list("workflowruns", "-l=perdure.dev/schedule=often"))
