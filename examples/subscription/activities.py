"""The activities of a subscription: what runs in the pods. Needs an image with Python and `perdure.activity`."""

from typing import Any

from perdure import activity

NO_MONEY = "0002"
"""Card numbers with this ending have no money, as in the test mode of payment services."""


def tell(mail: dict[str, Any]) -> dict[str, Any]:
    """Write to the customer."""
    print(f"To: {mail['to']}\n\n{mail['text']}")
    return {"told": mail["to"]}


def charge(payment: dict[str, Any]) -> dict[str, Any]:
    """Charge a card. The receipt is the same at every attempt: the card is charged once."""
    if not _is_card(payment["card"]):
        raise activity.ApplicationError("this is no card number", type="CardDeclined", non_retryable=True)
    if payment["card"].endswith(NO_MONEY):
        raise activity.ApplicationError("there is no money left", type="CardDeclined", non_retryable=True)
    return {"receipt": f"{payment['customer']}-{payment['period']}", "amount": payment["amount"]}


def refund(payment: dict[str, Any]) -> dict[str, Any]:
    """Refund a receipt."""
    return {"refunded": payment["receipt"], "amount": payment["amount"]}


def _is_card(number: str) -> bool:
    """Whether the check digit is right (Luhn)."""
    if not number.isdecimal():
        return False
    digits = [int(digit) for digit in reversed(number)]
    return sum(digits[0::2] + [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]) % 10 == 0


if __name__ == "__main__":
    activity.main({"tell": tell, "charge": charge, "refund": refund})
