"""The settings of the frontend, and the environment variables that contain them."""

from collections.abc import Mapping
from dataclasses import dataclass

from perdure.frontend.messages.nexus import additional_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the frontend."""

    authentication: bool = True
    """Whether callers must present a Kubernetes token. Without authentication, the address must be a loopback one."""
    audience: str = "perdure.dev/temporal"
    """The audience that the tokens of callers must have."""
    issuer: str = ""
    """URL of an OIDC provider whose tokens are also accepted; empty for none. The API server must trust it, too."""
    client_ids: frozenset[str] = frozenset()
    """The audiences, one of which the tokens of this provider must have."""
    cluster_tokens: bool = False
    """Whether tokens for the API server are also accepted."""
    plaintext: bool = False
    """Whether to serve an address that others can reach without TLS."""
    certificate: str = ""
    """Path of the TLS certificate, PEM; empty for none."""
    key: str = ""
    """Path of its key, PEM."""
    namespace: str = ""
    """The namespace of the operator."""
    secret: str = ""
    """Name of the Secret where the operator stores its own certificate; empty if it creates none."""
    names: tuple[str, ...] = ()
    """DNS names and IP addresses in that certificate."""
    authorities: str = ""
    """Name of the ConfigMaps with the authorities that clients should trust; empty for none."""
    publish: bool = True
    """Whether to create one in each served namespace, not only in the operator's namespace."""
    client_authority: str = ""
    """Path of the authorities of client certificates, PEM; empty if clients need no certificate."""
    http_address: str = ""
    """Address of Temporal's HTTP API; empty if it is not served."""
    webhooks: bool = True
    """Whether the HTTP API takes requests to Webhooks."""
    runs_workers: bool = True
    """Whether the operator runs the workers of WorkerDeployments."""
    nexus_headers: frozenset[str] = frozenset()
    """Names of further headers of HTTP requests that Nexus handlers get, in lower case."""
    member: str = ""
    """The name of this member of the fleet."""
    peer_address: str = ""
    """Address to which other members of the fleet forward RPCs; empty without a fleet."""
    peer_audience: str = "perdure.dev/fleet"
    """The audience that the tokens of other members must have."""
    peer_token: str = ""
    """Path of a token for that audience."""
    apart: bool = False
    """Whether frontends that are processes of their own serve callers. The operator then listens to these and to members only."""
    frontend_user: str = ""
    """The user of these frontends; empty without authentication."""
    max_connections: int = 1_000
    """Maximum number of gRPC connections and of HTTP connections; excess connections are closed immediately."""
    suggest_events: int = 4_096
    """Number of events of a history above which continue-as-new is suggested to workers."""
    console_url: str = ""
    """Address of the console for browsers, for links in the details of runs; empty for none."""


def settings_of(environment: Mapping[str, str]) -> Settings:
    """Read the settings from the environment.

    Raises:
        ValueError: A value is not valid.
    """
    authentication = environment.get("PERDURE_TEMPORAL_AUTHENTICATION") or "Kubernetes"
    if authentication not in {"Kubernetes", "None"}:
        raise ValueError(f"PERDURE_TEMPORAL_AUTHENTICATION is {authentication!r}; it must be `Kubernetes` or `None`")
    return Settings(
        authentication=authentication == "Kubernetes",
        audience=environment.get("PERDURE_TEMPORAL_AUDIENCE") or "perdure.dev/temporal",
        issuer=environment.get("PERDURE_TEMPORAL_OIDC_ISSUER", ""),
        client_ids=frozenset(listed(environment, "PERDURE_TEMPORAL_OIDC_CLIENT_IDS")),
        cluster_tokens=environment.get("PERDURE_TEMPORAL_ACCEPT_CLUSTER_TOKENS") == "true",
        plaintext=environment.get("PERDURE_TEMPORAL_TLS") == "None",
        certificate=environment.get("PERDURE_TEMPORAL_TLS_CERT", ""),
        key=environment.get("PERDURE_TEMPORAL_TLS_KEY", ""),
        namespace=environment.get("PERDURE_NAMESPACE", ""),
        secret=environment.get("PERDURE_TEMPORAL_TLS_SECRET", ""),
        names=listed(environment, "PERDURE_TEMPORAL_TLS_NAMES"),
        authorities=environment.get("PERDURE_TEMPORAL_CA_CONFIGMAP", ""),
        publish=environment.get("PERDURE_TEMPORAL_PUBLISH_CA") != "false",
        client_authority=environment.get("PERDURE_TEMPORAL_TLS_CLIENT_CA", ""),
        http_address=environment.get("PERDURE_TEMPORAL_HTTP_ADDRESS", ""),
        webhooks=environment.get("PERDURE_WEBHOOKS") != "false",
        runs_workers=environment.get("PERDURE_WORKER_DEPLOYMENTS") != "false",
        nexus_headers=additional_headers(listed(environment, "PERDURE_NEXUS_HEADERS")),
        member=environment.get("POD_NAME", ""),
        peer_address=environment.get("PERDURE_PEER_ADDRESS", ""),
        peer_audience=environment.get("PERDURE_PEER_AUDIENCE") or "perdure.dev/fleet",
        peer_token=environment.get("PERDURE_PEER_TOKEN", ""),
        apart=bool(environment.get("PERDURE_FRONTEND_USER")),
        frontend_user=environment.get("PERDURE_FRONTEND_USER", ""),
        max_connections=int(environment.get("PERDURE_TEMPORAL_MAX_CONNECTIONS") or 1_000),
        suggest_events=int(environment.get("PERDURE_TEMPORAL_SUGGEST_EVENTS") or 4_096),
        console_url=environment.get("PERDURE_CONSOLE_URL", "").rstrip("/"),
    )


def listed(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The items of a list in a variable, which commas separate."""
    return tuple(filter(None, map(str.strip, environment.get(name, "").split(","))))
