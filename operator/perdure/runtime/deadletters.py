"""DeadLetters: built from a failed activity, run again as a run of one step, and updated with the result. Pure.

A re-drive is an ordinary WorkflowRun, with attempts, heartbeats, a history, and the same durability.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from perdure.api import labels
from perdure.api.kinds.status import read_conditions, set_condition
from perdure.api.labels import API_VERSION
from perdure.api.names import dead_letter_name, redrive_name
from perdure.api.reasons import ConditionReason, ConditionType
from perdure.api.times import format_time, nearest_duration
from perdure.engine import events as ev
from perdure.engine import failures
from perdure.runtime.attempts import KubeObject, RunRef
from perdure.runtime.chains import continuation_of, reset_of, retry_policy_json
from perdure.runtime.commits import OF_RUNS, edited

STEP: Final = "redrive"
"""Name of the only step of a re-drive."""


def dead_letter(
    run: RunRef,
    marker: ev.MarkerRecorded,
    scheduled: ev.ActivityTaskScheduled | None,
    activities: Sequence[Mapping[str, Any]],
    number: int = 0,
) -> KubeObject:
    """Build the DeadLetter of an activity that has failed permanently.

    Args:
        run: Its run.
        marker: The marker that the run recorded for it.
        scheduled: The event that scheduled it, with its input, timeouts, and retry policy.
        activities: The activities of the run's definition.
        number: Selects the name: 0 at first, increased for each name that another DeadLetter already has.
    """
    details = marker.details if isinstance(marker.details, dict) else {}
    failure = details.get("failure") or {}
    spec: dict[str, Any] = {
        "workflowRun": {"name": run.name, "workflowId": run.workflow_id, "runId": run.uid},
        "step": details.get("step", ""),
        "activity": details.get("activity", ""),
        "failure": failure,
        "attempts": failure.get("attempt", 1),
        "failedTime": format_time(marker.event_time),
    }
    if failure.get("retryState"):
        spec["retryState"] = failure["retryState"]
    if scheduled is not None:
        spec["input"] = scheduled.input
        spec["scheduledTime"] = format_time(scheduled.event_time)
        definition = next((one for one in activities if one.get("name") == scheduled.activity_type), None)
        if definition is not None:
            spec["definition"] = _resolved(definition, scheduled)
    return {
        "apiVersion": API_VERSION,
        "kind": "DeadLetter",
        "metadata": {
            "name": dead_letter_name(run.name, f"{run.uid}/{number}" if number else run.uid, marker.event_id),
            "namespace": run.namespace,
            "labels": {labels.RUN_ID_LABEL: run.uid},
        },
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


def is_same_dead_letter(other: KubeObject, letter: KubeObject) -> bool:
    """Whether a DeadLetter is the expected one and not another with the same name, because a re-drive runs its contents."""
    same = ("workflowRun", "step", "activity", "definition", "input")
    return all(other["spec"].get(field) == letter["spec"].get(field) for field in same)


def _resolved(activity: Mapping[str, Any], scheduled: ev.ActivityTaskScheduled) -> dict[str, Any]:
    """Return the activity with the timeouts and the retry policy from its Scheduled event."""
    lengths = {
        "startToCloseTimeout": scheduled.start_to_close_timeout,
        "scheduleToCloseTimeout": scheduled.schedule_to_close_timeout,
        "scheduleToStartTimeout": scheduled.schedule_to_start_timeout,
        "heartbeatTimeout": scheduled.heartbeat_timeout,
    }
    written = {key: nearest_duration(length) for key, length in lengths.items() if length is not None}
    return {**activity, **written, "retryPolicy": retry_policy_json(scheduled.retry_policy)}


def next_number(letter: KubeObject) -> int:
    """Number of the next re-drive of a DeadLetter, from 1; the status counts all previous ones."""
    redrives: int = (letter.get("status") or {}).get("redrives", 0)
    return redrives + 1


def redrive_run(letter: KubeObject, request_id: str, number: int) -> KubeObject:
    """Build the run that repeats the activity of a DeadLetter. Its name is a lock: each re-drive has one run.

    Args:
        letter: The DeadLetter; it must have no `refusal`.
        request_id: UID of the Operation that requests it.
        number: Number of the re-drive: `next_number`, or a later one if the name is taken.
    """
    meta, spec = letter["metadata"], letter["spec"]
    definition = spec["definition"]
    call: dict[str, Any] = {"name": definition["name"]}
    repeated = {"input": spec["input"]} if spec.get("input") is not None else {}
    if repeated:
        call["input"] = "${input}"
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {
            "name": redrive_name(meta["name"], number),
            "namespace": meta["namespace"],
            "labels": {labels.DEAD_LETTER_LABEL: meta["uid"]},
            "annotations": {labels.DEAD_LETTER_ANNOTATION: meta["name"], labels.REQUEST_ANNOTATION: request_id},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "DeadLetter",
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "inline": {"activities": [definition], "steps": [{"name": STEP, "activity": call}]},
            **repeated,
        },
    }


def requested_by(run: KubeObject) -> str | None:
    """UID of the Operation that requested a re-drive."""
    return (run["metadata"].get("annotations") or {}).get(labels.REQUEST_ANNOTATION)


def redrives(run: KubeObject, letter: KubeObject) -> bool:
    """Whether a run re-drives this DeadLetter, or continues a run that does."""
    return bool((run["metadata"].get("labels") or {}).get(labels.DEAD_LETTER_LABEL) == letter["metadata"]["uid"])


def dead_letter_of(run: KubeObject) -> str | None:
    """Name of the DeadLetter that a run re-drives; None for any other run."""
    meta = run["metadata"]
    if labels.DEAD_LETTER_LABEL not in (meta.get("labels") or {}):
        return None
    return (meta.get("annotations") or {}).get(labels.DEAD_LETTER_ANNOTATION)


def dead_letter_status(letter: KubeObject, runs: Sequence[KubeObject], now: datetime) -> dict[str, Any]:
    """Compute the status of a DeadLetter from the runs that re-drive it.

    A re-drive includes the runs that a reset, a retry, or continue-as-new creates from its run; the newest counts. Runs may be
    deleted after their retention time: their results remain. A run that is deleted before it ends counts as failed. A run whose
    status was edited counts as open, even if the status shows an end.

    Args:
        letter: The DeadLetter.
        runs: The existing runs.
        now: The time, for conditions that change.
    """
    before: dict[str, Any] = letter.get("status") or {}
    newest = newest_of(runs)
    if newest is None or _number(newest) < before.get("redrives", 0):
        return _without_its_run(letter, now)
    run_status, name = newest.get("status") or {}, newest["metadata"]["name"]
    if edited(run_status, OF_RUNS):
        if _number(newest) == before.get("redrives", 0):
            return before
        run_status = {}
    status: dict[str, Any] = {
        "observedGeneration": letter["metadata"].get("generation", 1),
        "redrives": _number(newest),
        "lastRedriveTime": newest["metadata"]["creationTimestamp"],
    }
    done: bool | None = None
    reason, message = ConditionReason.REDRIVE_RUNNING, f"as WorkflowRun `{name}`"
    if run_status.get("completionTime") and not (run_status.get("state") or {}).get("startSuccessor"):
        done = run_status.get("phase") == "Completed"
        reason = ConditionReason.REDRIVE_SUCCEEDED if done else ConditionReason.REDRIVE_FAILED
        if done and run_status.get("output") is not None:
            status["output"] = run_status["output"]
        if not done and run_status.get("failure"):
            status["failure"] = run_status["failure"]
            message += f": {failures.full_message_of(run_status['failure'])}"
    return status | _condition(letter, now, status=done, reason=reason, message=message)


def _without_its_run(letter: KubeObject, now: datetime) -> dict[str, Any]:
    """The status of a DeadLetter when the run of its last re-drive no longer exists."""
    before: dict[str, Any] = letter.get("status") or {}
    if not is_being_redriven(letter):
        return before  # its end was reported before
    message = "the WorkflowRun that re-drove it was deleted before it closed"
    return before | _condition(letter, now, status=False, reason=ConditionReason.REDRIVE_DELETED, message=message)


def _condition(
    letter: KubeObject, now: datetime, *, status: bool | None, reason: ConditionReason, message: str
) -> dict[str, Any]:
    conditions = set_condition(
        read_conditions(letter.get("status") or {}),
        ConditionType.REDRIVEN,
        status,
        reason,
        message,
        now=now,
        observed_generation=letter["metadata"].get("generation", 1),
    )
    return {"conditions": [condition.dump() for condition in conditions]}


def is_being_redriven(letter: KubeObject) -> bool:
    """Whether a re-drive is in progress, according to the status of a DeadLetter."""
    conditions = (letter.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == ConditionType.REDRIVEN and each.get("status") == "Unknown" for each in conditions)


def waits_for(letter: KubeObject, run: KubeObject) -> bool:
    """Whether the status of a DeadLetter does not record the result of one of its re-drives yet."""
    number, known = _number(run), (letter.get("status") or {}).get("redrives", 0)
    return number > known or (number == known and is_being_redriven(letter))


def refusal(letter: KubeObject) -> tuple[ConditionReason, str] | None:
    """Why a DeadLetter cannot be re-driven now; None if it can."""
    if not letter["spec"].get("definition"):
        return (
            ConditionReason.NOT_SUPPORTED,
            "the DeadLetter does not contain the definition of the activity, so it cannot be re-driven",
        )
    if letter["spec"]["definition"].get("workspaces"):
        return (
            ConditionReason.NOT_SUPPORTED,
            "the activity mounts workspaces, which only its own run has, so it cannot be re-driven; retry the run instead",
        )
    for condition in (letter.get("status") or {}).get("conditions") or ():
        if condition.get("type") != ConditionType.REDRIVEN:
            continue
        if condition.get("status") == "Unknown":
            return ConditionReason.REDRIVE_RUNNING, f"it is already being re-driven, {condition.get('message', '')}"
        if condition.get("status") == "True":
            return ConditionReason.REDRIVE_SUCCEEDED, "it was already re-driven successfully; delete it"
    return None


def tie_of(run: KubeObject) -> KubeObject:
    """The parts of a run that relate it to the re-drives of a DeadLetter, without its input, output, and history."""
    status = run.get("status") or {}
    return {
        "metadata": {key: value for key, value in run["metadata"].items() if key != "managedFields"},
        "spec": {"workflowId": run["spec"].get("workflowId")},
        "status": {} if edited(status, OF_RUNS) else {"completionTime": status.get("completionTime")},
    }


def newest_of(runs: Sequence[KubeObject]) -> KubeObject | None:
    """Return the newest run of the last re-drive: no other run continues it."""
    continued = {tie.run_id for run in runs if (tie := continuation_of(run)) is not None}
    continued |= {reset.base.run_id for run in runs if (reset := reset_of(run)) is not None}
    last = [run for run in runs if run["metadata"]["uid"] not in continued]
    return max(last, key=_order, default=None)


def _order(run: KubeObject) -> tuple[int, bool, str, str]:
    """Sort key of runs that no other run continues: the last re-drive is last; in it the open run, otherwise the newest."""
    meta, status = run["metadata"], run.get("status") or {}
    return _number(run), not status.get("completionTime"), meta["creationTimestamp"], meta["name"]


def _number(run: KubeObject) -> int:
    """Number of the re-drive, from 1: all its runs have the workflow ID of the first one."""
    ending = str(run["spec"].get("workflowId") or run["metadata"]["name"]).rpartition("-")[2]
    return int(ending) if ending.isdecimal() else 0
