"""Checks the installation of Perdure: its kinds, its admission policies, and the version of each part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure import __version__
from perdure.cli.doctor.findings import CheckResult, counted, failed, ok, some, warning
from perdure.kube import clock, paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.cli.doctor.operators import OperatorDeployment
    from perdure.client.diagnosis import Diagnosis
    from perdure.client.requests import Object

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_MIN_VERSION = (1, 32)
_UPGRADE = (
    "install the CRDs of this version: `helm upgrade` with `crds.enabled`, or `kubectl apply --server-side -f crds/`"
)


async def api_server(api: Diagnosis) -> CheckResult:
    """Check that the API server responds and is new enough."""
    version = await api.read("/version") or {}
    try:
        found = int(version["major"]), int(str(version["minor"]).rstrip("+"))
    except (KeyError, ValueError):
        return warning("API server", "It does not report its version", "check that it is Kubernetes 1.32 or later")
    name = str(version.get("gitVersion") or f"{found[0]}.{found[1]}")
    if found < _MIN_VERSION:
        return failed("API server", f"Kubernetes {name} is too old", "upgrade the cluster to Kubernetes 1.32 or later")
    return ok("API server", f"Kubernetes {name}")


async def kinds(api: Diagnosis) -> CheckResult:
    """Check that the API server serves all kinds."""
    served = await api.read(paths.PERDURE) or {}
    names = {str(each["name"]) for each in served.get("resources") or ()}
    missing = sorted(paths.PLURALS - names)
    if missing:
        what = "no kind of perdure.dev/v1alpha1" if paths.PLURALS.isdisjoint(names) else f"no {', '.join(missing)}"
        return failed("CRDs", f"The API server serves {what}", _UPGRADE)
    without_status = sorted(kind for kind in ("workflowruns", "schedules") if f"{kind}/status" not in names)
    if without_status:
        return failed("CRDs", f"No status subresource for {', '.join(without_status)}", _UPGRADE)
    return ok("CRDs", f"{counted(len(paths.PLURALS), 'kind')} of perdure.dev/v1alpha1")


async def versions(api: Diagnosis, deployment: OperatorDeployment | None, leases: Sequence[Object] = ()) -> CheckResult:
    """Check that the CRDs, the chart, the operators, and this command are the same build.

    Args:
        api: Reads the CRDs.
        deployment: The Deployment of the operator, if it was found. Its version is that of the chart.
        leases: The Leases of operators that share the work, which name the build that each of them runs.
    """
    from perdure.view.fleet import members_of

    installed = await crd_versions(api)
    chart = deployment.version if deployment else ""
    members = members_of(leases, api.server_time() or clock.now())
    builds = sorted({member.release for member in members if not member.expired} - {""}) or [chart] * bool(chart)
    shown = ", ".join(builds) or "unknown"
    text = f"command {__version__}, operator {shown}, CRDs {', '.join(installed) or 'without a version'}"
    if len(builds) > 1:
        fix = "wait until `kubectl rollout status` of the operator ends; if it does not, see the check `Operator`"
        return warning("Versions", f"{text}: the operators are different builds", fix)
    for operator in builds:
        if chart and not _same_build(operator, chart):
            fix = f"upgrade the chart to version {operator}, or remove `image.tag` and `image.digest` from its values"
            return warning("Versions", f"{text}, chart {chart}: the image is not that of the chart", fix)
        if not all(_same_build(operator, version) for version in installed):
            return warning("Versions", text, _UPGRADE.replace("this version", "the operator's version"))
        if not _same_build(operator, __version__):
            return warning("Versions", text, f"use the command of version {operator}, or upgrade the operator")
    return ok("Versions", text)


def _same_build(one: str, other: str) -> bool:
    """Whether two versions can be the same build: a checkout does not know its commit, all other builds do."""
    (first, _, commit), (second, _, other_commit) = one.partition(".g"), other.partition(".g")
    return first == second and (commit == other_commit or not commit or not other_commit)


async def crd_versions(api: Diagnosis) -> list[str]:
    """Return the versions of the CRDs; a correct installation has only one."""
    named = {f"{kind}.perdure.dev" for kind in paths.PLURALS}
    crds = [each for each in await api.list(_CRDS) if each["metadata"]["name"] in named]
    return sorted({_version(each) for each in crds} - {""})


def _version(obj: Object) -> str:
    return str((obj["metadata"].get("labels") or {}).get("app.kubernetes.io/version", ""))


async def policies(api: Diagnosis, deployment: OperatorDeployment) -> CheckResult:
    """Check that each admission policy of the release compiles and is bound."""
    check = "Admission policies"
    selector = f"app.kubernetes.io/instance={deployment.release},app.kubernetes.io/component=operator"
    where = paths.path(_ADMISSION, None, "validatingadmissionpolicies")
    found = await api.list(where, labelSelector=selector)
    bindings = await api.list(paths.path(_ADMISSION, None, "validatingadmissionpolicybindings"))
    if not found:
        return warning(
            check,
            "None: users and pods can change what only the operator should write",
            "set `runFence.enabled`, `podFence.enabled`, `leaseFence.enabled`, and `definitionFence.enabled` in the chart",
        )
    bound = {each["spec"]["policyName"]: each["spec"].get("validationActions") or () for each in bindings}
    problems = []
    for policy in found:
        name = policy["metadata"]["name"]
        if "Deny" not in bound.get(name, ()):
            problems.append(f"`{name}` denies nothing: no binding has the action Deny")
        elif warnings := ((policy.get("status") or {}).get("typeChecking") or {}).get("expressionWarnings"):
            problems.append(f"`{name}` does not compile: {warnings[0].get('warning', '')}")
    if problems:
        return failed(check, some(problems), f"reinstall the chart: `helm upgrade {deployment.release}`")
    return ok(check, f"{counted(len(found), 'policy', 'policies')}, all bound")
