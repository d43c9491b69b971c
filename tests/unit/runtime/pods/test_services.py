"""Services of an activity: native sidecars that the other containers wait for."""

from typing import Any

from perdure.runtime.attempts import PodSettings
from perdure.runtime.pods.builder import build_pod, service_container
from perdure.runtime.pods.status import is_problem, waiting_reason

PROBE = {"httpGet": {"path": "/", "port": 8080}, "initialDelaySeconds": 2, "periodSeconds": 10, "successThreshold": 3}
WEB = {"name": "web", "image": "web:1", "readinessProbe": PROBE}


def spec_of(make: Any, **fields: Any) -> dict[str, Any]:
    pod = build_pod(make.run, make.attempt, make.activity(**fields), PodSettings(sidecar_image="perdure:test"))
    spec: dict[str, Any] = pod["spec"]
    return spec


def test_the_activity_waits_for_the_readiness_probe_as_a_startup_probe(make: Any) -> None:
    """Kubernetes starts the next containers after the startup probe; it does not wait for readiness probes.

    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
    """
    (web,) = spec_of(make, services=[WEB])["initContainers"]
    assert web["restartPolicy"] == "Always"
    assert web["readinessProbe"] == PROBE
    action = {"httpGet": PROBE["httpGet"], "initialDelaySeconds": 2}
    assert web["startupProbe"] == {**action, "periodSeconds": 1, "failureThreshold": 3600}
    assert web["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_startup_probe_of_its_own_is_kept() -> None:
    probe = {"tcpSocket": {"port": 1}, "failureThreshold": 5}
    assert service_container({**WEB, "startupProbe": probe})["startupProbe"] == probe
    assert "startupProbe" not in service_container({"name": "web", "image": "web:1"})


def test_services_start_in_order_before_init_containers_and_the_sidecar(make: Any) -> None:
    template = {"spec": {"containers": [{"image": "i"}], "initContainers": [{"name": "migrate", "image": "m"}]}}
    fields = {"container": None, "podTemplate": template, "services": [WEB, {"name": "db", "image": "db:1"}]}
    names = [each["name"] for each in spec_of(make, **fields, sidecar={})["initContainers"]]
    assert names == ["web", "db", "migrate", "perdure-sidecar"]


def pod(make: Any, **state: Any) -> dict[str, Any]:
    built = build_pod(make.run, make.attempt, make.activity(services=[WEB]), PodSettings())
    web = {"name": "web", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, **state}
    built["spec"]["nodeName"] = "node"
    main = built["spec"]["containers"][0]["name"]
    waiting = {"name": main, "state": {"waiting": {"reason": "PodInitializing"}}}
    return {**built, "status": {"phase": "Pending", "initContainerStatuses": [web], "containerStatuses": [waiting]}}


def test_an_attempt_says_which_service_it_waits_for(make: Any) -> None:
    reason = waiting_reason(pod(make, started=False), "activity")
    assert reason == "sidecar web is not ready"
    assert not is_problem(reason)
    assert waiting_reason(pod(make, started=True), "activity") == "ContainerCreating"


def test_a_service_that_keeps_ending_is_a_problem(make: Any) -> None:
    wait = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
    reason = waiting_reason(pod(make, started=False, state={"waiting": wait}), "activity")
    assert reason is not None
    assert reason.startswith("container web: CrashLoopBackOff")
    assert is_problem(reason)
