"""The start of a run that is recorded together with its first decision.

Until then, the object itself is the durable start: a process that finds it without a status starts it again. So one write
records the start together with the first decision of an SDK worker or a signal.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from perdure.controller.reconcile.record import Record
from perdure.controller.runs.starter import Begun
from perdure.controller.workers import Workers
from perdure.engine.step import RunTransition
from perdure.kube import client as kube
from perdure.runtime.chains import continuation_of, parent_of

LONGEST: Final = timedelta(seconds=1)
"""How long the start of a run may stay unrecorded."""


@dataclass(slots=True)
class UnrecordedStart:
    """The first transition of a run, and when it must be recorded."""

    transition: RunTransition
    due: datetime

    def followed_by(self, transition: RunTransition, now: datetime) -> RunTransition:
        """Combine this and the next transition. The result must be committed if either must be."""
        events = (*self.transition.events, *transition.events)
        return replace(transition, events=events, durable=transition.durable or self.due <= now)


def may_wait(begun: Begun, record: Record, workers: Workers) -> bool:
    """Whether the start of a run can wait for the first decision of a worker.

    Parents, and clients of the previous run, wait until a run has started, so their runs are recorded immediately.
    """
    state, obj = begun.transition.state, record.object
    if state.code is None or state.offered_task() is None or begun.origin is not None:
        return False
    if parent_of(obj) is not None or continuation_of(obj) is not None or _has_conditions(obj):
        return False
    namespace = obj["metadata"]["namespace"]
    return workers.polled(namespace, state.code.task_queue, version=workers.version_of(namespace, state))


def _has_conditions(obj: kube.Object) -> bool:
    """Whether the status has a reason why the run has not started, which must be removed."""
    return bool((obj.get("status") or {}).get("conditions"))
