"""The attempt's own Lease, patched through the API server with the pod's token."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.client import HTTPConnection

SERVICE_ACCOUNT_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"
"""The folder with the pod's token and the cluster's certificate authority."""

_LONGEST_MESSAGE = 500


class LeaseError(Exception):
    """A patch failed."""

    def __init__(self, status: int | None, message: str) -> None:
        """Create the error; `status` is None if there was no response."""
        super().__init__(message)
        self.status = status


class Lease:
    """The Lease of an attempt. Not thread-safe.

    The address of the API server and the path of the token are Kubernetes' defaults for pods. To try an activity without a
    pod, override them with `PERDURE_API_SERVER` and `PERDURE_SERVICE_ACCOUNT_DIRECTORY`.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        namespace, name = environ["PERDURE_NAMESPACE"], environ["PERDURE_LEASE"]
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self._server = environ.get("PERDURE_API_SERVER") or ""
        self._host = environ.get("KUBERNETES_SERVICE_HOST") or "kubernetes.default.svc"
        self._port = int(environ.get("KUBERNETES_SERVICE_PORT") or 443)
        self._directory = environ.get("PERDURE_SERVICE_ACCOUNT_DIRECTORY") or SERVICE_ACCOUNT_DIRECTORY
        self._connection: HTTPConnection | None = None

    def patch(self, body: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Patch the Lease.

        Args:
            body: A JSON merge patch.
            timeout: How long to wait for the connection, and for the response, in seconds.

        Returns:
            The Lease after the patch.

        Raises:
            LeaseError: The API server rejected the patch, or did not respond.
        """
        payload = json.dumps(body).encode()
        kept = self._connection is not None
        try:
            try:
                status, answer = self._send(payload, timeout)
            except OSError:
                if not kept:
                    raise
                # The server may have closed an idle connection. Sending a patch twice is safe.
                self.close()
                status, answer = self._send(payload, timeout)
            document = json.loads(answer) if answer else {}
        except (OSError, ValueError) as error:  # includes the errors of http.client, which _send converts to OSError
            self.close()
            raise LeaseError(None, f"{type(error).__name__}: {error}") from error
        if status != 200:  # noqa: PLR2004 - HTTP's OK
            message = document.get("message") if isinstance(document, dict) else None
            raise LeaseError(status, str(message or f"HTTP status {status}")[:_LONGEST_MESSAGE])
        return document if isinstance(document, dict) else {}

    def close(self) -> None:
        """Close the connection. The next patch opens a new one."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None

    def _send(self, payload: bytes, timeout: float) -> tuple[int, bytes]:
        from http.client import HTTPException  # noqa: PLC0415 - see _connect

        with open(f"{self._directory}/token", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs 5 ms to import
            token = file.read().strip()  # read for each request, because the kubelet renews it
        try:
            connection = self._connection or self._connect(timeout)
            self._connection = connection
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
            headers = {
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/merge-patch+json",
                "Accept": "application/json",
                "User-Agent": "perdure-activity",
            }
            connection.request("PATCH", self._path, body=payload, headers=headers)
            response = connection.getresponse()
            answer = response.read()
        except HTTPException as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error
        if response.will_close:
            self.close()
        return response.status, answer

    def _connect(self, timeout: float) -> HTTPConnection:
        # Imported here because they take longer to import than everything else, and most activities never heartbeat.
        from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415

        host, port, secure = self._host, self._port, True
        if self._server:
            from urllib.parse import urlsplit  # noqa: PLC0415

            parts = urlsplit(self._server)
            secure = parts.scheme != "http"
            host, port = parts.hostname or host, parts.port or (443 if secure else 80)
        if not secure:
            return HTTPConnection(host, port, timeout=timeout)
        import ssl  # noqa: PLC0415

        context = ssl.create_default_context(cafile=f"{self._directory}/ca.crt")
        # Python 3.13 rejects authorities without a key identifier, which many clusters have.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return HTTPSConnection(host, port, timeout=timeout, context=context)
