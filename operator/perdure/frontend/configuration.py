"""The settings of the frontend, which the administrator makes, and the environment variables that contain them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the frontend."""

    authentication: bool = True
    """Whether callers must present a Kubernetes token. Without authentication, the address must be a loopback one."""
    audience: str = "perdure.dev/temporal"
    """The audience that the tokens of callers must have."""
    cluster_tokens: bool = False
    """Whether tokens for the API server are also accepted."""
    in_the_clear: bool = False
    """Whether an address that others can reach may be served without TLS."""
    certificate: str = ""
    """Path of the TLS certificate, PEM; empty for none."""
    key: str = ""
    """Path of its key, PEM."""
    namespace: str = ""
    """The operator's."""
    secret: str = ""
    """Name of the Secret where the operator stores its own certificate; empty if it creates none."""
    names: tuple[str, ...] = ()
    """DNS names and IP addresses in that certificate."""
    authorities: str = ""
    """Name of the ConfigMaps with the authorities that clients should trust; empty for none."""
    publish: bool = True
    """Whether there is one in each namespace that is served, not only in the operator's."""
    client_authority: str = ""
    """Path of the authorities of client certificates, PEM; empty if clients need no certificate."""
    http_address: str = ""
    """Address of Temporal's HTTP API; empty if it is not served."""
    webhooks: bool = True
    """Whether the HTTP API takes requests to Webhooks."""
    member: str = ""
    """The name of this member of the fleet."""
    peer_address: str = ""
    """Address to which other members of the fleet forward RPCs; empty without a fleet."""
    peer_audience: str = "perdure.dev/fleet"
    """The audience that the tokens of other members must have."""
    peer_token: str = ""
    """Path of a token for that audience."""
    max_connections: int = 1_000
    """Maximum number of gRPC connections, and of HTTP connections; further ones are closed immediately."""
    suggest_events: int = 4_096
    """Number of events of a history above which workers get the suggestion to continue as new."""
    console_url: str = ""
    """Address of the console as browsers reach it, for links in the details of runs; empty for none."""


def settings_of(environment: Mapping[str, str]) -> Settings:
    """The settings that the environment gives.

    Raises:
        ValueError: a value is not a number.
    """
    authentication = environment.get("PERDURE_TEMPORAL_AUTHENTICATION") or "Kubernetes"
    if authentication not in {"Kubernetes", "None"}:
        raise ValueError(f"PERDURE_TEMPORAL_AUTHENTICATION is {authentication!r}; it can be `Kubernetes` or `None`")
    return Settings(
        authentication=authentication == "Kubernetes",
        audience=environment.get("PERDURE_TEMPORAL_AUDIENCE") or "perdure.dev/temporal",
        cluster_tokens=environment.get("PERDURE_TEMPORAL_ACCEPT_CLUSTER_TOKENS") == "true",
        in_the_clear=environment.get("PERDURE_TEMPORAL_TLS") == "None",
        certificate=environment.get("PERDURE_TEMPORAL_TLS_CERT", ""),
        key=environment.get("PERDURE_TEMPORAL_TLS_KEY", ""),
        namespace=environment.get("PERDURE_NAMESPACE", ""),
        secret=environment.get("PERDURE_TEMPORAL_TLS_SECRET", ""),
        names=tuple(filter(None, map(str.strip, environment.get("PERDURE_TEMPORAL_TLS_NAMES", "").split(",")))),
        authorities=environment.get("PERDURE_TEMPORAL_CA_CONFIGMAP", ""),
        publish=environment.get("PERDURE_TEMPORAL_PUBLISH_CA") != "false",
        client_authority=environment.get("PERDURE_TEMPORAL_TLS_CLIENT_CA", ""),
        http_address=environment.get("PERDURE_TEMPORAL_HTTP_ADDRESS", ""),
        webhooks=environment.get("PERDURE_WEBHOOKS") != "false",
        member=environment.get("POD_NAME", ""),
        peer_address=environment.get("PERDURE_PEER_ADDRESS", ""),
        peer_audience=environment.get("PERDURE_PEER_AUDIENCE") or "perdure.dev/fleet",
        peer_token=environment.get("PERDURE_PEER_TOKEN", ""),
        max_connections=int(environment.get("PERDURE_TEMPORAL_MAX_CONNECTIONS") or 1_000),
        suggest_events=int(environment.get("PERDURE_TEMPORAL_SUGGEST_EVENTS") or 4_096),
        console_url=environment.get("PERDURE_CONSOLE_URL", "").rstrip("/"),
    )
