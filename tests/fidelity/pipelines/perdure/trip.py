import work

import perdure.flow as pf

trips = pf.Environment("trips")


@trips.activity(retries=1)
def book(what: str, trip: str) -> str:
    return work.book(what, trip)


@trips.activity()
def cancel(booking: str) -> None:
    work.cancel(booking)


@trips.flow
async def plan(trip: str) -> list[str]:
    bookings: list[str] = []
    async with pf.Saga() as saga:
        for what in ("flight", "hotel", "car"):
            booking = await book(what, trip)
            saga.compensate(cancel, booking)
            bookings.append(booking)
    return bookings
