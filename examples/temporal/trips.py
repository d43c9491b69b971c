"""A saga: bookings are undone in reverse order; those that cannot be undone are reported."""

from datetime import timedelta

from temporalio import activity, workflow
from temporalio.exceptions import ActivityError, ApplicationError

SHORT = timedelta(seconds=30)


@activity.defn
async def book(what: str) -> str:
    """Book a part of a trip; there are no cars."""
    if what == "car":
        raise ApplicationError("no cars left", type="SoldOut", non_retryable=True)
    return f"{what}-booked"


@activity.defn
async def cancel(what: str) -> str:
    """Undo a booking; the hotel does not let us."""
    if what == "hotel":
        raise ApplicationError("too late to cancel the hotel", type="TooLate", non_retryable=True)
    return f"{what}-cancelled"


@workflow.defn
class TripWorkflow:
    """Books every part of a trip, or none."""

    @workflow.run
    async def run(self, parts: list[str]) -> list[str]:
        """Book all parts, and undo the bookings if a part is not available."""
        booked: list[str] = []
        log: list[str] = []
        try:
            for part in parts:
                log.append(await workflow.execute_activity(book, part, start_to_close_timeout=SHORT))
                booked.append(part)
        except ActivityError:
            for part in reversed(booked):
                try:
                    log.append(await workflow.execute_activity(cancel, part, start_to_close_timeout=SHORT))
                except ActivityError as error:
                    log.append(f"{part} stays booked: {error.cause}")
        return log
