"""The example of revisions: a run of the first revision, after the Workflow has changed."""

from typing import Any

import yaml

from rpc.archive.archiving import until
from support.histories import EXAMPLES
from support.operator import in_memory
from support.temporal import Server

Json = dict[str, Any]


def manifest(name: str) -> Json:
    found: Json = yaml.safe_load((EXAMPLES / "revisions" / name).read_text(encoding="utf-8"))
    return found


def one(server: Server, plural: str, name: str) -> Json:
    return next((each for each in server.cluster.of(plural) if each["metadata"]["name"] == name), {})


def test_the_run_of_the_example_uses_the_first_revision_after_a_change() -> None:
    first, second, run = manifest("first.yaml"), manifest("second.yaml"), manifest("run.yaml")
    with in_memory(objects=[first]) as server:
        until(lambda: bool(server.cluster.of("workflowrevisions")))
        (revision,) = server.cluster.of("workflowrevisions")
    assert revision["metadata"]["name"] == run["spec"]["workflow"]["revision"], "run.yaml names the first revision"
    plain = {**run, "metadata": {"name": "new-rules"}, "spec": {**run["spec"], "workflow": {"name": "discount"}}}
    with in_memory(objects=[second, {**revision, "kind": "WorkflowRevision"}, run, plain]) as server:

        def output(name: str) -> Json:
            found: Json = (one(server, "workflowruns", name).get("status") or {}).get("output") or {}
            return found

        until(lambda: bool(output("old-rules") and output("new-rules")))
        assert output("old-rules") == {"price": 90, "rules": "ten percent"}
        assert output("new-rules") == {"price": 50, "rules": "half"}
        assert one(server, "workflowruns", "old-rules")["status"]["revision"]["name"] == revision["metadata"]["name"]
