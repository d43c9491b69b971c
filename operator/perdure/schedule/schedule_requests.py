"""Convert an Operation on a Schedule to the input of a step."""

from perdure.api.operation import OperationSpec
from perdure.schedule import inputs as inp


def request_of(spec: OperationSpec, uid: str) -> inp.ScheduleRequest:
    """Read the request of an Operation.

    Args:
        spec: The spec of an Operation whose target is a Schedule.
        uid: The UID of the Operation. It becomes the ID of the request, so that the request is processed once.

    Raises:
        ValueError: Schedules do not support the request. The API server rejects such Operations.
    """
    if spec.trigger is not None:
        return inp.Triggered(request_id=uid, overlap_policy=spec.trigger.overlap_policy)
    if spec.backfill is not None:
        backfill = spec.backfill
        return inp.BackfillRequested(
            request_id=uid, start=backfill.start_time, end=backfill.end_time, overlap_policy=backfill.overlap_policy
        )
    if spec.pause is not None:
        return inp.SchedulePauseRequested(request_id=uid, reason=spec.pause.reason)
    if spec.unpause is not None:
        return inp.ScheduleUnpauseRequested(request_id=uid, reason=spec.unpause.reason)
    raise ValueError(f"a Schedule does not support `{spec.request}`")
