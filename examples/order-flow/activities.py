"""The activities of the order flow: what runs in the pods. Needs an image with Python and `perdure.activity`."""

import time
from typing import Any

from perdure import activity

SECONDS_PER_ITEM = 1.0


def reserve_stock(order: dict[str, Any]) -> dict[str, Any]:
    """Pick the items one by one. After each, a heartbeat records the progress: a new pod resumes from there."""
    before = activity.last_heartbeat_details() or {"picked": []}
    picked = list(before["picked"])
    for item in order["items"][len(picked) :]:
        time.sleep(SECONDS_PER_ITEM)
        picked.append(item)
        activity.heartbeat({"picked": picked})
    return {"reservation": f"R-{order['id']}", "picked": len(picked), "resumedAt": len(before["picked"])}


def charge_card(payment: dict[str, Any]) -> dict[str, Any]:
    """Charge the card. The card network is down for the first two attempts, as card networks are."""
    attempt = activity.info().attempt
    if attempt < 3:  # noqa: PLR2004
        raise activity.ApplicationError("the card network does not answer", type="CardNetworkUnavailable")
    return {"charge": f"C-{payment['order']}", "amount": payment["amount"], "attempt": attempt}


def ship(parcel: dict[str, Any]) -> dict[str, Any]:
    """Hand the parcel over."""
    return {"tracking": f"T-{parcel['reservation']}", "carrier": "Snail Express"}


if __name__ == "__main__":
    activity.main({"reserve-stock": reserve_stock, "charge-card": charge_card, "ship": ship})
