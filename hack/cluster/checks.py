"""Check what ``kind create cluster`` does not check: that the whole cluster works.

kind only waits for the control plane, and only warns. These checks require that every node
is Ready, CoreDNS is rolled out and answers a Pod, and a NodePort responds: a kube-proxy
that cannot run iptables starts without an error and does nothing.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import commands
from cluster.console import stage
from cluster.docker import Docker
from cluster.errors import ClusterError
from cluster.paths import Cache

READY_SECONDS = 120.0
PROBE = "perdure-cluster-check"

PROBE_OBJECTS = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: kube-system
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: lookup
    image: {image}
    command: {command}
---
apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: kube-system
spec:
  type: NodePort
  selector:
    k8s-app: kube-dns
  ports:
  - port: 80
    targetPort: 8181
"""
"""A Pod that resolves a name, and a NodePort in front of CoreDNS' readiness endpoint."""

LOOKUP_NAME = "kubernetes.default.svc.cluster.local"


@dataclass(frozen=True, slots=True)
class Lookup:
    """An image that can resolve a name, and the command to do so."""

    image: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl for one cluster."""

    cache: Cache
    kubeconfig: Path

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
        """Run kubectl and return its output."""
        command = [str(self.cache.bin / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return commands.capture(command, stdin=stdin, timeout=timeout)

    def get(self, *arguments: str) -> dict[str, Any]:
        """Get an object or a list."""
        output = self.run("get", *arguments, "--output=json", "--request-timeout=10s")
        result: dict[str, Any] = json.loads(output)
        return result

    def ready(self) -> bool:
        """Whether the API server is ready to serve."""
        return self.run("get", "--raw=/readyz", "--request-timeout=5s") == "ok"


def unready_nodes(nodes: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of the nodes that are not Ready."""
    return [
        node["metadata"]["name"]
        for node in nodes
        if not any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in node["status"].get("conditions", ())
        )
    ]


def wait_until(what: str, done: Callable[[], bool], *, seconds: float = READY_SECONDS) -> None:
    """Wait until a condition is true; a failing command counts as false."""
    deadline = time.monotonic() + seconds
    last: ClusterError | None = None
    while True:
        try:
            if done():
                return
        except ClusterError as error:
            last = error
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {seconds:.0f} s") from last
        time.sleep(0.3)


def nodes_ready(kubectl: Kubectl, count: int) -> bool:
    """Return whether this number of nodes exists and all of them are Ready."""
    nodes = kubectl.get("nodes")["items"]
    return len(nodes) == count and not unready_nodes(nodes)


def check_cluster(kubectl: Kubectl, docker: Docker, nodes: list[str], lookup: Lookup) -> None:
    """Wait until a cluster works; raise ClusterError if it does not."""
    # A killed check may have left its objects behind, with old results.
    remove_probe(kubectl)
    # A new single-node cluster is up before the controller manager has created the ServiceAccount of pods.
    kubectl.run(
        "wait", "--namespace=kube-system", "--for=create", "serviceaccount/default", "--timeout=60s", timeout=70
    )
    kubectl.run(
        "create",
        "--filename=-",
        stdin=PROBE_OBJECTS.format(name=PROBE, image=lookup.image, command=json.dumps(lookup.command)),
    )
    with stage(f"check: {len(nodes)} nodes Ready"):
        wait_until("all nodes Ready", lambda: nodes_ready(kubectl, len(nodes)))
    with stage("check: CoreDNS rolled out"):
        arguments = ("--namespace=kube-system", "deployment/coredns", "--timeout=120s")
        kubectl.run("rollout", "status", *arguments, timeout=130)
    with stage("check: DNS responds to a Pod"):
        wait_until("a DNS answer in a Pod", lambda: pod_succeeded(kubectl))
    with stage("check: a NodePort answers on every node"):
        service = kubectl.get("--namespace=kube-system", f"service/{PROBE}")
        port = service["spec"]["ports"][0]["nodePort"]
        wait_until("a NodePort on every node", lambda: all(node_port_answers(docker, node, port) for node in nodes))
    remove_probe(kubectl)


def remove_probe(kubectl: Kubectl) -> None:
    """Delete the objects of the check."""
    kubectl.run(
        "delete",
        "--namespace=kube-system",
        "--ignore-not-found",
        f"pod/{PROBE}",
        f"service/{PROBE}",
    )


def pod_succeeded(kubectl: Kubectl) -> bool:
    """Return whether the probe Pod has succeeded; raise an error if it has failed."""
    phase = kubectl.get("--namespace=kube-system", f"pod/{PROBE}")["status"].get("phase")
    return bool(phase == "Succeeded")


def node_port_answers(docker: Docker, node: str, port: int) -> bool:
    """Send a request to a NodePort from inside the node, which also works with a remote Docker."""
    url = f"http://{node}:{port}/ready"
    curl = ("curl", "--silent", "--show-error", "--fail", "--max-time", "2", url)
    return docker.run("exec", node, *curl).strip() == "OK"
