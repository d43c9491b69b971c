"""The example of a flow in Python: `perdure deploy` starts its worker, and its activities are pods."""

import pytest

from support.cluster.command import perdure
from support.cluster.namespace import IMAGE, Cluster
from support.manuals import REPOSITORY

pytestmark = pytest.mark.cluster

EXAMPLE = REPOSITORY / "examples" / "flow" / "etl.py"


def test_a_flow_is_deployed_and_its_activities_run_in_pods(namespace: Cluster) -> None:
    perdure(namespace, "deploy", str(EXAMPLE), "--image", IMAGE, "--mount")
    arguments = ("--type", "nightly", "--task-queue", "etl", "--input", '{"day": "2026-11-27"}')
    perdure(namespace, "start", *arguments, "--name", "nightly")
    perdure(namespace, "signal", "nightly", "--name", "approve", "--input", "true")
    assert perdure(namespace, "result", "nightly").strip() == str(2 * (27 + 11 + 2))
    described = perdure(namespace, "describe", "nightly")
    for activity in ("extract[source=eu]", "extract[source=us]", "load"):
        assert activity in described
