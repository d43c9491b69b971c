"""The example of a flow in Python: `perdure deploy` starts its worker, and its activities are pods."""

import pytest

from support.cluster.artifacts import store
from support.cluster.command import perdure
from support.cluster.namespace import IMAGE, Cluster
from support.manuals import REPOSITORY

pytestmark = pytest.mark.cluster

EXAMPLE = REPOSITORY / "examples" / "flow" / "etl.py"
FILES = REPOSITORY / "examples" / "flow" / "files.py"


def test_a_flow_is_deployed_and_its_activities_run_in_pods(namespace: Cluster) -> None:
    perdure(namespace, "deploy", str(EXAMPLE), "--image", IMAGE, "--mount")
    arguments = ("--type", "nightly", "--task-queue", "etl", "--input", '{"day": "2026-11-27"}')
    perdure(namespace, "start", *arguments, "--name", "nightly")
    perdure(namespace, "signal", "nightly", "--name", "approve", "--input", "true")
    assert perdure(namespace, "result", "nightly").strip() == str(2 * (27 + 11 + 2))
    described = perdure(namespace, "describe", "nightly")
    for activity in ("extract[source=eu]", "extract[source=us]", "load"):
        assert activity in described


def test_activities_of_two_images_pass_files_through_a_store(namespace: Cluster) -> None:
    store(namespace)
    perdure(namespace, "deploy", str(FILES), "--image", IMAGE, "--mount")
    arguments = ("--type", "inventory", "--task-queue", "stock", "--input", '{"shops": ["north", "south"]}')
    perdure(namespace, "start", *arguments, "--name", "inventory")
    assert perdure(namespace, "result", "inventory").strip() == str(2 * 2858)
    history = perdure(namespace, "history", "inventory", "--output", "json")
    assert "north-19999" not in history, "the history has references only"
    assert "/file-1" in history
    listed = perdure(namespace, "artifacts", "list", "inventory")
    for artifact in ("count[shop=north]/file-1", "count[shop=south]/file-1", "summarize/file-1"):
        assert artifact in listed, listed
