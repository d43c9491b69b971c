"""Checks the permissions of the caller and of the operator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from perdure.cli.doctor.findings import counted, failed, ok, warning

if TYPE_CHECKING:
    from perdure.cli.doctor.findings import CheckResult
    from perdure.cli.doctor.operators import OperatorDeployment
    from perdure.client.diagnosis import Diagnosis
    from perdure.client.requests import Object


class _Right(NamedTuple):
    verb: str
    resource: str
    group: str = "perdure.dev"

    def attributes(self, namespace: str) -> Object:
        resource, _, sub = self.resource.partition("/")
        attributes = {"namespace": namespace, "verb": self.verb, "group": self.group, "resource": resource}
        return {**attributes, "subresource": sub} if sub else attributes

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


_TO_READ = (
    _Right("list", "workflowruns"),
    _Right("list", "schedules"),
    _Right("list", "workflows"),
    _Right("list", "pods", ""),
    _Right("get", "pods/log", ""),
)
_TO_CHANGE = (
    _Right("create", "workflowruns"),
    _Right("delete", "workflowruns"),
    _Right("create", "operations"),
    _Right("create", "schedules"),
)
_RECONCILED = (
    "workflows",
    "workflowruns",
    "schedules",
    "retrypolicies",
    "workflowlimits",
    "webhooks",
    "operations",
)
"""The kinds that the operator watches and whose statuses it writes."""
_OF_OPERATOR = (
    *(_Right("watch", kind) for kind in _RECONCILED),
    *(_Right("update", f"{kind}/status") for kind in (*_RECONCILED, "deadletters")),
    *(_Right(verb, "workflowruns") for verb in ("create", "patch", "delete")),
    _Right("create", "historysegments"),
    _Right("create", "payloads"),
    *(_Right(verb, "artifactsets") for verb in ("list", "create", "patch", "delete")),
    *(_Right(verb, "cachedresults") for verb in ("get", "list", "create", "delete")),
    _Right("create", "deadletters"),
    *(_Right(verb, "pods", "") for verb in ("watch", "create", "patch", "delete")),
    *(_Right(verb, "persistentvolumeclaims", "") for verb in ("list", "create", "patch", "delete")),
    *(_Right(verb, "leases", "coordination.k8s.io") for verb in ("get", "create", "patch")),
    _Right("create", "events", "events.k8s.io"),
)


async def of_caller(api: Diagnosis, namespace: str | None) -> CheckResult:
    """Check the permissions of the caller in a namespace; None for all."""
    check, where = "Your permissions", f"in {_namespace_text(namespace)}"
    rights = (*_TO_READ, *_TO_CHANGE)
    allowed = await asyncio.gather(*(api.allows(right.attributes(namespace or "")) for right in rights))
    missing = [right for right, granted in zip(rights, allowed, strict=True) if not granted]
    named = ", ".join(map(str, missing))
    if set(missing) & set(_TO_READ):
        return failed(check, f"You cannot {named} {where}", "ask your administrator for the role `view` or `edit`")
    if missing:
        fix = "ask your administrator for the role `edit`, or `perdure-on-call` to create Operations only"
        return warning(check, f"You can read, but not {named} {where}", fix)
    return ok(check, f"You can read and change runs and Schedules {where}")


async def of_operator(api: Diagnosis, deployment: OperatorDeployment) -> CheckResult:
    """Check the permissions of the operator in the namespaces that it serves."""
    check = "Operator permissions"
    places = deployment.watched or ("",)
    checks = [(place, right) for place in places for right in _OF_OPERATOR]
    allowed = await asyncio.gather(
        *(
            api.allows(right.attributes(place), user=deployment.user, groups=deployment.groups)
            for place, right in checks
        )
    )
    missing = [
        f"{right} in {_namespace_text(place)}"
        for (place, right), granted in zip(checks, allowed, strict=True)
        if not granted
    ]
    if missing:
        fix = "set `rbac.create` in the chart, or grant the rules of charts/perdure/templates/rbac-operator.yaml"
        return failed(check, f"`{deployment.user}` cannot {', '.join(missing)}", fix)
    where = ", ".join(f"`{place}`" for place in deployment.watched) or "all namespaces"
    return ok(check, f"{counted(len(_OF_OPERATOR), 'permission')} in {where}")


def _namespace_text(namespace: str | None) -> str:
    return f"namespace `{namespace}`" if namespace else "all namespaces"
