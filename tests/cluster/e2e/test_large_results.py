"""Large results on a real cluster: they are stored on an S3 server, and read by another activity."""

from typing import Any

import pytest
import yaml

from support.cluster.artifacts import store
from support.cluster.namespace import IMAGE, Cluster, run_manifest
from support.manuals import REPOSITORY

pytestmark = pytest.mark.cluster

_ONCE = {"exponential": {"initialInterval": "1s", "maximumAttempts": 1}}
_CAUGHT = {"call": {"block": "caught", "input": "${error.type}"}}


def example() -> dict[str, Any]:
    """The Workflow of the example."""
    workflow: dict[str, Any] = yaml.safe_load((REPOSITORY / "examples/large-results/workflow.yaml").read_text("utf-8"))
    for activity in workflow["spec"]["activities"]:
        (activity.get("container") or activity["script"])["image"] = IMAGE
        activity["retryPolicy"] = _ONCE
    return workflow


def objects(namespace: Cluster) -> list[str]:
    found: str = namespace("exec", "store", "--", "sh", "-c", "cd /tmp/objects/*/team/* && find . -type f")
    return sorted(path.rpartition("/")[2] for path in found.split())


def test_a_large_result_of_a_script_is_read_by_the_next_activity(namespace: Cluster) -> None:
    store(namespace)
    namespace.apply(example())
    for name, count in (("large", 100_000), ("small", 3)):
        namespace.start(name, {"workflow": {"name": "large-results"}, "input": {"count": count}})
        status = namespace.closed(name)
        assert (status["phase"], status["output"]) == ("Completed", count), status
    assert objects(namespace) == ["result.json"]


def test_results_of_the_helper_are_stored_by_size_and_failures_keep_their_documents(namespace: Cluster) -> None:
    store(namespace)
    program = (
        "import os; from perdure.activity import *; size = int(os.environ['PERDURE_INPUT'])\n"
        "complete('x' * size) if size else fail('nothing to do', type='Empty')"
    )
    activity = {
        "name": "work",
        "startToCloseTimeout": "2m",
        "retryPolicy": _ONCE,
        "artifacts": {"largeResults": True},
        "container": {"image": IMAGE, "command": ["python", "-c", program]},
    }
    steps = [
        {"name": "large", "activity": {"name": "work", "input": 300_000}},
        {"name": "small", "activity": {"name": "work", "input": 3}},
        {"name": "failed", "activity": {"name": "work", "input": 0}, "catch": [_CAUGHT]},
    ]
    blocks = [{"name": "caught", "steps": [{"name": "type", "return": {"output": "${params}"}}]}]
    output = "${[steps.large.output.size, steps.small.output, steps.failed.output]}"
    inline = {"activities": [activity], "steps": steps, "blocks": blocks, "output": output}
    namespace.apply(run_manifest("helper", {"inline": inline}))
    status = namespace.closed("helper")
    assert (status["phase"], status["output"]) == ("Completed", [300_002, "xxx", "Empty"]), status
    assert objects(namespace) == ["result.json"]
