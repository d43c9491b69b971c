"""Finds and reads the Deployment of the operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.kube import paths

if TYPE_CHECKING:
    from perdure.client.diagnosis import Diagnosis
    from perdure.client.requests import Object

_APPS = "/apis/apps/v1"
_OWN = "PERDURE_NAMESPACE"
"""Environment variable that only the operator has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDeployment:
    """The settings of the operator in its Deployment."""

    namespace: str
    name: str
    release: str
    """The Helm release."""
    version: str
    account: str
    """Name of its ServiceAccount."""
    wanted: int
    ready: int
    selector: str
    environment: dict[str, str]

    @property
    def user(self) -> str:
        """The operator's user name."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"

    @property
    def groups(self) -> tuple[str, ...]:
        """The operator's groups."""
        return "system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated"

    @property
    def watched(self) -> tuple[str, ...]:
        """The namespaces that the operator watches; empty for all."""
        return self._names("PERDURE_WATCH_NAMESPACES")

    @property
    def excluded(self) -> tuple[str, ...]:
        """The patterns of namespaces that the operator ignores."""
        return self._names("PERDURE_EXCLUDE_NAMESPACES")

    def _names(self, variable: str) -> tuple[str, ...]:
        return tuple(filter(None, map(str.strip, self.environment.get(variable, "").split(","))))


async def find(api: Diagnosis, namespace: str) -> OperatorDeployment | None:
    """Find the operator's Deployment in a namespace; None if there is none."""
    url = paths.path(_APPS, namespace, "deployments")
    found = await api.list(url, labelSelector="app.kubernetes.io/component=operator")
    read = (_read(each) for each in found)
    return next((deployment for deployment in read if _OWN in deployment.environment), None)


def _read(obj: Object) -> OperatorDeployment:
    meta, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    labels, pod = meta.get("labels") or {}, spec["template"]["spec"]
    wanted = spec.get("replicas")
    matching = (spec.get("selector") or {}).get("matchLabels") or {}
    return OperatorDeployment(
        namespace=meta["namespace"],
        name=meta["name"],
        release=str(labels.get("app.kubernetes.io/instance", "")),
        version=str(labels.get("app.kubernetes.io/version", "")),
        account=str(pod.get("serviceAccountName") or "default"),
        wanted=1 if wanted is None else int(wanted),
        ready=int(status.get("readyReplicas") or 0),
        selector=",".join(f"{key}={value}" for key, value in matching.items()),
        environment={
            each["name"]: str(each.get("value", "")) for one in pod["containers"] for each in one.get("env") or ()
        },
    )
