"""The console as a server: it has no permissions, and nothing in its pod that could have some."""

import pytest

from unit.chart.manifests import Render, named, of_kind, operator_container

pytestmark = pytest.mark.cluster


def test_the_console_pod_has_no_token_and_has_the_ca_of_the_api_server(render: Render) -> None:
    manifests = render("console.enabled=true")
    pod = named(manifests, "Deployment", "perdure-console")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    assert pod["volumes"] == [
        {"name": "ca", "configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    ]
    for binding in of_kind(manifests, "RoleBinding", "ClusterRoleBinding"):
        assert "console" not in binding["metadata"]["name"]


def test_the_console_runs_the_operator_image_under_the_restricted_standard(render: Render) -> None:
    settings = (
        'image.repository="registry.example/perdure"',
        'image.tag="1.2.3"',
        'console.webUiUrl="https://flows.example"',
    )
    manifests = render("console.enabled=true", 'console.defaultNamespace="shop"', *settings)
    pod = named(manifests, "Deployment", "perdure-console")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == operator_container(manifests)["image"]
    assert container["command"] == ["perdure-console"]
    values = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert (values["PERDURE_CONSOLE_NAMESPACE"], values["PERDURE_WEB_UI_URL"]) == ("shop", "https://flows.example")
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["seccompProfile"]) == (
        True,
        {"type": "RuntimeDefault"},
    )
    context = container["securityContext"]
    assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
    assert context["capabilities"] == {"drop": ["ALL"]}


def test_the_console_can_be_read_only(render: Render) -> None:
    def read_only(*settings: str) -> str:
        deployment = named(render("console.enabled=true", *settings), "Deployment", "perdure-console")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        (found,) = [each["value"] for each in container["env"] if each["name"] == "PERDURE_CONSOLE_READ_ONLY"]
        return str(found)

    assert read_only() == "false"
    assert read_only("console.readOnly=true") == "true"


def test_the_frontend_links_to_the_address_of_the_console(render: Render) -> None:
    def env(*settings: str) -> dict[str, str | None]:
        return {each["name"]: each.get("value") for each in operator_container(render(*settings))["env"]}

    assert env('console.url="https://console.example"')["PERDURE_CONSOLE_URL"] == "https://console.example"
    assert "PERDURE_CONSOLE_URL" not in env("console.enabled=true")


def test_the_console_can_connect_only_to_dns_and_the_api_server(render: Render) -> None:
    manifests = render("console.enabled=true", "networkPolicy.enabled=true", "networkPolicy.apiServerPorts=[6443]")
    policy = named(manifests, "NetworkPolicy", "perdure-console")["spec"]
    assert policy["ingress"] == []
    assert [[port["port"] for port in rule["ports"]] for rule in policy["egress"]] == [[53, 53], [6443]]


def test_the_console_reads_archived_runs_through_the_frontend(render: Render) -> None:
    def urls(*values: str) -> list[str]:
        manifests = render("console.enabled=true", "networkPolicy.enabled=true", *values)
        (container,) = named(manifests, "Deployment", "perdure-console")["spec"]["template"]["spec"]["containers"]
        return [each["value"] for each in container["env"] if each["name"] == "PERDURE_FRONTEND_URL"]

    assert urls() == []
    assert urls("archive.enabled=true") == ["https://perdure-temporal.perdure-system.svc:7243"]
    assert urls("archive.enabled=true", "temporal.httpApi.enabled=false") == []
