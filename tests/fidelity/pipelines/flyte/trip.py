import flyte
import work

env = flyte.TaskEnvironment("trips")


@env.task(retries=1)
async def book(what: str, trip: str) -> str:
    return work.book(what, trip)


@env.task(retries=100)
async def cancel(booking: str) -> None:
    work.cancel(booking)


@env.task
async def plan(trip: str) -> list[str]:
    bookings: list[str] = []
    try:
        for what in ("flight", "hotel", "car"):
            bookings.append(await book(what, trip))
    except Exception:
        for booking in reversed(bookings):
            await cancel(booking)
        raise
    return bookings
