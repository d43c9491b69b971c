"""Compose a schedule's status from its state, for users and for the next restart of the operator."""

from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from perdure.api.kinds.schedule import MAX_SHOWN_BACKFILLS, PausedBy, ScheduleSpec
from perdure.api.kinds.status import read_conditions, set_condition
from perdure.api.reasons import ConditionReason, ConditionType
from perdure.api.times import format_time
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.inputs import Rules
from perdure.schedule.state import PendingBackfill, ScheduleState
from perdure.schedule.times import Times, summary_of

SHOWN = 10
"""The number of next times in the status."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a schedule cannot start runs at its times."""

    reason: ConditionReason
    message: str


def compose(
    old: dict[str, Any],
    rules: Rules,
    state: ScheduleState,
    *,
    problem: Problem | None,
    warning: str = "",
    generation: int,
    now: datetime,
) -> dict[str, Any]:
    """Compose the status of a schedule.

    Args:
        old: The current status.
        rules: The rules of its spec.
        state: Its state.
        problem: Why its times are not valid, if so.
        warning: What is probably a mistake, although runs start.
        generation: `metadata.generation` of the spec.
        now: The time of this write.
    """
    upcoming: list[str] = []
    if rules.times is not None:
        try:
            upcoming = [format_time(time) for time in islice(rules.times.nominal(state.cursor), SHOWN)]
        except InvalidTimesError as error:
            problem = Problem(error.reason, error.message)
    paused = _paused(rules, state)
    status = {
        "observedGeneration": generation,
        "conditions": _conditions(
            old, _ready(rules, problem, upcoming, state.refused, warning), paused, generation, now
        ),
        "paused": {"by": state.paused.by, "reason": state.paused.reason, "time": format_time(state.paused.time)}
        if state.paused
        else None,
        "spec": rules.times.canonical_json if rules.times else {"summary": summary_of(rules.spec)},
        "lastScheduledTime": _time(state.last_scheduled),
        "nextScheduledTimes": [] if paused[0] else upcoming,
        "recentActions": [
            _without_none(
                scheduledTime=_time(each.nominal),
                actualTime=format_time(each.started),
                workflowRun=each.name,
                runId=each.run_id or None,
                status=each.status,
            )
            for each in state.recent
        ],
        "runningWorkflows": [_without_none(workflowRun=run.name, runId=run.run_id or None) for run in state.running],
        "active": len(state.running),
        "bufferSize": len(state.buffer),
        "backfills": [_backfill(each, state) for each in state.backfills if each.start is not None][
            :MAX_SHOWN_BACKFILLS
        ]
        or None,
        "remainingActions": state.remaining,
        "lastCompletionResult": state.result,
        "lastFailure": state.failure,
        "counts": {
            "actions": state.counts.actions,
            "missedCatchupWindow": state.counts.missed_catchup_window,
            "overlapSkipped": state.counts.overlap_skipped,
            "bufferDropped": state.counts.buffer_dropped,
        },
        "state": state.stored(),
    }
    return {key: value for key, value in status.items() if value is not None}


def not_ready(old: dict[str, Any], problem: Problem, generation: int, now: datetime) -> dict[str, Any]:
    """The current status of a schedule whose state or spec is not valid, with the condition that says so."""
    conditions = set_condition(
        read_conditions(old),
        ConditionType.READY,
        False,
        problem.reason,
        problem.message,
        now=now,
        observed_generation=generation,
    )
    return {**old, "observedGeneration": generation, "conditions": [each.dump() for each in conditions]}


_Verdict = tuple[bool, ConditionReason, str]


def _ready(rules: Rules, problem: Problem | None, upcoming: list[str], refused: str, warning: str) -> _Verdict:
    if problem is not None:
        return False, problem.reason, problem.message
    if refused:
        message = f"The last run was rejected: {refused}; fix `spec.workflowRunTemplate`, or what rejects it"
        return False, ConditionReason.RUN_REFUSED, message
    found = outlook(rules.spec, has_next=bool(upcoming))
    if found.ready and warning:
        message = f"Valid, with warnings: {warning}"
        return True, found.reason, f"{found.message}. {message}" if found.message else message
    return found.ready, found.reason, found.message


