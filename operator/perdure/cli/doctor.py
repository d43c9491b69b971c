"""The checks of `perdure doctor`. Each reads a few objects and returns one finding: what it saw, and the fix if it did not pass.

`check_all` has them in the order in which one problem explains the next. A check that the user has no permission for is unknown.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from perdure import __version__
from perdure.api.labels import API_VERSION, FLEET_LABEL, RUN_ID_LABEL, UPGRADE_RECORD_LABEL
from perdure.api.reasons import ConditionReason, ConditionType
from perdure.api.times import read_kubernetes_time
from perdure.client.errors import ForbiddenError
from perdure.client.selection import created, phase_of
from perdure.kube import clock, paths
from perdure.lazy import lazily

with lazily():
    from rich import text as rich_text

    from perdure.controller import namespaces
    from perdure.view import fleet
    from perdure.view import text as view_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator, Sequence
    from datetime import datetime

    from rich.text import Text

    from perdure.client.cluster import Diagnosis
    from perdure.client.requests import Object
    from perdure.view.page import Page

_MAX_NAMED = 3


class Result(StrEnum):
    """The result of a check."""

    OK = "OK"
    WARNING = "Warning"
    """The check passed, but someone should review the finding."""
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    """The user has no permission for the check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The finding of a check."""

    check: str
    result: Result
    message: str
    fix: str = ""
    """The fix; empty if the result is `OK`."""

    def as_json(self) -> dict[str, str]:
        """Return the finding as JSON."""
        fix = {"fix": self.fix} if self.fix else {}
        return {"check": self.check, "result": str(self.result), "message": self.message, **fix}


def ok(check: str, message: str) -> CheckResult:
    """Return the finding of a check that passed."""
    return CheckResult(check=check, result=Result.OK, message=message)


def failed(check: str, message: str, fix: str) -> CheckResult:
    """Return the finding of a check that failed."""
    return CheckResult(check=check, result=Result.FAILED, message=message, fix=fix)


def warning(check: str, message: str, fix: str) -> CheckResult:
    """Return a finding that someone should review."""
    return CheckResult(check=check, result=Result.WARNING, message=message, fix=fix)


def unknown(check: str, error: ForbiddenError) -> CheckResult:
    """Return the finding of a check that the user has no permission for."""
    message = str(error.__cause__ or error)
    return CheckResult(check=check, result=Result.UNKNOWN, message=message, fix="ask a cluster administrator to run it")


def counted(number: int, singular: str, plural: str = "") -> str:
    """Write a number with its noun, such as `1 run` or `2 runs`."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def some(texts: Sequence[str]) -> str:
    """Write the first few texts, and the number of further ones."""
    more = len(texts) - _MAX_NAMED
    return "; ".join(texts[:_MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")


# All checks


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
    served = await _explained("CRDs", check_crds(api))
    try:
        operator, hidden = await find_deployment(api, system), False
    except ForbiddenError as error:
        operator, hidden = None, True
        operator_check = unknown("Operator", error)
    else:
        operator_check = await _explained("Operator", check_operator(api, operator, system))
    url = paths.path(paths.COORDINATION, system, "leases")
    leases = asyncio.ensure_future(api.list(url, labelSelector=FLEET_LABEL))
    checks: list[Awaitable[CheckResult]] = [_explained("Versions", check_versions(api, operator, leases))]
    if not hidden:
        checks.append(_explained("Fleet", check_fleet(api, operator, leases)))
        checks.append(_explained("State version", check_upgrade(api, system, leases)))
    checks.append(_explained("Clocks", check_clocks(api, leases)))
    if operator is not None:
        if operator.environment.get("PERDURE_FRONTEND_USER"):
            checks.append(_explained("Frontends", check_frontends(api, operator)))
        checks.append(_explained("Operator permissions", check_operator_permissions(api, operator)))
        checks.append(_explained("Admission policies", check_policies(api, operator)))
        checks.append(_explained("Namespace", check_namespace(operator, namespace)))
    checks.append(_explained("Your permissions", check_caller(api, namespace)))
    if served.result is Result.OK:
        checks += _of_work(api, namespace)
    first = await _explained("API server", check_api_server(api))
    return [first, served, operator_check, *await asyncio.gather(*checks)]


def _of_work(api: Diagnosis, namespace: str | None) -> Iterator[Awaitable[CheckResult]]:
    """Yield the checks of runs and their prerequisites. `namespace`: None for all."""
    now = clock.now()
    yield _explained("Runs", check_runs(api, namespace, now))
    for check in (
        "Workflows",
        "RetryPolicies",
        "WorkflowLimits",
        "WorkflowDefaults",
        "Webhooks",
        "WorkerDeployments",
        "Schedules",
    ):
        yield _explained(check, check_ready(api, check, check.lower(), namespace))
    yield _explained("Pods", check_pods(api, namespace, now))


async def _explained(check: str, finding: Awaitable[CheckResult]) -> CheckResult:
    """Run a check; without permission its result is unknown."""
    try:
        return await finding
    except ForbiddenError as error:
        return unknown(check, error)


# The API server, the kinds, and the admission policies


_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_MIN_VERSION = (1, 32)
_UPGRADE = (
    "install the CRDs of this version: `helm upgrade` with `crds.enabled`, or `kubectl apply --server-side -f crds/`"
)


async def check_api_server(api: Diagnosis) -> CheckResult:
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


async def check_crds(api: Diagnosis) -> CheckResult:
    """Check that the API server serves all kinds."""
    served = await api.read(paths.PERDURE) or {}
    names = {str(each["name"]) for each in served.get("resources") or ()}
    missing = sorted(paths.PLURALS - names)
    if missing:
        what = f"no kind of {API_VERSION}" if paths.PLURALS.isdisjoint(names) else f"no {', '.join(missing)}"
        return failed("CRDs", f"The API server serves {what}", _UPGRADE)
    without_status = sorted(kind for kind in ("workflowruns", "schedules") if f"{kind}/status" not in names)
    if without_status:
        return failed("CRDs", f"No status subresource for {', '.join(without_status)}", _UPGRADE)
    return ok("CRDs", f"{counted(len(paths.PLURALS), 'kind')} of {API_VERSION}")


async def check_versions(
    api: Diagnosis, deployment: OperatorDeployment | None, leases: Awaitable[Sequence[Object]]
) -> CheckResult:
    """Check that the CRDs, the chart, the operators, and this command are the same build.

    Args:
        api: Reads the CRDs.
        deployment: The Deployment of the operator, if it was found. Its version is that of the chart.
        leases: Reads the Leases of operators that share the work, which name the build that each of them runs.
    """
    installed = await crd_versions(api)
    chart = deployment.version if deployment else ""
    try:
        found = await leases
    except ForbiddenError:
        found = ()  # the chart says which version it has installed
    members = fleet.members_of(found, api.server_time() or clock.now())
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


async def check_policies(api: Diagnosis, deployment: OperatorDeployment) -> CheckResult:
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
        only_warns = (policy.get("spec") or {}).get("failurePolicy") == "Ignore"
        action, does = ("Warn", "warns of") if only_warns else ("Deny", "denies")
        if action not in bound.get(name, ()):
            problems.append(f"`{name}` {does} nothing: no binding has the action {action}")
        elif warnings := ((policy.get("status") or {}).get("typeChecking") or {}).get("expressionWarnings"):
            problems.append(f"`{name}` does not compile: {warnings[0].get('warning', '')}")
    if problems:
        return failed(check, some(problems), f"reinstall the chart: `helm upgrade {deployment.release}`")
    return ok(check, f"{counted(len(found), 'policy', 'policies')}, all bound")


# The operator: its Deployment and pods, its Leases, the namespaces that it serves, and its clock


_APPS = "/apis/apps/v1"
_COMPONENT = "app.kubernetes.io/component"
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
    found = await api.list(url, labelSelector=f"{_COMPONENT}=operator")
    read = (_deployment_of(each) for each in found)
    return next((deployment for deployment in read if _OPERATOR_VARIABLE in deployment.environment), None)


def _deployment_of(obj: Object) -> OperatorDeployment:
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


async def check_operator(api: Diagnosis, deployment: OperatorDeployment | None, system: str) -> CheckResult:
    """Check that the pods of the operator are ready."""
    if deployment is None:
        return failed(
            "Operator",
            f"There is no operator in namespace `{system}`",
            "install the chart, or name the operator's namespace with --system-namespace",
        )
    return await _check_ready(api, "Operator", deployment)


async def check_frontends(api: Diagnosis, operator: OperatorDeployment) -> CheckResult:
    """Check that the pods are ready that serve Temporal SDKs for the operators."""
    check = "Frontends"
    url = paths.path(_APPS, operator.namespace, "deployments")
    listed = await api.list(url, labelSelector=f"{_COMPONENT}=frontend")
    found = [each for each in listed if (each["metadata"].get("labels") or {}).get(_COMPONENT) == "frontend"]
    if not found:
        fix = f"`helm upgrade {operator.release}` creates it, or set `frontend.replicas` to 0"
        return failed(
            check, "No Deployment of frontends exists, but the operators rely on it to serve Temporal SDKs", fix
        )
    return await _check_ready(api, check, _deployment_of(found[0]))


async def _check_ready(api: Diagnosis, check: str, deployment: OperatorDeployment) -> CheckResult:
    ready = f"{deployment.ready} of {counted(deployment.wanted, 'pod')} ready"
    if deployment.ready >= deployment.wanted > 0:
        return ok(check, ready)
    if not deployment.wanted:
        fix = f"`kubectl -n {deployment.namespace} scale deployment/{deployment.name} --replicas=1`"
        return failed(check, f"Deployment `{deployment.name}` is scaled to 0 pods", fix)
    found = await api.list(paths.path(paths.CORE, deployment.namespace, "pods"), labelSelector=deployment.selector)
    why = some([problem for pod in found if (problem := _problem(pod))])
    fix = (
        f"`kubectl -n {deployment.namespace} describe pods -l {deployment.selector}` and "
        f"`kubectl -n {deployment.namespace} logs deployment/{deployment.name}` show more"
    )
    return (warning if deployment.ready else failed)(check, f"{ready}{f': {why}' if why else ''}", fix)


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


async def check_fleet(
    api: Diagnosis, deployment: OperatorDeployment | None, leases: Awaitable[Sequence[Object]]
) -> CheckResult:
    """Check that the operators that share the work renew their Leases and agree."""
    found = await leases
    if deployment is not None and not deployment.environment.get("PERDURE_FLEET"):
        return ok("Fleet", "A single operator does all the work")
    members = fleet.members_of(found, api.server_time() or clock.now())
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


async def check_upgrade(api: Diagnosis, system: str, leases: Awaitable[Sequence[Object]]) -> CheckResult:
    """Check that the operators store objects in the newest form that they know."""
    now = api.server_time() or clock.now()
    members = fleet.members_of(await leases, now)
    records = await api.list(paths.path(paths.CORE, system, "configmaps"), labelSelector=UPGRADE_RECORD_LABEL)
    if not records:
        fix = "the operator writes it when it has started; its log says why it cannot"
        return warning(
            "State version", f"No operator has recorded in namespace `{system}` which state version it writes", fix
        )
    lines = fleet.upgrade_lines(members, records, now)
    if any(fleet.behind(fleet.of_record(members, each))[1] for each in records):
        fix = "`kubectl rollout status` shows the progress of the upgrade; operators of two versions should not run for long"
        return warning("State version", " ".join(lines), fix)
    return ok("State version", " ".join(lines).rstrip("."))


async def check_namespace(deployment: OperatorDeployment, namespace: str | None) -> CheckResult:
    """Check that the operator serves a namespace; None: only say which ones it serves."""
    if namespace is None:
        which = ", ".join(f"`{each}`" for each in deployment.watched)
        excluded = ", ".join(f"`{each}`" for each in deployment.excluded)
        named = f"the namespaces {which}" if which else "all namespaces"
        return ok("Namespace", f"The operator serves {named}{f', except {excluded}' if excluded else ''}")
    if namespace in namespaces.ServedNamespaces(deployment.watched, deployment.excluded):
        return ok("Namespace", f"The operator serves namespace `{namespace}`")
    return failed(
        "Namespace",
        f"The operator does not serve namespace `{namespace}`, so its runs do not start",
        "change `watchNamespaces` or `excludeNamespaces` in the chart, or choose another namespace with -n",
    )


_TOLERATED = timedelta(seconds=2)
"""The allowed difference of clocks: times in HTTP headers are in whole seconds."""


async def check_clocks(api: Diagnosis, leases: Awaitable[Sequence[Object]]) -> CheckResult:
    """Compare the clocks of this machine and of the operators with the clock of the API server."""
    try:
        found = await leases
    except ForbiddenError:
        found = ()  # the clock of this machine can still be checked
    skew = await api.skew()
    server = api.server_time()
    if skew is None or server is None:
        return warning("Clocks", "The API server does not send its time", "compare the clocks of the nodes with `date`")
    for lease in found:
        renewed = read_kubernetes_time((lease.get("spec") or {}).get("renewTime"))
        if renewed is not None and renewed - server > _TOLERATED:
            name, ahead = lease["metadata"]["name"], view_text.duration(renewed - server)
            fix = "synchronize the clocks of the nodes, such as with chrony: timers and schedules depend on them"
            return failed("Clocks", f"The clock of operator `{name}` is {ahead} ahead of the API server's", fix)
    if abs(skew) > _TOLERATED:
        how = "ahead of" if skew > timedelta(0) else "behind"
        message = f"The clock of this machine is {view_text.duration(abs(skew))} {how} that of the API server"
        return warning("Clocks", message, "synchronize this machine's clock: ages and durations are wrong")
    return ok("Clocks", "The clocks differ by less than 2 seconds")


# The permissions of the user and of the operator


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
_OF_OPERATOR = (
    *(_Right("watch", kind) for kind in paths.WATCHED),
    *(_Right("update", f"{kind}/status") for kind in (*paths.WATCHED, "deadletters")),
    *(_Right(verb, "workflowruns") for verb in ("create", "patch", "delete")),
    _Right("create", "historysegments"),
    _Right("create", "payloads"),
    *(_Right(verb, "artifactsets") for verb in ("list", "create", "patch", "delete")),
    *(_Right(verb, "workflowrevisions") for verb in ("get", "list", "create", "patch", "delete")),
    *(_Right(verb, "cachedresults") for verb in ("get", "list", "create", "delete")),
    _Right("create", "deadletters"),
    *(_Right(verb, "pods", "") for verb in ("watch", "create", "patch", "delete")),
    *(_Right(verb, "persistentvolumeclaims", "") for verb in ("list", "create", "patch", "delete")),
    *(_Right(verb, "leases", "coordination.k8s.io") for verb in ("get", "create", "patch")),
    _Right("create", "events", "events.k8s.io"),
)


async def check_caller(api: Diagnosis, namespace: str | None) -> CheckResult:
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


async def check_operator_permissions(api: Diagnosis, deployment: OperatorDeployment) -> CheckResult:
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


# Work that is stuck: runs, pods of activities, and invalid definitions and Schedules


_PATIENCE = timedelta(minutes=2)
"""Runs and pods that have been pending for a shorter time are not stuck."""
_BLOCKED = frozenset(
    {
        ConditionReason.ATTEMPT_NOT_STARTING,
        ConditionReason.CREATE_REFUSED,
        ConditionReason.INTERNAL_ERROR,
        ConditionReason.INVALID_WORKFLOW,
        ConditionReason.LIMIT_NOT_FOUND,
        ConditionReason.NEWER_STATE,
        ConditionReason.NO_WORKER,
        ConditionReason.RETRY_POLICY_NOT_FOUND,
        ConditionReason.REVISION_NOT_FOUND,
        ConditionReason.STATE_DAMAGED,
        ConditionReason.WORKFLOW_NOT_FOUND,
        ConditionReason.WORKFLOW_TASK_FAILED,
    }
)
"""Reasons for which an open run does not continue until someone acts."""
_ON_PURPOSE = frozenset(
    {ConditionReason.LIMIT_REACHED, ConditionReason.START_DELAYED, ConditionReason.WORKFLOW_ID_IN_USE}
)
"""Reasons for which a run may be pending for long."""


async def check_runs(api: Diagnosis, namespace: str | None, now: datetime) -> CheckResult:
    """Check that no open run is stuck. `namespace`: None for all."""
    found = await api.list(paths.path(paths.PERDURE, namespace, "workflowruns"))
    unfinished = [run for run in found if not (run.get("status") or {}).get("completionTime")]
    stuck = [f"{_name(run, namespace)} {why}" for run in unfinished if (why := _why_stuck(run, now))]
    if stuck:
        message = f"{counted(len(stuck), 'run')} of {len(unfinished)} open: {some(stuck)}"
        return failed("Runs", message, "`perdure describe NAME` shows what a run waits for and what to do")
    return ok("Runs", f"{counted(len(unfinished), 'open run')}, none stuck")


def _why_stuck(run: Object, now: datetime) -> str:
    """Return why an open run makes no progress; empty if it does, or may wait."""
    condition = _condition(run, ConditionType.SUCCEEDED)
    reason = condition.get("reason", "")
    if reason in _BLOCKED:
        return f"{reason}: {condition.get('message', '')}"
    age = now - created(run)
    if phase_of(run) == "Pending" and reason not in _ON_PURPOSE and age > _PATIENCE:
        detail = f"reason {reason}" if reason else "no operator has seen it"
        return f"has been pending for {view_text.age(age)} ({detail})"
    return ""


_NOT_ROLLED_OUT = frozenset(
    {ConditionReason.WORKERS_FAILING, ConditionReason.ROUTING_REFUSED, ConditionReason.POD_REFUSED}
)
"""Why a version of workers gets no runs until someone acts."""


async def check_ready(api: Diagnosis, check: str, plural: str, namespace: str | None) -> CheckResult:
    """Check that all objects of a kind that has the condition `Ready` are ready."""
    found = await api.list(paths.path(paths.PERDURE, namespace, plural))
    unready = []
    for each in found:
        condition = _condition(each, ConditionType.READY)
        last = _condition(each, ConditionType.ROLLED_OUT)
        if (
            condition.get("status") == "True"
            and last.get("status") == "False"
            and last.get("reason") in _NOT_ROLLED_OUT
        ):
            condition = last  # its version gets no runs; those of the version before continue
        # A Schedule without further times has done its work.
        if condition.get("status") == "False" and condition.get("reason") != ConditionReason.NO_MORE_TIMES:
            unready.append(f"{_name(each, namespace)} {condition.get('reason')}: {condition.get('message', '')}")
    if unready:
        message = f"{len(unready)} of {len(found)} cannot be used: {some(unready)}"
        return failed(check, message, "fix the spec as the message says; `kubectl describe` shows the whole condition")
    return ok(check, f"{len(found)}, all ready" if found else "None")


async def check_pods(api: Diagnosis, namespace: str | None, now: datetime) -> CheckResult:
    """Check that no pod of an activity has been without a node for long."""
    found = await api.list(
        paths.path(paths.CORE, namespace, "pods"), labelSelector=RUN_ID_LABEL, fieldSelector="status.phase=Pending"
    )
    stuck = list(_waiting(found, namespace, now))
    if stuck:
        fix = "add nodes or lower the activity's requests and node selectors; `kubectl describe pod NAME` shows more"
        return failed("Pods", f"{counted(len(stuck), 'pod')} without a node: {some(stuck)}", fix)
    return ok("Pods", f"{counted(len(found), 'pending pod')}, none waiting long for a node")


def _waiting(pods: Iterable[Object], namespace: str | None, now: datetime) -> Iterator[str]:

    for pod in pods:
        scheduled = _condition(pod, "PodScheduled")
        age = now - created(pod)
        if scheduled.get("status") == "False" and age > _PATIENCE:
            yield f"{_name(pod, namespace)} for {view_text.age(age)}: {scheduled.get('message') or scheduled.get('reason')}"


def _condition(obj: Object, kind: str) -> Object:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def _name(obj: Object, namespace: str | None) -> str:
    meta = obj["metadata"]
    return f"`{meta['name']}`" if namespace else f"`{meta['namespace']}/{meta['name']}`"


# Output


_RESULT_WIDTH = 9
_INDENT = " " * 13


def finding_lines(findings: Sequence[CheckResult], page: Page) -> Iterator[Text]:
    """Show findings.

    Args:
        findings: The findings.
        page: The page for the output.

    Yields:
        Lines.
    """
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        status = page.status(finding.result)
        status.pad_right(_RESULT_WIDTH + 2 - len(status))
        yield rich_text.Text.assemble(
            status, f"{view_text.pad(finding.check, width)}  {view_text.one_line(finding.message)}"
        )
        if finding.fix:
            yield rich_text.Text(f"{_INDENT}Fix: {view_text.one_line(finding.fix)}", style="dim")
