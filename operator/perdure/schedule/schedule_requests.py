"""The request of an Operation to a schedule, as an input of a step."""

from perdure.api.operation import OperationSpec
from perdure.schedule import inputs as inp


def request_of(spec: OperationSpec, uid: str) -> inp.ScheduleRequest:
    """Read the request.

    Args:
        spec: The Operation's; its target is a Schedule.
        uid: The Operation's: the id of the request, so that it is processed once.

    Raises:
        ValueError: It has no request that a schedule accepts; the API server rejects that.
    """
    if spec.trigger is not None:
        return inp.Triggered(request_id=uid, overlap_policy=spec.trigger.overlap_policy)
    if spec.backfill is not None:
        asked = spec.backfill
        return inp.BackfillRequested(
            request_id=uid, start=asked.start_time, end=asked.end_time, overlap_policy=asked.overlap_policy
        )
    if spec.pause is not None:
        return inp.SchedulePauseRequested(request_id=uid, reason=spec.pause.reason)
    if spec.unpause is not None:
        return inp.ScheduleUnpauseRequested(request_id=uid, reason=spec.unpause.reason)
    raise ValueError(f"{spec.request} cannot be asked of a Schedule")
