"""Checks for stuck work: runs, pods of activities, and invalid definitions and Schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from perdure.api.labels import RUN_ID_LABEL
from perdure.api.reasons import ConditionReason, ConditionType
from perdure.cli.doctor.findings import counted, failed, ok, some
from perdure.cli.selection import created, phase_of
from perdure.kube import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from perdure.cli.doctor.findings import CheckResult
    from perdure.client.diagnosis import Diagnosis
    from perdure.client.requests import Object

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


async def runs(api: Diagnosis, namespace: str | None, now: datetime) -> CheckResult:
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
    from perdure.view import text

    condition = _condition(run, ConditionType.SUCCEEDED)
    reason = condition.get("reason", "")
    if reason in _BLOCKED:
        return f"{reason}: {condition.get('message', '')}"
    age = now - created(run)
    if phase_of(run) == "Pending" and reason not in _ON_PURPOSE and age > _PATIENCE:
        seen = f"reason {reason}" if reason else "no operator has seen it"
        return f"has been pending for {text.age(age)} ({seen})"
    return ""


async def ready(api: Diagnosis, check: str, plural: str, namespace: str | None) -> CheckResult:
    """Check that all objects of a kind that has the condition `Ready` are ready."""
    found = await api.list(paths.path(paths.PERDURE, namespace, plural))
    unready = []
    for each in found:
        condition = _condition(each, ConditionType.READY)
        # A Schedule without further times has done its work.
        if condition.get("status") == "False" and condition.get("reason") != ConditionReason.NO_MORE_TIMES:
            unready.append(f"{_name(each, namespace)} {condition.get('reason')}: {condition.get('message', '')}")
    if unready:
        message = f"{len(unready)} of {len(found)} cannot be used: {some(unready)}"
        return failed(check, message, "fix the spec as the message says; `kubectl describe` shows the whole condition")
    return ok(check, f"{len(found)}, all ready" if found else "None")


async def pods(api: Diagnosis, namespace: str | None, now: datetime) -> CheckResult:
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
    from perdure.view import text

    for pod in pods:
        scheduled = _condition(pod, "PodScheduled")
        age = now - created(pod)
        if scheduled.get("status") == "False" and age > _PATIENCE:
            yield f"{_name(pod, namespace)} for {text.age(age)}: {scheduled.get('message') or scheduled.get('reason')}"


def _condition(obj: Object, kind: str) -> Object:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def _name(obj: Object, namespace: str | None) -> str:
    meta = obj["metadata"]
    return f"`{meta['name']}`" if namespace else f"`{meta['namespace']}/{meta['name']}`"
