"""Access to an API server: its address and the credentials of the user."""

import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path


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
