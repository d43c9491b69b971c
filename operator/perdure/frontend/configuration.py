"""What the administrator of the operator decides about the frontend, and the environment variables that say it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the administrator of the operator decides."""

    authentication: bool = True
    """Whether callers show a token of Kubernetes. Without, the address has to be a loopback one."""
    audience: str = "perdure.dev/temporal"
    """That the tokens of callers must be for."""
    cluster_tokens: bool = False
    """Whether tokens for the API server are accepted, too."""
    in_the_clear: bool = False
    """Whether there may be no TLS at an address that others reach."""
    certificate: str = ""
    """Path of the TLS certificate, PEM; empty: there is no such file."""
    key: str = ""
    """Path of its key, PEM."""
    namespace: str = ""
    """The operator's."""
    secret: str = ""
    """Name of the Secret where the operator stores a certificate of its own; empty: it makes none."""
    names: tuple[str, ...] = ()
    """DNS names and IP addresses in that certificate."""
    authorities: str = ""
    """Name of the ConfigMaps with the authorities that clients should trust; empty: there are none."""
    publish: bool = True
    """Whether there is one in each namespace that is served, not only in the operator's."""
    client_authority: str = ""
    """Path of the authorities of clients' certificates, PEM; empty: clients need none."""
    http_address: str = ""
    """Where Temporal's HTTP API is served; empty: it is not."""
    member: str = ""
    """The name of this member of the fleet."""
    peer_address: str = ""
    """Where other members of the fleet forward RPCs to; empty: there are none."""
    peer_audience: str = "perdure.dev/fleet"
    """That the tokens of other members must be for."""
    peer_token: str = ""
    """Path of a token for that audience."""
    max_connections: int = 1_000
    """Connections at the same time, of gRPC and as many of HTTP; more are closed as they come."""
    suggest_events: int = 4_096
    """Events of a history from which on workers get the suggestion to continue as new."""


def settings_of(environment: Mapping[str, str]) -> Settings:
    """The settings that the environment gives.

    Raises:
        ValueError: a number is none.
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
        member=environment.get("POD_NAME", ""),
        peer_address=environment.get("PERDURE_PEER_ADDRESS", ""),
        peer_audience=environment.get("PERDURE_PEER_AUDIENCE") or "perdure.dev/fleet",
        peer_token=environment.get("PERDURE_PEER_TOKEN", ""),
        max_connections=int(environment.get("PERDURE_TEMPORAL_MAX_CONNECTIONS") or 1_000),
        suggest_events=int(environment.get("PERDURE_TEMPORAL_SUGGEST_EVENTS") or 4_096),
    )
