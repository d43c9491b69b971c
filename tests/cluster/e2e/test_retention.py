"""Closed runs leave the cluster: after the time that their namespace sets, and with an archive once they are stored in it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure.bucket.archive import BucketArchive
from perdure.bucket.objects import S3Bucket
from support.artifacts import gateway
from support.cluster.namespace import Cluster, one_step, python
from support.cluster.process import operator
from support.ports import free_port

pytestmark = pytest.mark.cluster

HEAD = {"apiVersion": "perdure.dev/v1alpha1"}


def test_closed_runs_are_kept_as_long_as_their_namespace_says(namespace: Cluster) -> None:
    retention: dict[str, Any] = {"ttlSecondsAfterFinished": 3_600, "ttlSecondsAfterFailure": 5}
    namespace.apply(
        {**HEAD, "kind": "WorkflowDefaults", "metadata": {"name": "default"}, "spec": {"retention": retention}}
    )
    namespace.start("done", one_step(python("activity.complete(1)")))
    broken = python("raise SystemExit(1)", retryPolicy={"exponential": {"maximumAttempts": 1}})
    namespace.start("broken", one_step(broken))
    namespace.wait("the failed run to leave", lambda: namespace.get("workflowrun", "broken") is None)
    assert namespace.closed("done")["phase"] == "Completed"
    assert namespace.get("workflowrun", "done") is not None


@pytest.mark.own
async def test_a_run_leaves_the_cluster_once_it_is_a_file(namespace: Cluster, tmp_path: Path) -> None:
    with gateway.serving(tmp_path, free_port()) as bucket:
        settings = {name: value for name, value in bucket.environ.items() if name != "PERDURE_STORE_PREFIX"}
        with operator(namespace, tmp_path / "operator.log", **settings):
            namespace.start("order", {**one_step(python("activity.complete(1)")), "ttlSecondsAfterFinished": 0})
            namespace.wait("the run to leave", lambda: namespace.get("workflowrun", "order") is None)
        archive = BucketArchive(S3Bucket(settings), timedelta(0))
        found = await archive.named(namespace.namespace, "order")
    assert found is not None
    assert found["status"]["phase"] == "Completed"
    types = [event["eventType"] for event in found["status"]["history"]["events"]]
    assert types[0] == "WorkflowExecutionStarted"
    assert types[-1] == "WorkflowExecutionCompleted"
