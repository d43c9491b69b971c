"""`perdure-console`: the console as a server in the cluster. It has no permissions; each request brings the token of its user."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from perdure.console.access import TokenAccess
from perdure.console.app import console
from perdure.console.site import ConsoleSettings
from perdure.kube.access import Access

CA = Path("/var/run/secrets/kubernetes.io/ca/ca.crt")
"""The CA certificate of the API server; the ConfigMap `kube-root-ca.crt` has it in every namespace."""


def application(environment: "os._Environ[str] | dict[str, str]", ca: Path = CA) -> Starlette:
    """Build the server.

    Args:
        environment: The environment variables of the pod.
        ca: The file with the CA certificate.

    Raises:
        SystemExit: A variable is missing or invalid.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise SystemExit(
            "KUBERNETES_SERVICE_HOST is not set: perdure-console runs in a pod; elsewhere, use `perdure console`"
        )
    web_ui = environment.get("PERDURE_WEB_UI_URL", "")
    if web_ui and urlsplit(web_ui).scheme not in {"http", "https"}:
        raise SystemExit(f"PERDURE_WEB_UI_URL: `{web_ui}` must begin with http:// or https://")
    access = Access(server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", ca_file=str(ca))
    settings = ConsoleSettings(
        namespace=environment.get("PERDURE_CONSOLE_NAMESPACE") or "default",
        system_namespace=environment.get("PERDURE_NAMESPACE") or "perdure-system",
        web_ui=web_ui,
        read_only=environment.get("PERDURE_CONSOLE_READ_ONLY", "") == "true",
    )

    async def healthy(_: object) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    return Starlette(routes=[Route("/healthz", healthy), Mount("/", console(TokenAccess(access), settings))])


def main() -> None:
    """Serve until the pod is stopped."""
    uvicorn.run(
        application(os.environ),
        host="::",
        port=8080,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
