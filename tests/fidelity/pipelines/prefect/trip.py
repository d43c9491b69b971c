import work
from prefect import flow, task
from prefect.transactions import Transaction, get_transaction, transaction


@task
def book(what: str, trip: str) -> str:
    booking = work.book(what, trip)
    get_transaction().set("booking", booking)
    return booking


@book.on_rollback
def cancel(booked: Transaction) -> None:
    work.cancel(booked.get("booking"))


@flow
def plan(trip: str) -> list[str]:
    with transaction():
        return [book(what, trip) for what in ("flight", "hotel", "car")]
