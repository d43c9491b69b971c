"""Pods of successful attempts are kept for a while, with a real API server and the operator."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from perdure.api.labels import EXPIRES_LABEL
from perdure.controller.expiry import KEPT_PODS, delete_expired
from perdure.kube.access import find_access
from perdure.kube.client import Client
from support.cluster.namespace import Cluster, Json, one_step, python

pytestmark = pytest.mark.cluster


async def test_a_successful_pod_is_kept_for_its_log_until_it_expires(
    namespace: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def released() -> Json | None:
        (pod,) = namespace.list("pods")
        return None if pod["metadata"].get("finalizers") else pod

    namespace.start("well", one_step(python("print('all went well'); activity.complete(1)")))
    assert (await asyncio.to_thread(namespace.closed, "well"))["phase"] == "Completed"
    pod = await asyncio.to_thread(namespace.wait, "its pod to be released", released)
    expires = datetime.fromtimestamp(int(pod["metadata"]["labels"][EXPIRES_LABEL]), UTC)
    await asyncio.to_thread(namespace.pod, "well-2-1", "Succeeded")  # the phase follows the container with a delay
    assert "all went well" in namespace("logs", "well-2-1")
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    async with Client.open(find_access(), user_agent="perdure-test") as client:
        assert await delete_expired(client, KEPT_PODS, namespace.namespace, expires - timedelta(seconds=1)) == 0
        deleted = 0
        while not deleted:  # only in the listed version: the kubelet may still write its last status
            deleted = await delete_expired(client, KEPT_PODS, namespace.namespace, expires)
        assert deleted == 1
    await asyncio.to_thread(namespace.wait, "the pod to be deleted", lambda: not namespace.list("pods"))


def test_kept_pods_are_deleted_when_a_quota_blocks_new_pods(namespace: Cluster) -> None:
    namespace("create", "quota", "few", "--hard=count/pods=1")
    steps = [{"name": f"step-{number}", "activity": {"name": "work"}} for number in range(3)]
    work = python("activity.complete(1)")
    namespace.start("three", {"inline": {"activities": [work], "steps": steps}})
    assert namespace.closed("three", seconds=300)["phase"] == "Completed"
