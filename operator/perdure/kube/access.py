"""Where the API server is and how to be let in."""

import ssl
from dataclasses import dataclass
from pathlib import Path

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach an API server.

    A token is read from its file for each use: the kubelet renews it there.
    """

    server: str
    namespace: str = "default"
    ca_file: str | None = None
    token: str | None = None
    token_file: Path | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None
    verify: bool = True

    def bearer(self) -> str | None:
        """The token to show, None where a client certificate does the talking."""
        return self.token_file.read_text().strip() if self.token_file else self.token

    def ssl_context(self) -> ssl.SSLContext | None:
        """TLS as this access wants it; None for plain http."""
        if self.server.startswith("http://"):
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.client_cert_file:
            context.load_cert_chain(self.client_cert_file, self.client_key_file)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class NoAccessError(Exception):
    """Neither a pod's service account nor a kubeconfig says where the API server is."""


def find_access(*, context: str | None = None, host: str = "", port: str = "443") -> Access:
    """The pod's own service account where there is one, else the kubeconfig.

    Args:
        context: a context of the kubeconfig; None for its current one.
        host: the value of ``KUBERNETES_SERVICE_HOST``, empty outside a pod.
        port: the value of ``KUBERNETES_SERVICE_PORT``.

    Raises:
        NoAccessError: there is neither.
    """
    if host and (_SERVICE_ACCOUNT / "token").exists():
        return Access(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            namespace=(_SERVICE_ACCOUNT / "namespace").read_text().strip(),
            ca_file=str(_SERVICE_ACCOUNT / "ca.crt"),
            token_file=_SERVICE_ACCOUNT / "token",
        )
    # The official package knows every form a kubeconfig takes; it is slow to import, so only who needs it pays.
    from kubernetes import client, config  # noqa: PLC0415

    configuration = client.Configuration()
    try:
        config.load_kube_config(context=context, client_configuration=configuration)  # type: ignore[no-untyped-call]
        known, current = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise NoAccessError(f"no access to a cluster: {error}; set KUBECONFIG, or run `make cluster`") from error
    active = next((c for c in known if c["name"] == context), current)
    token = (configuration.api_key or {}).get("authorization") or (configuration.api_key or {}).get("BearerToken")
    return Access(
        server=configuration.host,
        namespace=(active or {}).get("context", {}).get("namespace", "default"),
        ca_file=configuration.ssl_ca_cert,
        token=token.removeprefix("Bearer ") if token else None,
        client_cert_file=configuration.cert_file,
        client_key_file=configuration.key_file,
        verify=configuration.verify_ssl,
    )
