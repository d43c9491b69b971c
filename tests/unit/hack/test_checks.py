import json
import os
from pathlib import Path
from typing import Any

import pytest

from cluster import checks, lifecycle
from cluster.checks import Kubectl
from cluster.docker import find_docker
from cluster.errors import ClusterError
from cluster.lifecycle import State
from cluster.paths import Cache
from cluster.store import write_atomically


def node(name: str, *conditions: tuple[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": t, "status": s} for t, s in conditions]}}


def test_a_node_is_ready_only_if_its_condition_is_true() -> None:
    nodes = [
        node("good", ("MemoryPressure", "False"), ("Ready", "True")),
        node("bad", ("Ready", "False")),
        node("gone", ("Ready", "Unknown")),
        node("new"),
    ]
    assert checks.unready_nodes(nodes) == ["bad", "gone", "new"]


def test_waiting_continues_after_failures_and_reports_the_last_one() -> None:
    steps: list[ClusterError | bool] = [ClusterError("refused"), False, True]
    answers = iter(steps)

    def done() -> bool:
        answer = next(answers)
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    checks.wait_until("it", done, seconds=10)

    def never() -> bool:
        raise ClusterError("refused")

    with pytest.raises(ClusterError, match="it: not within 0 s") as caught:
        checks.wait_until("it", never, seconds=0)
    assert str(caught.value.__cause__) == "refused"


def test_the_state_of_a_cluster_is_read_from_disk_unless_it_is_invalid(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    state = State("t1", workers=2, audit=True, image="perdure.local/node:x")
    file = cache.cluster("t1").state
    write_atomically(file, json.dumps({"name": "t1", "workers": 2, "audit": True, "image": "perdure.local/node:x"}))
    assert lifecycle.saved_state(cache, "t1") == state
    file.write_text('{"name": ')
    assert lifecycle.saved_state(cache, "t1") is None
    assert lifecycle.saved_state(cache, "t2") is None


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("perdure.local/node:x", lifecycle.OWN_LOOKUP),
        ("kindest/node:v1", lifecycle.STOCK_LOOKUP),
        (None, lifecycle.STOCK_LOOKUP),
    ],
)
def test_the_dns_check_uses_an_image_available_on_the_node(image: str | None, want: checks.Lookup) -> None:
    assert State("t1", 2, audit=False, image=image).lookup is want


@pytest.mark.cluster
def test_the_running_cluster_passes_the_checks_of_a_new_one() -> None:
    cache = Cache.from_environment(os.environ)
    state = lifecycle.saved_state(cache, lifecycle.DEFAULT_NAME)
    docker = find_docker(cache)
    if not state or not docker:
        pytest.skip("no cluster made by hack/cluster is running")
    nodes = list(lifecycle.node_containers(docker, state.name))
    checks.check_cluster(Kubectl(cache, cache.cluster(state.name).kubeconfig), docker, nodes, state.lookup)
