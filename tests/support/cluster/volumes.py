"""Volumes for the claims of tests, on any cluster."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from support.cluster.namespace import IMAGE, Cluster


@contextmanager
def local_volume(namespace: Cluster, name: str, storage: str = "1Gi") -> Iterator[None]:
    """Create a volume for a claim of the default class, on one node: in a test cluster, the class may only work on the first one.

    Args:
        namespace: The namespace of the claim.
        name: Name of the volume, unique in the cluster.
        storage: Capacity of the volume, as a Kubernetes quantity. Nothing enforces it.

    Yields:
        Nothing. The volume is deleted afterwards, but its folder stays on the node.
    """
    classes = json.loads(namespace("get", "storageclasses", "-o", "json"))["items"]
    default = "storageclass.kubernetes.io/is-default-class"
    found = [one for one in classes if (one["metadata"].get("annotations") or {}).get(default) == "true"]
    nodes = json.loads(namespace("get", "nodes", "-o", "json"))["items"]
    node = next(one["metadata"]["name"] for one in nodes if not one["spec"].get("taints"))
    path = f"/var/lib/{name}"
    writer = Cluster(namespace.kubectl, namespace.kubeconfig, "default")  # test namespaces do not allow `hostPath`
    writer.apply(_creates_folder(name, node, path))
    writer.pod(name, "Succeeded")
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec = {
        "capacity": {"storage": storage},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": found[0]["metadata"]["name"] if found else "",
        "local": {"path": path},  # unlike `hostPath`, it supports fsGroup
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    namespace.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    try:
        yield
    finally:
        namespace("delete", "persistentvolume", name, "--wait=false")
        writer("delete", "pod", name, "--wait=false")


def _creates_folder(name: str, node: str, path: str) -> dict[str, object]:
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["true"],
        "volumeMounts": [{"name": "folder", "mountPath": "/folder"}],
    }
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "folder", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
