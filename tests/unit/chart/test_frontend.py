"""Frontends as processes of their own: their pods, permissions, and ports, and what operators no longer have."""

import json
import re
from collections.abc import Sequence

import pytest

from unit.chart.manifests import CHART, EVERYTHING, Helm, Manifest, Render, granted, named, of_kind, operator_container

pytestmark = pytest.mark.cluster

APART = "frontend.replicas=2"
LABELS = {"app.kubernetes.io/name": "perdure-frontend", "app.kubernetes.io/instance": "perdure"}


def pod_of(manifests: Sequence[Manifest]) -> Manifest:
    pod: Manifest = named(manifests, "Deployment", "perdure-frontend")["spec"]["template"]["spec"]
    return pod


def environment(container: Manifest) -> dict[str, object]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_by_default_operators_serve_sdks(render: Render) -> None:
    assert "perdure-frontend" not in json.dumps([each["metadata"]["name"] for each in render()])
    assert "PERDURE_FRONTEND_USER" not in environment(operator_container(render()))


def test_helm_lint_passes_with_everything(helm: Helm) -> None:
    settings = [part for each in (APART, *EVERYTHING) for part in ("--set-json", each)]
    done = helm("lint", "--strict", str(CHART), *settings)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_frontend_gets_its_settings_as_environment_variables(render: Render) -> None:
    manifests = render(APART, 'watchNamespaces=["shop"]', "temporal.maxConnections=7")
    (container,) = pod_of(manifests)["containers"]
    assert container["command"] == ["perdure-frontend"]
    assert container["image"] == operator_container(manifests)["image"]
    assert environment(container) == {
        "PERDURE_NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        "POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "PERDURE_FLEET": "perdure",
        "PERDURE_LEASE_SECONDS": "10",
        "PERDURE_WATCH_NAMESPACES": "shop",
        "PERDURE_EXCLUDE_NAMESPACES": "",
        "PERDURE_LOG_LEVEL": "info",
        "PERDURE_HTTP_PORT": "8080",
        "PERDURE_PEER_TOKEN": "/peer-token/token",
        "PERDURE_TEMPORAL_ADDRESS": "[::]:7233",
        "PERDURE_LINGER_SECONDS": "6",
        "PERDURE_TEMPORAL_HTTP_ADDRESS": "[::]:7243",
        "PERDURE_TEMPORAL_MAX_CONNECTIONS": "7",
        "PERDURE_TEMPORAL_AUDIENCE": "perdure.dev/temporal",
        "PERDURE_TEMPORAL_TLS_CERT": "/temporal-tls/tls.crt",
        "PERDURE_TEMPORAL_TLS_KEY": "/temporal-tls/tls.key",
    }


def test_the_operators_then_listen_to_frontends_and_each_other_only(render: Render) -> None:
    container = operator_container(render(APART))
    found = environment(container)
    assert found["PERDURE_FRONTEND_USER"] == "system:serviceaccount:perdure-system:perdure-frontend"
    assert not {"PERDURE_TEMPORAL_ADDRESS", "PERDURE_TEMPORAL_HTTP_ADDRESS", "PERDURE_LINGER_SECONDS"} & found.keys()
    assert found["PERDURE_TEMPORAL_TLS_SECRET"] == "perdure-temporal-tls", "operators renew the certificate"
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {"http": 8080, "peers": 7234}


@pytest.mark.parametrize("setting", ["temporal.httpApi.enabled=false", "temporal.httpApi.webhooks=false"])
def test_webhooks_are_not_served_if_they_are_disabled(render: Render, setting: str) -> None:
    assert environment(operator_container(render(APART, setting)))["PERDURE_WEBHOOKS"] == "false"
    assert "PERDURE_WEBHOOKS" not in environment(operator_container(render(APART)))


def test_a_single_operator_is_found_by_its_lease_and_updated_without_a_gap(render: Render) -> None:
    manifests = render(APART, "replicas=1")
    assert environment(operator_container(manifests))["PERDURE_FLEET"] == "perdure"
    assert named(manifests, "Deployment", "perdure")["spec"]["strategy"]["type"] == "RollingUpdate"


def test_the_service_of_sdks_selects_the_frontends(render: Render) -> None:
    manifests = render(APART)
    assert named(manifests, "Service", "perdure-temporal")["spec"]["selector"] == LABELS
    assert named(manifests, "Service", "perdure")["spec"]["selector"] != LABELS
    pod = named(manifests, "Deployment", "perdure-frontend")["spec"]["template"]["metadata"]["labels"]
    assert LABELS.items() <= pod.items()
    operator = named(manifests, "Deployment", "perdure")["spec"]["selector"]["matchLabels"]
    assert not operator.items() <= pod.items(), "the objects of the operator must not select the pods"
    assert named(manifests, "PodDisruptionBudget", "perdure-frontend")["spec"]["selector"]["matchLabels"] == LABELS


