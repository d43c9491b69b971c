"""Find the API server and the credentials for it."""

from pathlib import Path

from perdure.kube.kubeconfig import Overrides, load
from perdure.kube.logins import Access, NoAccessError

__all__ = ["Access", "NoAccessError", "find_access", "service_account"]

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def find_access(*, context: str | None = None, host: str = "", port: str = "443") -> Access:
    """Find the access: the pod's service account if there is one, otherwise the kubeconfig.

    Args:
        context: A context of the kubeconfig; None for the current one.
        host: The value of ``KUBERNETES_SERVICE_HOST``, empty outside a pod.
        port: The value of ``KUBERNETES_SERVICE_PORT``.

    Raises:
        NoAccessError: There is neither.
    """
    found = service_account(host, port) if host else None
    if found is not None:
        return found
    return load(Overrides(context=context))


def service_account(host: str, port: str) -> Access | None:
    """The access of the pod's service account; None if no token is mounted.

    Args:
        host: The value of ``KUBERNETES_SERVICE_HOST``.
        port: The value of ``KUBERNETES_SERVICE_PORT``.
    """
    if not (_SERVICE_ACCOUNT / "token").exists():
        return None
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=(_SERVICE_ACCOUNT / "namespace").read_text().strip(),
        ca_file=str(_SERVICE_ACCOUNT / "ca.crt"),
        token_file=_SERVICE_ACCOUNT / "token",
    )
