"""The action that an Operation requires. Pure."""

from dataclasses import dataclass

import pydantic

from perdure.api.kinds.operation import Operation, Reset, Retry, TargetKind
from perdure.api.models import mistakes
from perdure.api.reasons import ConditionReason
from perdure.controller.errors import RefusedError
from perdure.controller.operations.operation_status import identity
from perdure.engine.inputs import Request
from perdure.kube import client as kube
from perdure.runtime.chains import created_by
from perdure.runtime.operation_requests import request_of, too_much
from perdure.schedule.inputs import ScheduleRequest
from perdure.schedule.inputs import request_of as schedule_request_of


@dataclass(frozen=True, slots=True)
class DeliverToRun:
    """Deliver a request to the run that the Operation targets."""

    request: Request


@dataclass(frozen=True, slots=True)
class DeliverToSchedule:
    """Deliver a request to a Schedule."""

    name: str
    request: ScheduleRequest


@dataclass(frozen=True, slots=True)
class ResetRun:
    """Reset or retry the run that the Operation targets."""

    wanted: Reset | Retry


@dataclass(frozen=True, slots=True)
class RedriveDeadLetter:
    """Start a run that repeats the activity of a DeadLetter."""

    name: str


Action = DeliverToRun | DeliverToSchedule | ResetRun | RedriveDeadLetter


def action_of(obj: kube.Object) -> Action:
    """Read the action from an Operation.

    Raises:
        RefusedError: The spec is invalid, or its payload is too large.
    """
    try:
        spec = Operation.parse({**obj, "status": None}).spec
    except pydantic.ValidationError as error:
        raise RefusedError(ConditionReason.INVALID_SPEC, "; ".join(mistakes(error))) from error
    uid = obj["metadata"]["uid"]
    if spec.target.kind is TargetKind.SCHEDULE:
        assert spec.target.name is not None
        return DeliverToSchedule(spec.target.name, schedule_request_of(spec, uid))
    if spec.target.kind is TargetKind.DEAD_LETTER:
        assert spec.target.name is not None
        return RedriveDeadLetter(spec.target.name)
    if (wanted := spec.reset or spec.retry) is not None:
        return ResetRun(wanted)
    request = request_of(spec, uid, identity(obj), created_by(obj))
    if (wrong := too_much(request)) is not None:
        raise RefusedError(ConditionReason.PAYLOAD_TOO_LARGE, wrong)
    return DeliverToRun(request)
