"""Pods that prefer other nodes."""

from typing import Any

from perdure.runtime.attempts import PodSettings
from perdure.runtime.pods.builder import avoid_nodes, build_pod


def test_nodes_are_avoided_and_other_preferences_kept(make: Any) -> None:
    term = {"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
    affinity = {
        "podAffinity": {"a": 1},
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term], "requiredDuring…": 2},
    }
    definition = make.activity(podSpecPatch={"affinity": affinity})
    pod = build_pod(make.run, make.attempt, definition, PodSettings())
    made = avoid_nodes(pod, ["n1", "n2"])["spec"]["affinity"]
    terms = made["nodeAffinity"].pop("preferredDuringSchedulingIgnoredDuringExecution")
    assert made == {"podAffinity": {"a": 1}, "nodeAffinity": {"requiredDuring…": 2}}
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in ("n1", "n2")]
    assert terms == [term, {"weight": 100, "preference": {"matchFields": fields}}]


def test_without_nodes_the_pod_is_unchanged(make: Any) -> None:
    pod = build_pod(make.run, make.attempt, make.activity(), PodSettings())
    assert avoid_nodes(pod, []) == pod
