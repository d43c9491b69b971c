"""Finds manifests among those that the chart renders."""

from collections.abc import Sequence

from unit.chart.conftest import Manifest

NAMESPACED = 'watchNamespaces=["team-a", "team-b"]'


def of_kind(manifests: Sequence[Manifest], *kinds: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def named(manifests: Sequence[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [x for x in of_kind(manifests, kind) if x["metadata"]["name"] == name]
    return found


def operator_container(manifests: Sequence[Manifest]) -> Manifest:
    (container,) = named(manifests, "Deployment", "perdure")["spec"]["template"]["spec"]["containers"]
    return container
