"""Runs that finish and leave the cluster soon, and how tests wait for that."""

import time
from collections.abc import Callable
from typing import Any

from support.temporal import Server

Json = dict[str, Any]
SECONDS = 60.0


def run(name: str, *, ttl: int, attributes: Json | None = None, sleep: str = "", spec: Json | None = None) -> Json:
    steps = [{"name": "wait", "sleep": {"duration": sleep}}] if sleep else [{"name": "number", "set": {"number": 42}}]
    body = {
        "inline": {"steps": steps, "output": {"name": name}},
        "ttlSecondsAfterFinished": ttl,
        "searchAttributes": attributes or {},
        **(spec or {}),
    }
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "WorkflowRun",
        "metadata": {"name": name},
        "spec": body,
    }


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "not within a minute"
        time.sleep(0.1)


def in_cluster(server: Server) -> set[str]:
    return {each["metadata"]["name"] for each in server.cluster.of("workflowruns")}
