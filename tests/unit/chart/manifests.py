"""The chart, and the manifests that it renders."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
CHART = REPOSITORY / "charts" / "perdure"
Manifest = dict[str, Any]
Helm = Callable[..., subprocess.CompletedProcess[str]]
Render = Callable[..., list[Manifest]]
NAMESPACED = 'watchNamespaces=["team-a", "team-b"]'


def of_kind(manifests: Sequence[Manifest], *kinds: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def named(manifests: Sequence[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [x for x in of_kind(manifests, kind) if x["metadata"]["name"] == name]
    return found


def operator_container(manifests: Sequence[Manifest]) -> Manifest:
    (container,) = named(manifests, "Deployment", "perdure")["spec"]["template"]["spec"]["containers"]
    return container


EVERYTHING = (
    "podDisruptionBudget.enabled=true",
    "networkPolicy.enabled=true",
    'networkPolicy.ingressFrom=[{"namespaceSelector": {}}]',
    'definitionFence.inlineDefinitions="Deny"',
    "serviceMonitor.enabled=true",
    'serviceMonitor.labels={"release": "prometheus"}',
    'prometheusRule={"enabled": true, "labels": {"release": "prometheus"}}',
    "grafanaDashboard.enabled=true",
    'commonLabels={"team": "flow"}',
    'podAnnotations={"a": "b"}',
    'nodeSelector={"disk": "fast"}',
    'tolerations=[{"operator": "Exists"}]',
    'affinity={"podAntiAffinity": {}}',
    'imagePullSecrets=[{"name": "pull"}]',
    'priorityClassName="high"',
    'extraEnv=[{"name": "A", "value": "b"}]',
    "ui.enabled=true",
    'ui.podAnnotations={"a": "b"}',
    'ui.tolerations=[{"operator": "Exists"}]',
    'ui.extraEnv=[{"name": "TEMPORAL_BANNER_TEXT", "value": "b"}]',
    "console.enabled=true",
    'console.podAnnotations={"a": "b"}',
    'console.tolerations=[{"operator": "Exists"}]',
)


def rules(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for role in of_kind(manifests, "Role", "ClusterRole"):
        for rule in role["rules"]:
            yield role["metadata"]["name"], rule


def granted(role: Manifest, group: str) -> dict[str, set[str]]:
    """Verbs by resource of one API group."""
    verbs: dict[str, set[str]] = {}
    for rule in role["rules"]:
        if group in rule["apiGroups"]:
            for resource in rule["resources"]:
                verbs.setdefault(resource, set()).update(rule["verbs"])
    return verbs