def test_a_frontend_has_the_certificate_without_the_keys_of_the_authority(render: Render) -> None:
    (volume,) = [each for each in pod_of(render(APART))["volumes"] if each["name"] == "temporal-tls"]
    secret, authorities = (next(iter(each.values())) for each in volume["projected"]["sources"])
    assert (secret["name"], [each["key"] for each in secret["items"]]) == (
        "perdure-temporal-tls",
        ["tls.crt", "tls.key"],
    )
    assert (authorities["name"], [each["key"] for each in authorities["items"]]) == ("perdure-temporal-ca", ["ca.crt"])


def test_operators_need_no_access_reviews(render: Render) -> None:
    assert "subjectaccessreviews" not in granted(
        named(render(APART), "ClusterRole", "perdure-temporal"), "authorization.k8s.io"
    )


def test_a_frontend_cannot_read_secrets_and_runs_under_the_restricted_standard(render: Render) -> None:
    manifests = render(APART, *EVERYTHING)
    for kind in ("Role", "ClusterRole"):
        for rule in named(manifests, kind, "perdure-frontend")["rules"]:
            assert set(rule["resources"]) <= {"tokenreviews", "subjectaccessreviews", "leases"}
    pod = pod_of(manifests)
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    context = container["securityContext"]
    assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
    assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("setting", ["networkPolicy.enabled=true", "networkPolicy.fleet=true"])
def test_only_operators_and_frontends_reach_the_port_of_operators(render: Render, setting: str) -> None:
    policy = named(render(APART, setting), "NetworkPolicy", "perdure")
    (rule,) = [each for each in policy["spec"]["ingress"] if "peers" in json.dumps(each["ports"])]
    names = [each["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for each in rule["from"]]
    assert names == ["perdure", "perdure-frontend"]
    assert "temporal" not in json.dumps([each["ports"] for each in policy["spec"]["ingress"]])


def test_clients_reach_the_frontends(render: Render) -> None:
    settings = ("networkPolicy.enabled=true", "ui.enabled=true", "console.enabled=true", "archive.enabled=true")
    manifests = render(APART, *settings)
    for name in ("perdure-ui", "perdure-console"):
        policy = named(manifests, "NetworkPolicy", name)
        assert LABELS in [
            each["podSelector"]["matchLabels"] for rule in policy["spec"]["egress"] for each in rule.get("to", ())
        ]
    ingress = json.dumps(named(manifests, "NetworkPolicy", "perdure-frontend")["spec"]["ingress"])
    assert "perdure-ui" in ingress
    assert "perdure-console" in ingress


def test_metrics_of_frontends_are_collected(render: Render) -> None:
    manifests = render(APART, "serviceMonitor.enabled=true")
    monitor = named(manifests, "ServiceMonitor", "perdure-frontend")
    assert monitor["spec"]["selector"]["matchLabels"] == LABELS
    assert LABELS.items() <= named(manifests, "Service", "perdure-frontend")["metadata"]["labels"].items()


def test_alerts_about_rpcs_select_what_serves_them(render: Render) -> None:
    def jobs(*settings: str) -> set[str]:
        (rule,) = of_kind(render("prometheusRule.enabled=true", *settings), "PrometheusRule")
        queries = [each["expr"] for group in rule["spec"]["groups"] for each in group["rules"]]
        return {job for query in queries for job in re.findall(r'perdure_temporal_\w+\{job="([^"]+)"', query)}

    assert jobs() == {"perdure"}
    assert jobs(APART) == {"perdure-frontend"}


def test_an_alert_fires_if_no_frontend_answers(render: Render) -> None:
    def queries(*settings: str) -> dict[str, str]:
        (rule,) = of_kind(render("prometheusRule.enabled=true", *settings), "PrometheusRule")
        return {each["alert"]: each["expr"] for group in rule["spec"]["groups"] for each in group["rules"]}

    assert queries(APART)["PerdureFrontendDown"] == 'absent(up{job="perdure-frontend"} == 1)'
    assert "PerdureFrontendDown" not in queries()


def test_without_a_temporal_frontend_there_is_none_of_its_own(render: Render) -> None:
    manifests = render(APART, "temporal.enabled=false", "replicas=1")
    assert "perdure-frontend" not in [each["metadata"]["name"] for each in of_kind(manifests, "Deployment")]
    assert "PERDURE_FLEET" not in environment(operator_container(manifests))
