"""What the status of a WorkerDeployment says: what each version does, and the conditions. Pure."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.api.json_values import mappings
from perdure.api.kinds.status import read_conditions, set_condition
from perdure.api.kinds.workerdeployment import (
    MAX_VERSIONS,
    Routing,
    VersionPhase,
    WorkerDeploymentSpec,
    WorkerDeploymentStatus,
    WorkerVersionStatus,
)
from perdure.api.names import worker_version_name
from perdure.api.reasons import ConditionReason, ConditionType
from perdure.api.times import format_time, parse_time
from perdure.runtime.workers.plan import Facts, Plan, Version, next_step
from perdure.runtime.workers.versions import KubeObject, selector

UNVERSIONED_AFTER: Final = timedelta(minutes=1)
"""Pods that are ready for so long without a poll of their version run workers that are not versioned, or poll other queues."""
_LONGEST: Final = 1000
"""Maximum length of the message of a version, in characters."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a condition holds, and why."""

    holds: bool
    reason: ConditionReason
    message: str


def phase_of(version: Version, facts: Facts) -> VersionPhase:
    """What a version does."""
    if version.build_id == facts.current:
        return VersionPhase.CURRENT
    if version.build_id == facts.ramping:
        return VersionPhase.RAMPING
    if version.deactivated:
        return VersionPhase.DRAINED if version.drained and not version.open_runs else VersionPhase.DRAINING
    return VersionPhase.INACTIVE if version.registered else VersionPhase.STARTING


def problem_of(version: Version, spec: WorkerDeploymentSpec, now: datetime) -> str:
    """Why the pods of a version do not serve its task queues; empty if they do, or are about to."""
    deployed = version.deployed
    if deployed is None or deployed.problem:
        return "" if deployed is None else deployed.problem
    if not version.registered and deployed.ready and now - deployed.created >= UNVERSIONED_AFTER:
        queues = ", ".join(f"`{each}`" for each in spec.task_queues)
        return (
            f"its pods are ready, but its workers have not polled all of {queues}. They must pass TEMPORAL_DEPLOYMENT_NAME and "
            "TEMPORAL_WORKER_BUILD_ID to the SDK, as a versioned worker"
        )
    return ""


def ready(spec: WorkerDeploymentSpec, target: Version, facts: Facts, now: datetime) -> Verdict:
    """Whether workers serve the task queues, or start as soon as a task waits."""
    version = facts.versions.get(facts.current) or target
    build = version.build_id
    problem = problem_of(version, spec, now)
    pods = version.deployed
    if problem and (pods is None or not pods.ready or not version.registered):
        return Verdict(False, ConditionReason.WORKERS_FAILING, f"Version `{build}`: {problem}")
    if build != facts.current:
        return Verdict(False, ConditionReason.WORKERS_STARTING, f"No version gets runs yet; version `{build}` starts")
    if pods is None:
        return Verdict(
            True, ConditionReason.SERVING, f"Version `{build}` gets new runs; its pods are not of this object"
        )
    if not pods.replicas:
        message = f"Version `{build}` gets new runs; it has no pods, and the next task starts one"
        return Verdict(True, ConditionReason.IDLE, message)
    message = f"Version `{build}` gets new runs; {pods.ready} of {pods.replicas} pods are ready"
    return Verdict(True, ConditionReason.SERVING, message)


