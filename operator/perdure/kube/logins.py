"""Access to an API server: its address and the credentials of the user."""

import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The address of an API server and the credentials for it.

    A token file is read for each use, because the kubelet renews the token.
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
    """The certificate authority as PEM; takes precedence over the file."""
    client_cert_data: str | None = None
    client_key_data: str | None = None
    server_name: str | None = None
    """The name in the server's certificate, if it is not the host of `server`."""
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Additional headers of each request, such as those that impersonate a user."""
    timeout: float | None = None
    """Timeout of a request in seconds; None for the default, 0 for no limit."""

    def bearer(self) -> str | None:
        """The bearer token; None if a client certificate authenticates requests."""
        return self.token_file.read_text().strip() if self.token_file else self.token

    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context of this access; None for plain HTTP."""
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
        """Load the client certificate. The library reads only files, so inline data is briefly written to one."""
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
    """Neither a pod's service account nor a kubeconfig has the address of the API server."""
