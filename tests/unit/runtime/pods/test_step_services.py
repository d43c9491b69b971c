"""The Kubernetes Service of a service of steps."""

import re
from dataclasses import replace
from typing import Any

import pytest

from perdure.api import labels
from perdure.api.kinds.workflow import GroupService
from perdure.api.names import service_name
from perdure.language.services import compiled_service, service_activity
from perdure.runtime.attempts import PodSettings
from perdure.runtime.pods.builder import build_pod
from perdure.runtime.pods.services import address_of, belongs_to_pod, build_service, is_ready, service_of, why_not_ready

DB = GroupService.model_validate(
    {
        "name": "db",
        "image": "postgres:18",
        "ports": [{"containerPort": 5432}],
        "readyTimeout": "2m",
        "podSpecPatch": {"terminationGracePeriodSeconds": 5},
    }
)


@pytest.mark.parametrize("run", ["etl", "etl.nightly", "2026-run", "a" * 80, "Run", "9"])
def test_the_name_is_one_that_kubernetes_accepts(run: str) -> None:
    name = service_name(run, "db", 12)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= 63
    assert name.endswith("-db-12")


def test_names_of_different_runs_differ() -> None:
    assert service_name("a.b", "db", 1) != service_name("a-b", "db", 1)
    assert service_name("etl", "db", 12) == "etl-db-12"


def pod(make: Any) -> dict[str, Any]:
    activity = service_activity(compiled_service("tests", DB).activity, DB)
    built = build_pod(make.run, replace(make.attempt, service="db"), activity, PodSettings())
    built["metadata"]["uid"] = "uid-of-pod"
    return built


def test_the_service_selects_its_pod_and_belongs_to_it(make: Any) -> None:
    built = pod(make)
    service = build_service(built)
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= built["metadata"]["labels"].items()
    assert labels.RUN_ID_LABEL in service["spec"]["selector"], "only the operator can set it"
    assert service["metadata"]["name"] == service_of(built)
    assert belongs_to_pod(service, built)
    assert not belongs_to_pod({"metadata": {"name": "x"}}, built)


def test_the_pod_has_the_fields_of_the_container_and_the_patch(make: Any) -> None:
    spec = pod(make)["spec"]
    (container,) = spec["containers"]
    assert (container["name"], container["ports"]) == ("db", [{"containerPort": 5432}])
    assert "readyTimeout" not in container
    assert "podSpecPatch" not in container
    assert (spec["terminationGracePeriodSeconds"], spec["restartPolicy"]) == (5, "Never")
    assert "initContainers" not in spec


def test_a_service_is_ready_by_the_condition_of_its_pod(make: Any) -> None:
    built = pod(make)
    assert why_not_ready(None, "db") == "its pod does not exist yet"
    assert why_not_ready(built, "db") == "waiting for a node"
    running = {"name": "db", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    built["spec"]["nodeName"] = "n"
    built["status"] = {"phase": "Running", "podIP": "10.1.2.3", "containerStatuses": [running]}
    assert not is_ready(built)
    assert why_not_ready(built, "db").endswith("runs, and is not ready")
    built["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert is_ready(built)
    meta = built["metadata"]
    host = f"{service_of(built)}.{meta['namespace']}.svc"
    assert address_of(built) == {"host": host, "ip": "10.1.2.3", "pod": meta["name"]}
    meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not is_ready(built)


def test_a_pod_of_an_activity_has_no_service(make: Any) -> None:
    built = build_pod(make.run, make.attempt, make.activity(), PodSettings())
    assert service_of(built) == ""
