"""Objects that a newer version of the operator has written: they are reported, and otherwise left as they are.

Two operators may work on the same objects while one replaces the other. The newer one removes the report, because it can read the
object. So the older one repeats it with growing delays, and neither keeps the other busy.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.api.json_values import mappings
from perdure.api.kinds.status import read_conditions, set_condition
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.controller.reconcile.record import Record, Status
from perdure.controller.state_versions import state_versions
from perdure.kube import client as kube
from perdure.observe import metrics

Verdicts = Mapping[ConditionType, bool | None]
"""Conditions, and whether each of them holds; None is Unknown."""

_FIRST_PAUSE: Final = timedelta(seconds=10)
_LONGEST_PAUSE: Final = timedelta(hours=1)
_REPORTING: Final = (ConditionType.NEWER_STATE, ConditionType.READY)
_LONGEST: Final = 500
"""Length to which what this version cannot read is shortened, in characters."""


class NewerStateError(Exception):
    """A newer version of the operator has written an object. The message names what this version cannot read."""


def message_for(why: str) -> str:
    """The message of the condition for what this version cannot read."""
    short = why if len(why) <= _LONGEST else f"{why[:_LONGEST]}…"
    return (
        f"A newer version of Perdure has written the object, and this one cannot read it ({short}): this operator leaves the "
        f"object as it is. Upgrade the operator to {state_versions().able}, or wait until the upgrade has replaced this one"
    )


class NewerStateReports:
    """When to report one object. The newer operator removes the report if it works on the object, too."""

    def __init__(self, kind: str, namespace: str) -> None:
        """`kind` of the object, and its namespace, for the metric."""
        self._kind = kind
        self._namespace = namespace
        self._reports = 0
        self._counted = False
        self._next: datetime | None = None

    @property
    def has_reported(self) -> bool:
        """Whether the object was reported."""
        return self._reports > 0

    def due(self, status: Mapping[str, Any], now: datetime) -> bool:
        """Whether to report the object now, which counts as a report; not while its status contains one.

        The metric counts each object once for each process of the operator.
        """
        if not self._counted:  # also an object that an earlier process has reported
            self._counted = True
            metrics.NEWER_STATES.labels(self._namespace, self._kind).inc()
        if is_reported(status) or (self._next is not None and now < self._next):
            return False
        self._next = now + min(_FIRST_PAUSE * (1 << min(self._reports, 10)), _LONGEST_PAUSE)
        self._reports += 1
        return True

    def ready_status(self, obj: kube.Object, why: str, now: datetime) -> Status | None:
        """The status of an object of a kind with the condition `Ready`, with the report; None if it is not due."""
        if not self.due(obj.get("status") or {}, now):
            return None
        return with_report(obj, message_for(why), {ConditionType.READY: False}, now)

    async def report(
        self, record: Record, why: str, verdicts: Verdicts, warn: Callable[[EventReason, str, str], None], now: datetime
    ) -> datetime | None:
        """Record the report in the status, and in an Event, if it is due.

        Args:
            record: The object.
            why: What this version cannot read.
            verdicts: The conditions that contain the report.
            warn: Records an Event with a reason, a note and an action.
            now: The time.

        Returns:
            When to call again, because the newer operator has removed the report; None to wait for an event.

        Raises:
            ConflictError: As for `Record.write`.
        """
        if self.due(record.status, now):
            message = message_for(why)
            with suppress(kube.TooLargeError):  # then only the Event reports it
                await record.write(with_report(record.latest(), message, verdicts, now))
            warn(EventReason.NEWER_STATE, message, "Load")
        return None if is_reported(record.status) else self._next


def with_report(obj: kube.Object, message: str, verdicts: Verdicts, now: datetime) -> Status:
    """Return the status of an object with the report, and otherwise as it is."""
    status, generation = obj.get("status") or {}, obj["metadata"].get("generation", 1)
    conditions = read_conditions(status)
    for kind, holds in verdicts.items():
        conditions = set_condition(
            conditions, kind, holds, ConditionReason.NEWER_STATE, message, now=now, observed_generation=generation
        )
    reports = {each.type: each.dump() for each in conditions if each.type in verdicts}
    kept = [reports.pop(each.get("type", ""), each) for each in mappings(status.get("conditions"))]
    return {**status, "conditions": [*kept, *reports.values()]}


def is_reported(status: Mapping[str, Any]) -> bool:
    """Whether a status contains the report. A run that waits for a limit of a newer version is not of a newer version itself."""
    return bool(reported(status))


def reported(status: Mapping[str, Any]) -> str:
    """The message of the report in a status; empty if there is none."""
    for each in mappings(status.get("conditions")):
        if each.get("type") in _REPORTING and each.get("reason") == ConditionReason.NEWER_STATE:
            return str(each.get("message"))
    return ""
