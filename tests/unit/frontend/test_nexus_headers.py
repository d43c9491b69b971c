"""Handlers get only known headers of HTTP requests: they can belong to another tenant than the caller."""

import json
from pathlib import Path

import pytest
from multidict import CIMultiDict

from perdure.frontend.messages.nexus import CREDENTIALS, SERVERS_HEADERS, passed_headers
from perdure.frontend.settings import settings_of

SCHEMA = Path(__file__).resolve().parents[3] / "charts" / "perdure" / "values.schema.json"
SECRETS = (
    "Authorization",
    "Proxy-Authorization",
    "Cookie",
    "Grpc-Metadata-Authorization",
    "grpc-metadata-authorization",
    "GRPC-METADATA-COOKIE",
    "Grpc_Metadata_Authorization",
    "X-Forwarded-Access-Token",
    "X-Forwarded-Authorization",
    "X-Auth-Request-Access-Token",
    "Authorization-Extras",
    "X-Amzn-Oidc-Data",
    "X-Goog-Iap-Jwt-Assertion",
    "X-Forwarded-Client-Cert",
    "X-Ms-Client-Principal",
    "X-Api-Key",
    "X-CSRF-Token",
    "DPoP",
    "X-Bearer",
    "X-Forwarded-User",
    "Host",
    "Transfer-Encoding",
    "Nexus-Callback-Token",
)


@pytest.mark.parametrize("name", ["Content-Type", "Nexus-Authorization", "x-to\u212aen", "x tenant"])
def test_a_header_of_the_protocol_or_an_invalid_one_cannot_be_configured(name: str) -> None:
    with pytest.raises(ValueError, match="header"):
        settings_of({"PERDURE_NEXUS_HEADERS": name})


@pytest.mark.parametrize("name", SECRETS)
def test_a_credential_never_reaches_a_handler(name: str) -> None:
    assert not dict(passed_headers(CIMultiDict({name: "s3cret"}), frozenset()))
    with pytest.raises(ValueError, match="header"):
        settings_of({"PERDURE_NEXUS_HEADERS": f"x-tenant,{name}"})


@pytest.mark.parametrize("name", ["Host", "Connection", "X-Forwarded-For", "Content-Type", "Nexus-Callback-Token", "X"])
def test_an_unknown_header_does_not_reach_a_handler(name: str) -> None:
    assert not dict(passed_headers(CIMultiDict({name: "x"}), frozenset()))


@pytest.mark.parametrize("name", sorted(SERVERS_HEADERS))
def test_a_header_of_the_server_cannot_be_passed(name: str) -> None:
    assert not dict(passed_headers({name.title(): "x"}, frozenset({name})))
    with pytest.raises(ValueError, match="Nexus handlers must not get the header"):
        settings_of({"PERDURE_NEXUS_HEADERS": name})


@pytest.mark.parametrize(
    "name",
    ["Nexus-Request-Id", "Nexus-Link", "Operation-Timeout", "Traceparent", "tracestate", "Baggage", "X-B3-TraceId"],
)
def test_headers_of_the_protocol_and_of_traces_reach_a_handler(name: str) -> None:
    assert dict(passed_headers(CIMultiDict({name: "x"}), frozenset())) == {name.lower(): "x"}


def test_configured_headers_reach_a_handler_in_any_case() -> None:
    settings = settings_of({"PERDURE_NEXUS_HEADERS": "x-tenant, X-Region"})
    headers = CIMultiDict({"X-Tenant": "blue", "x-region": "eu", "X-Other": "x"})
    assert dict(passed_headers(headers, settings.nexus_headers)) == {"x-tenant": "blue", "x-region": "eu"}
    assert not settings_of({}).nexus_headers


def test_the_chart_rejects_the_same_names() -> None:
    schema = json.loads(SCHEMA.read_text())
    items = schema["properties"]["temporal"]["properties"]["httpApi"]["properties"]["nexusHeaders"]["items"]
    assert items["not"]["pattern"] == CREDENTIALS.pattern
