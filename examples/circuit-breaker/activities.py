"""The activity of the orders: what runs in the pods. Needs an image with Python and `perdure.activity`."""

from typing import Any

from perdure import activity

NO_ANSWER, NO_MONEY = "0119", "0002"
"""As in the test mode of payment services, the last digits of the card number select the result."""


def charge(order: dict[str, Any]) -> dict[str, Any]:
    """Charge an order's card."""
    if order["card"].endswith(NO_ANSWER):
        raise activity.ApplicationError("the payment gateway does not answer", type="GatewayDown")
    if order["card"].endswith(NO_MONEY):
        raise activity.ApplicationError("there is no money left", type="CardDeclined", non_retryable=True)
    return {"id": order["id"], "amount": order["amount"], "charged": True}


if __name__ == "__main__":
    activity.main({"charge": charge})
