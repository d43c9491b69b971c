"""The values of a run's memory that expressions can read."""

from typing import Any, Final

import msgspec

from perdure.language.memory import Closing, Outcome, Status, StepRecord
from perdure.language.step_failures import as_variable

_PHASES: Final = {Status.SUCCEEDED: "Completed", Status.FAILED: "Failed", Status.CANCELLED: "Cancelled"}
"""`run.status` by the outcome of the main steps: the phases of a run."""


def step_as_json(record: StepRecord) -> dict[str, Any]:
    """The value of `steps.<name>`."""
    return {
        "status": record.status.value,
        "startTime": record.start_time,
        "endTime": record.end_time,
        "output": record.output,
        "artifacts": {} if record.artifacts is None else record.artifacts,
    }


def ended_as_json(outcome: Outcome) -> dict[str, Any]:
    """The value of `step` in the input of `onEnd`: the outcome of the step."""
    failure = outcome.failure
    return {
        "status": outcome.status.value,
        "output": outcome.output,
        **({} if outcome.artifacts is None else {"artifacts": outcome.artifacts}),
        "failure": None if failure is None else as_variable(failure, []),
    }


def outcome_as_json(closing: Closing | None) -> dict[str, Any]:
    """The values of `run.status` and `run.failure`: the outcome of the main steps, for compensations and handlers."""
    if closing is None:
        return {"status": "Running", "failure": None}
    failure = closing.outcome.failure
    if failure is not None:
        failure = msgspec.structs.replace(failure, suppressed=(*failure.suppressed, *closing.suppressed))
    return {
        "status": _PHASES[closing.outcome.status],
        "failure": None if failure is None else as_variable(failure, []),
    }
