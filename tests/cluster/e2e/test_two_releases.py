"""Two releases in one cluster, each with two operators that share the work of one namespace, and rights only there."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from perdure.api.labels import FLEET_LABEL, MEMBERS_ANNOTATION
from support.cluster.namespace import Cluster, temporary_namespace
from support.cluster.releases import helm, install

pytestmark = [pytest.mark.cluster, pytest.mark.bench]

RUNS = 6


@contextmanager
def release(cluster: Cluster) -> Iterator[Cluster]:
    """A namespace, and a release in it that serves it."""
    with temporary_namespace(cluster, excluded=True) as namespace:
        install(namespace)
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
