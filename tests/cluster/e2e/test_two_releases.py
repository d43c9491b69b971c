"""Two releases in one cluster, each with two operators that share the work of one namespace, and rights only there."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from perdure.api.labels import FLEET_LABEL, MEMBERS_ANNOTATION
from support.cluster.namespace import IMAGE, Cluster, helm_program, temporary_namespace
from support.manuals import REPOSITORY

pytestmark = [pytest.mark.cluster, pytest.mark.bench]

RUNS = 6
CLUSTER_WIDE = (
    "crds.enabled",
    "leaseFence.enabled",
    "podFence.enabled",
    "runFence.enabled",
    "definitionFence.enabled",
    "attribution.enabled",
    "activity.createClusterRole",
    "rbac.aggregate",
    "rbac.onCall",
    "temporal.enabled",
)
"""Values that docs/installing.md names: false to install only namespaced objects."""


def helm(cluster: Cluster, *arguments: str) -> str:
    command = [helm_program(), *arguments, f"--kubeconfig={cluster.kubeconfig}", f"--namespace={cluster.namespace}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def release(cluster: Cluster) -> Iterator[Cluster]:
    """A namespace, and a release in it that serves it."""
    with temporary_namespace(cluster, excluded=True) as namespace:
        repository, _, tag = IMAGE.rpartition(":")
        values = [f"{name}=false" for name in CLUSTER_WIDE]
        values += [f"watchNamespaces={{{namespace.namespace}}}", f"image.repository={repository}"]
        flags = [f"--set={value}" for value in values]
        chart = str(REPOSITORY / "charts" / "perdure")
        helm(namespace, "install", "perdure", chart, *flags, f"--set-string=image.tag={tag}", "--wait", "--timeout=4m")
        yield namespace


def holders(namespace: Cluster) -> dict[str, str]:
    """The processes that share the work of a release, by the names of their pods, once there are two that know each other."""

    def agreed() -> dict[str, str]:
        leases = {each["metadata"]["name"]: each for each in namespace.list("leases", f"-l={FLEET_LABEL}")}
        said = {each["metadata"]["annotations"][MEMBERS_ANNOTATION] for each in leases.values()}
        known = len(leases) == 2 and said == {",".join(sorted(leases))}
        return {name: each["spec"]["holderIdentity"] for name, each in leases.items()} if known else {}

    found: dict[str, str] = namespace.wait("two operators", agreed)
    return found


def start(namespace: Cluster, first: int) -> list[str]:
    names = [f"run-{number}" for number in range(first, first + RUNS)]
    for name in names:
        namespace.start(name, {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "5s"}}]}})
    return names


def test_two_releases_coexist_with_permissions_only_in_their_namespaces(cluster: Cluster) -> None:
    with release(cluster) as one, release(cluster) as two:
        for namespace in (one, two):
            installed = [each for each in yaml.safe_load_all(helm(namespace, "get", "manifest", "perdure")) if each]
            assert {each["metadata"].get("namespace") for each in installed} == {namespace.namespace}, json.dumps(
                installed
            )
        killed, others = holders(one), holders(two)
        names = {namespace.namespace: start(namespace, 0) for namespace in (one, two)}
        one("delete", "pod", min(killed), "--force", "--grace-period=0")
        for namespace in (one, two):
            for name in (*names[namespace.namespace], *start(namespace, RUNS)):
                assert namespace.closed(name)["phase"] == "Completed"
        assert holders(two) == others  # changes of one release do not affect the other
