"""Where the API server is and how to be let in."""

import ssl
import tempfile
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
    ca_data: str | None = None
    """PEM; counts more than the file."""
    client_cert_data: str | None = None
    client_key_data: str | None = None
    server_name: str | None = None
    """The name in the server's certificate, if it is not the host of `server`."""
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers of each request, such as those that impersonate a user."""
    timeout: float | None = None
    """Seconds that a request may take; None for the default, 0 for no limit."""

    def bearer(self) -> str | None:
        """The token to show, None where a client certificate does the talking."""
        return self.token_file.read_text().strip() if self.token_file else self.token

    def ssl_context(self) -> ssl.SSLContext | None:
        """TLS as this access wants it; None for plain http."""
        if self.server.startswith("http://"):
            return None
        context = ssl.create_default_context(cafile=None if self.ca_data else self.ca_file, cadata=self.ca_data)
        if self.client_cert_data or self.client_cert_file:
            self._load_certificate(context)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        """Load the client certificate. The library reads files only, so inline data is written to one for a moment."""
        if not (self.client_cert_data or self.client_key_data):
            context.load_cert_chain(str(self.client_cert_file), self.client_key_file)
            return
        certificate = self.client_cert_data or Path(str(self.client_cert_file)).read_text()
        key = self.client_key_data or (Path(self.client_key_file).read_text() if self.client_key_file else "")
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{certificate.rstrip()}\n{key}")
            file.flush()
            context.load_cert_chain(file.name)


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
    found = service_account(host, port) if host else None
    if found is not None:
        return found
    from perdure.kube.kubeconfig import Overrides, load  # noqa: PLC0415 - a pod does not need it

    return load(Overrides(context=context))


def service_account(host: str, port: str) -> Access | None:
    """The access of the pod's service account; None where no token is mounted.

    Args:
        host: the value of ``KUBERNETES_SERVICE_HOST``.
        port: the value of ``KUBERNETES_SERVICE_PORT``.
    """
    if not (_SERVICE_ACCOUNT / "token").exists():
        return None
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=(_SERVICE_ACCOUNT / "namespace").read_text().strip(),
        ca_file=str(_SERVICE_ACCOUNT / "ca.crt"),
        token_file=_SERVICE_ACCOUNT / "token",
    )