def rolled_out(
    spec: WorkerDeploymentSpec, target: Version, facts: Facts, now: datetime, refused: str = "", waits: str = ""
) -> Verdict:
    """Whether the version in the spec gets all new runs.

    Args:
        spec: The spec.
        target: The version in it.
        facts: What exists.
        now: The time.
        refused: Why the last change of the routing was refused; empty if it was not.
        waits: Why the version has no Deployment yet; empty if it has one, or gets one now.
    """
    build = target.build_id
    if facts.current == build and facts.ramping is None:
        return Verdict(True, ConditionReason.ROLLED_OUT, f"Version `{build}` gets all new runs")
    if waits:
        return Verdict(False, ConditionReason.WORKERS_STARTING, f"Version `{build}`: {waits}")
    if problem := problem_of(target, spec, now):
        return Verdict(False, ConditionReason.WORKERS_FAILING, f"Version `{build}`: {problem}")
    if not target.registered:
        return Verdict(False, ConditionReason.WORKERS_STARTING, f"Version `{build}`: its workers have not polled yet")
    if refused:
        return Verdict(False, ConditionReason.ROUTING_REFUSED, f"Version `{build}` cannot get new runs: {refused}")
    if facts.ramping:
        share = f"Version `{facts.ramping}` gets {facts.percentage:g}% of the new runs"
        step = next_step(spec, facts) if spec.versioning.routing is Routing.AUTOMATIC else None
        until = f" until {format_time(step)}" if step is not None and facts.ramping == build else ""
        return Verdict(False, ConditionReason.RAMPING, share + until)
    message = f"Version `{build}` is ready; route new runs to it with `perdure deployment set-current`"
    return Verdict(False, ConditionReason.ROUTING_MANUAL, message)


def drained_times(status: Mapping[str, Any]) -> dict[str, datetime]:
    """Since when no open run is pinned to versions, by build ID, as a status says."""
    found = {}
    for each in mappings(status.get("versions")):
        with suppress(ValueError, TypeError):
            found[str(each["buildId"])] = parse_time(each["drainedTime"]) if "drainedTime" in each else None
    return {build: time for build, time in found.items() if time is not None}


def conditions(obj: KubeObject, verdicts: dict[ConditionType, Verdict], now: datetime) -> list[dict[str, Any]]:
    """The conditions of a WorkerDeployment with these verdicts; others are left out."""
    found = [each for each in read_conditions(obj.get("status") or {}) if each.type in verdicts]
    generation = obj["metadata"].get("generation", 1)
    for kind, each in verdicts.items():
        found = set_condition(
            found, kind, each.holds, each.reason, each.message, now=now, observed_generation=generation
        )
    return [each.dump() for each in found]


def status(
    obj: KubeObject,
    spec: WorkerDeploymentSpec,
    facts: Facts,
    plan: Plan,
    verdicts: dict[ConditionType, Verdict],
    now: datetime,
) -> dict[str, Any]:
    """The status of a WorkerDeployment."""
    name, current = obj["metadata"]["name"], facts.versions.get(facts.current)
    shown = [each for each in facts.versions.values() if each.deployed is not None and each.build_id not in plan.remove]
    shown.sort(key=lambda each: each.deployed.created if each.deployed is not None else now, reverse=True)
    made = WorkerDeploymentStatus(
        observed_generation=obj["metadata"].get("generation", 1),
        current_build_id=facts.current if current is not None else None,
        ramping_build_id=facts.ramping or None,
        ramping_percentage=round(facts.percentage) if facts.ramping else None,
        replicas=current.deployed.replicas if current is not None and current.deployed is not None else 0,
        ready_replicas=sum(each.deployed.ready for each in shown if each.deployed is not None),
        selector=_selector(name, facts.current) if current is not None else None,
        versions=_versions(name, shown[:MAX_VERSIONS], spec, facts, plan, now),
    )
    return {**made.dump(), "conditions": conditions(obj, verdicts, now)}


def _selector(name: str, build: str) -> str:
    return ",".join(f"{label}={value}" for label, value in selector(name, build).items())


def _versions(
    name: str, shown: Sequence[Version], spec: WorkerDeploymentSpec, facts: Facts, plan: Plan, now: datetime
) -> list[WorkerVersionStatus]:
    found = []
    for version in shown:
        deployed, build = version.deployed, version.build_id
        if deployed is None:
            continue
        wanted = plan.replicas.get(build)
        old = build not in {facts.current, facts.ramping} and version.deactivated
        found.append(
            WorkerVersionStatus(
                build_id=build,
                phase=phase_of(version, facts),
                deployment=worker_version_name(name, build),
                replicas=deployed.replicas if wanted is None else wanted,
                ready_replicas=deployed.ready,
                open_runs=version.open_runs if old else None,
                drained_time=plan.drained.get(build),
                message=problem_of(version, spec, now)[:_LONGEST] or None,
            )
        )
    return found
