"""Checks the operator: its Deployment and pods, its Leases, the namespaces that it serves, and its clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from perdure.cli.doctor.findings import counted, failed, ok, some, warning
from perdure.kube import clock, paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.cli.doctor.findings import CheckResult
    from perdure.client.diagnosis import Diagnosis
    from perdure.client.requests import Object


_TOLERATED = timedelta(seconds=2)
"""The allowed difference of clocks: times in HTTP headers are in whole seconds."""


async def pods(api: Diagnosis, deployment: OperatorDeployment | None, system: str) -> CheckResult:
    """Check that the pods of the operator are ready."""
    if deployment is None:
        return failed(
            "Operator",
            f"There is no operator in namespace `{system}`",
            "install the chart, or name the operator's namespace with --system-namespace",
        )
    ready = f"{deployment.ready} of {counted(deployment.wanted, 'pod')} ready"
    if deployment.ready >= deployment.wanted > 0:
        return ok("Operator", ready)
    if not deployment.wanted:
        fix = f"`kubectl -n {deployment.namespace} scale deployment/{deployment.name} --replicas=1`"
        return failed("Operator", f"Deployment `{deployment.name}` is scaled to 0 pods", fix)
    found = await api.list(paths.path(paths.CORE, deployment.namespace, "pods"), labelSelector=deployment.selector)
    why = some([problem for pod in found if (problem := _problem(pod))])
    fix = (
        f"`kubectl -n {deployment.namespace} describe pods -l {deployment.selector}` and "
        f"`kubectl -n {deployment.namespace} logs deployment/{deployment.name}` show more"
    )
    return (warning if deployment.ready else failed)("Operator", f"{ready}{f': {why}' if why else ''}", fix)


def _problem(pod: Object) -> str:
    """Return why a pod is not ready; empty if it is."""
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        return f"`{name}` has no node: {scheduled.get('message') or scheduled.get('reason', '')}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return f"`{name}`: {waiting.get('reason', 'waiting')}"
    return "" if (conditions.get("Ready") or {}).get("status") == "True" else f"`{name}` is not ready yet"


async def fleet(api: Diagnosis, deployment: OperatorDeployment | None, leases: Sequence[Object]) -> CheckResult:
    """Check that the operators that share the work renew their Leases and agree."""
    from perdure.view.fleet import members_of

    if deployment is not None and not deployment.environment.get("PERDURE_FLEET"):
        return ok("Fleet", "A single operator does all the work")
    members = members_of(leases, api.server_time() or clock.now())
    live = [member for member in members if not member.expired]
    names = tuple(member.name for member in live)
    if deployment is None and not members:
        return warning(
            "Fleet", "The operator was not found, so its Leases were not checked", "see the check `Operator`"
        )
    describe = "see `perdure fleet`, and the log of the operator"
    if not live:
        return failed("Fleet", "No operator has a valid Lease, so no run makes progress", describe)
    if deployment is not None and len(live) < deployment.wanted:
        return warning("Fleet", f"{len(live)} of {deployment.wanted} operators have a valid Lease", describe)
    if any(member.members != names for member in live):
        return warning(
            "Fleet", "The operators disagree about which operators share the work", f"run it again; {describe}"
        )
    return ok("Fleet", f"{counted(len(live), 'operator')} with a valid Lease, and all name the same operators")


async def check_namespace(deployment: OperatorDeployment, namespace: str | None) -> CheckResult:
    """Check that the operator serves a namespace; None: only say which ones it serves."""
    from perdure.controller.namespaces import ServedNamespaces

    if namespace is None:
        which = ", ".join(f"`{each}`" for each in deployment.watched)
        excluded = ", ".join(f"`{each}`" for each in deployment.excluded)
        named = f"the namespaces {which}" if which else "all namespaces"
        return ok("Namespace", f"The operator serves {named}{f', except {excluded}' if excluded else ''}")
    if namespace in ServedNamespaces(deployment.watched, deployment.excluded):
        return ok("Namespace", f"The operator serves namespace `{namespace}`")
    return failed(
        "Namespace",
        f"The operator does not serve namespace `{namespace}`, so its runs do not start",
        "change `watchNamespaces` or `excludeNamespaces` in the chart, or choose another namespace with -n",
    )


async def clocks(api: Diagnosis, leases: Sequence[Object]) -> CheckResult:
    """Compare the clocks of this machine and of the operators with the clock of the API server."""
    from perdure.api.times import read_kubernetes_time
    from perdure.view import text

    skew = await api.skew()
    server = api.server_time()
    if skew is None or server is None:
        return warning("Clocks", "The API server does not send its time", "compare the clocks of the nodes with `date`")
    for lease in leases:
        renewed = read_kubernetes_time((lease.get("spec") or {}).get("renewTime"))
        if renewed is not None and renewed - server > _TOLERATED:
            name, ahead = lease["metadata"]["name"], text.duration(renewed - server)
            fix = "synchronize the clocks of the nodes, such as with chrony: timers and schedules depend on them"
            return failed("Clocks", f"The clock of operator `{name}` is {ahead} ahead of the API server's", fix)
    if abs(skew) > _TOLERATED:
        how = "ahead of" if skew > timedelta(0) else "behind"
        message = f"The clock of this machine is {text.duration(abs(skew))} {how} that of the API server"
        return warning("Clocks", message, "synchronize this machine's clock: ages and durations are wrong")
    return ok("Clocks", "The clocks differ by less than 2 seconds")


_APPS = "/apis/apps/v1"
_OPERATOR_VARIABLE = "PERDURE_NAMESPACE"
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


async def find_deployment(api: Diagnosis, namespace: str) -> OperatorDeployment | None:
    """Find the operator's Deployment in a namespace; None if there is none."""
    url = paths.path(_APPS, namespace, "deployments")
    found = await api.list(url, labelSelector="app.kubernetes.io/component=operator")
    read = (_read(each) for each in found)
    return next((deployment for deployment in read if _OPERATOR_VARIABLE in deployment.environment), None)


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
