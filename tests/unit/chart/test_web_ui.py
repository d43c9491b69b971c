"""The Web UI of the chart."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from unit.chart.manifests import CHART, EVERYTHING, Helm, Manifest, Render, named, of_kind, operator_container

# --- The Web UI -------------------------------------------------------------------------------------------------------

pytestmark = pytest.mark.cluster


def web_ui(manifests: Sequence[Manifest]) -> tuple[Manifest, dict[str, Any]]:
    """Its pod, and its environment."""
    pod = named(manifests, "Deployment", "perdure-ui")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_the_web_ui_connects_to_the_frontend_with_tls_and_without_a_token(render: Render) -> None:
    manifests = render("ui.enabled=true")
    pod, env = web_ui(manifests)
    assert env == {
        "TEMPORAL_ADDRESS": "perdure-temporal.perdure-system.svc:7233",
        "TEMPORAL_UI_PORT": "8080",
        "TEMPORAL_DEFAULT_NAMESPACE": "default",
        "TEMPORAL_DISABLE_WRITE_ACTIONS": "false",
        "TEMPORAL_NOTIFY_ON_NEW_VERSION": "false",
        "TEMPORAL_DISABLE_NEWS_FETCH": "true",
        "TEMPORAL_TLS_CA": "/frontend-ca/ca.crt",
        "TEMPORAL_TLS_ENABLE_HOST_VERIFICATION": "true",
    }
    assert env["TEMPORAL_ADDRESS"].partition(":")[0] in {
        x["name"]: x.get("value", "") for x in operator_container(manifests)["env"]
    }["PERDURE_TEMPORAL_TLS_NAMES"].split(",")
    assert pod["automountServiceAccountToken"] is False
    (volume,) = pod["volumes"]
    assert volume["configMap"]["name"] == "perdure-temporal-ca"
    assert pod["containers"][0]["image"] == "docker.io/temporalio/ui:2.55.0"
    assert web_ui(render("ui.enabled=true", "ui.readOnly=true"))[1]["TEMPORAL_DISABLE_WRITE_ACTIONS"] == "true"
    clear, without = web_ui(render("ui.enabled=true", "temporal.tls.enabled=false"))
    assert not {name for name in without if "TLS" in name}
    assert "volumes" not in clear


def test_the_web_ui_meets_the_restricted_pod_security_standard(render: Render) -> None:
    pod, _ = web_ui(render("ui.enabled=true"))
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 1000)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    context = pod["containers"][0]["securityContext"]
    assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
    assert context["capabilities"] == {"drop": ["ALL"]}


def test_selectors_distinguish_the_web_ui_from_the_operator(render: Render) -> None:
    manifests = render(*EVERYTHING)
    labels_of = {
        name: named(manifests, "Deployment", name)["spec"]["template"]["metadata"]["labels"]
        for name in ("perdure", "perdure-ui", "perdure-console")
    }

    def selected(selector: Manifest) -> list[str]:
        return [name for name, found in labels_of.items() if selector.items() <= found.items()]

    assert {x["metadata"]["name"]: selected(x["spec"]["selector"]) for x in of_kind(manifests, "Service")} == {
        "perdure": ["perdure"],
        "perdure-temporal": ["perdure"],
        "perdure-ui": ["perdure-ui"],
        "perdure-console": ["perdure-console"],
    }
    policies = {x["metadata"]["name"]: x["spec"] for x in of_kind(manifests, "NetworkPolicy")}
    assert {name: selected(spec["podSelector"]["matchLabels"]) for name, spec in policies.items()} == {
        "perdure": ["perdure"],
        "perdure-ui": ["perdure-ui"],
        "perdure-console": ["perdure-console"],
    }
    assert policies["perdure-ui"]["ingress"] == []
    assert policies["perdure-console"]["ingress"] == []
    (frontend,) = [rule for rule in policies["perdure-ui"]["egress"] if "to" in rule]
    assert selected(frontend["to"][0]["podSelector"]["matchLabels"]) == ["perdure"]
    some, others = [{"podSelector": {"matchLabels": {"a": "b"}}}], [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    narrow = render(
        *EVERYTHING,
        f"networkPolicy.uiIngressFrom={json.dumps(some)}",
        f"networkPolicy.consoleIngressFrom={json.dumps(some)}",
        f"networkPolicy.temporalIngressFrom={json.dumps(others)}",
    )
    for name in ("perdure-ui", "perdure-console"):
        assert named(narrow, "NetworkPolicy", name)["spec"]["ingress"][0]["from"] == some
    callers = [rule["from"] for rule in named(narrow, "NetworkPolicy", "perdure")["spec"]["ingress"][1:]]
    assert callers[0] == others
    assert selected(callers[1][0]["podSelector"]["matchLabels"]) == ["perdure-ui"]


def test_users_log_in_to_the_web_ui_with_oidc(helm: Helm, render: Render) -> None:
    oidc = {"providerUrl": "https://id.example.com", "clientId": "perdure", "clientSecretName": "ui"}
    called = {**oidc, "callbackUrl": "https://flows.example.com/auth/sso/callback"}
    manifests = render("ui.enabled=true", f"ui.oidc={json.dumps(called)}")
    _, env = web_ui(manifests)
    assert {name: value for name, value in env.items() if "AUTH" in name} == {
        "TEMPORAL_AUTH_ENABLED": "true",
        "TEMPORAL_AUTH_PROVIDER_URL": "https://id.example.com",
        "TEMPORAL_AUTH_CLIENT_ID": "perdure",
        "TEMPORAL_AUTH_CLIENT_SECRET": {"secretKeyRef": {"name": "ui", "key": "clientSecret"}},
        "TEMPORAL_AUTH_CALLBACK_URL": "https://flows.example.com/auth/sso/callback",
        "TEMPORAL_AUTH_SCOPES": "openid,profile,email",
        "TEMPORAL_AUTH_USE_ID_TOKEN_AS_BEARER": "true",
    }

    def accepted(found: Sequence[Manifest]) -> tuple[str, str]:
        operator = {each["name"]: each.get("value", "") for each in operator_container(found)["env"]}
        assert "PERDURE_TEMPORAL_ACCEPT_CLUSTER_TOKENS" not in operator
        return operator["PERDURE_TEMPORAL_OIDC_ISSUER"], operator["PERDURE_TEMPORAL_OIDC_CLIENT_IDS"]

    assert accepted(manifests) == ("https://id.example.com", "perdure")
    more = {"issuerUrl": "https://id.example.com/", "clientIds": ["kubernetes"]}
    alone, both = "temporal.authentication.oidc=" + json.dumps(more), f"ui.oidc={json.dumps(called)}"
    assert accepted(render(alone)) == ("https://id.example.com/", "kubernetes")
    assert accepted(render("ui.enabled=true", alone, both)) == ("https://id.example.com/", "kubernetes,perdure")

    def refused(*settings: str) -> str:
        flags = [part for setting in ("ui.enabled=true", *settings) for part in ("--set-json", setting)]
        return helm("template", "perdure", str(CHART), *flags).stderr

    other = 'temporal.authentication.oidc.issuerUrl="https://other.example.com"'
    assert "must be the same" in refused(other, both)
    assert "temporal.authentication.oidc.clientIds must name a client" in refused(other)
    assert "ui.oidc.callbackUrl must be set" in refused(f"ui.oidc={json.dumps(oidc)}")
    assert "temporal.enabled must be true" in refused("temporal.enabled=false")
    assert "ui.clientCertificateSecretName must be set" in refused('temporal.tls.clientCASecretName="clients"')


def test_the_web_ui_presents_the_required_client_certificate(render: Render) -> None:
    secret = 'ui.clientCertificateSecretName="cert"'
    pod, env = web_ui(render("ui.enabled=true", 'temporal.tls.clientCASecretName="clients"', secret))
    assert (env["TEMPORAL_TLS_CERT"], env["TEMPORAL_TLS_KEY"]) == (
        "/client-certificate/tls.crt",
        "/client-certificate/tls.key",
    )
    assert {"secretName": "cert", "defaultMode": 288} in [volume.get("secret") for volume in pod["volumes"]]
