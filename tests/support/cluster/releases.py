"""Releases of the chart in namespaces of their own, beside the deployed one."""

import subprocess

from support.cluster.namespace import IMAGE, Cluster, helm_program
from support.manuals import REPOSITORY

CHART = str(REPOSITORY / "charts" / "perdure")
CLUSTER_WIDE = (
    "crds.enabled",
    "leaseFence.enabled",
    "podFence.enabled",
    "runFence.enabled",
    "deletionFence.enabled",
    "definitionFence.enabled",
    "expressionWarnings.enabled",
    "attribution.enabled",
    "activity.createClusterRole",
    "rbac.aggregate",
    "rbac.onCall",
    "temporal.enabled",
)
"""Values that docs/installing.md names: false to install only namespaced objects."""


def helm(cluster: Cluster, *arguments: str) -> str:
    """Run helm in a namespace; return its output."""
    command = [helm_program(), *arguments, f"--kubeconfig={cluster.kubeconfig}", f"--namespace={cluster.namespace}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def install(namespace: Cluster, *values: str) -> None:
    """Install a release that serves its own namespace, and has rights only there."""
    repository, _, tag = IMAGE.rpartition(":")
    settings = [f"{name}=false" for name in CLUSTER_WIDE]
    settings += [f"watchNamespaces={{{namespace.namespace}}}", f"image.repository={repository}", *values]
    flags = [f"--set={value}" for value in settings]
    helm(namespace, "install", "perdure", CHART, *flags, f"--set-string=image.tag={tag}", "--wait", "--timeout=4m")