@dataclass(frozen=True, slots=True)
class Outlook:
    """The condition `Ready` of a schedule whose times are valid."""

    ready: bool
    reason: ConditionReason
    message: str = ""
    path: str = ""
    """The field to change, if the schedule is not ready."""


def has_times(spec: ScheduleSpec) -> bool:
    """Whether a schedule starts runs at times; otherwise runs start only when an Operation triggers them."""
    return bool(spec.cron or spec.intervals or spec.calendars)


def outlook(spec: ScheduleSpec, *, has_next: bool) -> Outlook:
    """Judge a schedule.

    Args:
        spec: Its spec.
        has_next: Whether it has a future time.
    """
    if not has_times(spec):
        return Outlook(True, ConditionReason.ACCEPTED, "Runs start only when an Operation triggers them")
    if has_next:
        return Outlook(True, ConditionReason.ACCEPTED)
    if spec.end_time is not None:
        message, path = f"No time is left until `endTime`, {format_time(spec.end_time)}", "spec.endTime"
    else:
        message = "No time matches within the next 40 years; check the days of the month, the years, and the exclusions"
        path = next(f"spec.{field}" for field in ("cron", "calendars", "intervals") if getattr(spec, field))
    return Outlook(False, ConditionReason.NO_MORE_TIMES, message, path)


def outlook_after(spec: ScheduleSpec, after: datetime) -> Outlook:
    """Judge a schedule by its times after an instant.

    Raises:
        InvalidTimesError: Its times are not valid.
    """
    return outlook(spec, has_next=next(Times(spec).nominal(after), None) is not None)


def _paused(rules: Rules, state: ScheduleState) -> _Verdict:
    notes = f": {rules.spec.notes}" if rules.spec.notes else ""
    if rules.spec.paused:
        return True, ConditionReason.PAUSED_BY_SPEC, f"`spec.paused` is true{notes}"
    if state.paused is not None and state.paused.by is PausedBy.OPERATION:
        why = f": {state.paused.reason}" if state.paused.reason else ""
        return True, ConditionReason.PAUSED_BY_OPERATION, f"An Operation has paused it{why}"
    if state.paused is not None:
        return (
            True,
            ConditionReason.PAUSED_BY_FAILURE,
            f"Paused because {state.paused.reason}; an unpause Operation resumes it",
        )
    if state.remaining == 0:
        return True, ConditionReason.OUT_OF_ACTIONS, "All `remainingActions` are used up; change the field to continue"
    return False, ConditionReason.NOT_PAUSED, ""


def _conditions(
    old: dict[str, Any], ready: _Verdict, paused: _Verdict, generation: int, now: datetime
) -> list[dict[str, Any]]:
    conditions = read_conditions(old)
    for kind, (holds, reason, message) in ((ConditionType.READY, ready), (ConditionType.PAUSED, paused)):
        conditions = set_condition(conditions, kind, holds, reason, message, now=now, observed_generation=generation)
    return [each.dump() for each in conditions]


def _backfill(backfill: PendingBackfill, state: ScheduleState) -> dict[str, Any]:
    start = backfill.start
    return _without_none(
        startTime=_time(start),
        endTime=format_time(backfill.end),
        handledUntil=format_time(backfill.after) if start is not None and backfill.after >= start else None,
        buffered=sum(map(backfill.is_start_of, state.buffer)) or None,
        overlapPolicy=backfill.policy.value,
        maxConcurrency=backfill.max_concurrency,
        held=backfill.held or None,
    )


def _time(time: datetime | None) -> str | None:
    return format_time(time) if time is not None else None


def _without_none(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
