"""The activities of a trip: what runs in the pods. Needs an image with Python and `perdure.activity`."""

from typing import Any

from perdure import activity

NIGHT, FLIGHTS, CAR = 80, {"basic": 60, "flexible": 110}, 45


def reserve_hotel(wish: dict[str, Any]) -> dict[str, Any]:
    """Reserve a room."""
    return {"reservation": f"hotel-{wish['traveller']}", "price": NIGHT * wish["nights"]}


def reserve_flight(wish: dict[str, Any]) -> dict[str, Any]:
    """Reserve a seat. The airline's desk is busy at the first attempt."""
    if activity.info().attempt == 1:
        raise activity.ApplicationError("the desk is busy", type="Busy")
    return {"reservation": f"flight-{wish['traveller']}", "price": FLIGHTS[wish["fare"]]}


def reserve_car(wish: dict[str, Any]) -> dict[str, Any]:
    """Reserve a car, if one is available."""
    if not wish["cars"]:
        raise activity.ApplicationError("all cars are taken", type="NoCarLeft", non_retryable=True)
    return {"reservation": f"car-{wish['traveller']}", "price": CAR}


def pay(payment: dict[str, Any]) -> dict[str, Any]:
    """Charge a card; one that ends with 0002 is declined."""
    if payment["card"].endswith("0002"):
        raise activity.ApplicationError("there is no money left", type="CardDeclined", non_retryable=True)
    return {"paid": payment["amount"]}


def cancel(undone: dict[str, Any]) -> dict[str, Any]:
    """Return a reservation, if it is refundable."""
    if not undone["refundable"]:
        message = f"{undone['reservation']} is not refundable"
        raise activity.ApplicationError(message, type="NotRefundable", non_retryable=True)
    return {"cancelled": undone["reservation"]}


if __name__ == "__main__":
    activity.main(
        {
            "reserve-hotel": reserve_hotel,
            "reserve-flight": reserve_flight,
            "reserve-car": reserve_car,
            "pay": pay,
            "cancel": cancel,
        }
    )
