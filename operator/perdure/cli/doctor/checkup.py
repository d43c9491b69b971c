"""All checks, in the order in which one problem explains the next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from perdure.api.labels import FLEET_LABEL
from perdure.cli.doctor import installation, operators, permissions, stuck_work
from perdure.cli.doctor.findings import CheckResult, Result, unknown
from perdure.client.errors import ForbiddenError
from perdure.kube import clock, paths

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from perdure.cli.doctor.operators import OperatorDeployment
    from perdure.client.diagnosis import Diagnosis
    from perdure.client.requests import Object


async def check_all(api: Diagnosis, *, system: str, everywhere: bool) -> list[CheckResult]:
    """Run all checks.

    Args:
        api: Reads the data for the checks.
        system: The namespace of the operator.
        everywhere: Whether to check all namespaces.

    Raises:
        CliError: The API server does not respond.
    """
    namespace = None if everywhere else api.namespace
    served = await _explained("CRDs", installation.kinds(api))
    try:
        operator, hidden = await operators.find_deployment(api, system), False
    except ForbiddenError as error:
        operator, hidden = None, True
        operator_check = unknown("Operator", error)
    else:
        operator_check = await _explained("Operator", operators.pods(api, operator, system))
    url = paths.path(paths.COORDINATION, system, "leases")
    leases = asyncio.ensure_future(api.list(url, labelSelector=FLEET_LABEL))
    checks: list[Awaitable[CheckResult]] = [_explained("Versions", _versions(api, operator, leases))]
    if not hidden:
        checks.append(_explained("Fleet", _fleet(api, operator, leases)))
    checks.append(_explained("Clocks", _clocks(api, leases)))
    if operator is not None:
        checks.append(_explained("Operator permissions", permissions.of_operator(api, operator)))
        checks.append(_explained("Admission policies", installation.policies(api, operator)))
        checks.append(_explained("Namespace", operators.check_namespace(operator, namespace)))
    checks.append(_explained("Your permissions", permissions.of_caller(api, namespace)))
    if served.result is Result.OK:
        checks += _of_work(api, namespace)
    first = await _explained("API server", installation.api_server(api))
    return [first, served, operator_check, *await asyncio.gather(*checks)]


def _of_work(api: Diagnosis, namespace: str | None) -> Iterator[Awaitable[CheckResult]]:
    """Yield the checks of runs and their prerequisites. `namespace`: None for all."""
    now = clock.now()
    yield _explained("Runs", stuck_work.runs(api, namespace, now))
    for check in ("Workflows", "RetryPolicies", "WorkflowLimits", "Webhooks", "Schedules"):
        yield _explained(check, stuck_work.ready(api, check, check.lower(), namespace))
    yield _explained("Pods", stuck_work.pods(api, namespace, now))


async def _versions(
    api: Diagnosis, operator: OperatorDeployment | None, leases: Awaitable[Sequence[Object]]
) -> CheckResult:
    try:
        found = await leases
    except ForbiddenError:
        found = ()  # the chart says which version it has installed
    return await installation.versions(api, operator, found)


async def _fleet(
    api: Diagnosis, operator: OperatorDeployment | None, leases: Awaitable[Sequence[Object]]
) -> CheckResult:
    return await operators.fleet(api, operator, await leases)


async def _clocks(api: Diagnosis, leases: Awaitable[Sequence[Object]]) -> CheckResult:
    try:
        found = await leases
    except ForbiddenError:
        found = ()  # the clock of this machine can still be checked
    return await operators.clocks(api, found)


async def _explained(check: str, finding: Awaitable[CheckResult]) -> CheckResult:
    """Run a check; without permission its result is unknown."""
    try:
        return await finding
    except ForbiddenError as error:
        return unknown(check, error)
