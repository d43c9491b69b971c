"""The worker of the examples. `python app.py` works until it is stopped."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.service import TLSConfig
from temporalio.worker import Worker

from checksums import ChecksumsWorkflow
from deadletters import DeadLettersWorkflow, set_aside
from files import FileWorkflow, count_lines
from films import RenderWorkflow, ReviewWorkflow, render, show
from orders import OrderWorkflow, charge, ship
from parties import GuestWorkflow, PartyWorkflow
from payouts import PayoutsWorkflow, transfer
from refunds import refund
from subscriptions import SubscriptionWorkflow, bill
from trips import TripWorkflow, book, cancel

FOLDER = Path("/var/run/perdure")
"""Where worker.yaml mounts a token for the frontend, and the authority that has signed its certificate."""

WORKFLOWS = [
    ChecksumsWorkflow,
    DeadLettersWorkflow,
    FileWorkflow,
    GuestWorkflow,
    OrderWorkflow,
    PartyWorkflow,
    PayoutsWorkflow,
    RenderWorkflow,
    ReviewWorkflow,
    SubscriptionWorkflow,
    TripWorkflow,
]
ACTIVITIES: list[Callable[..., Any]] = [
    bill,
    book,
    cancel,
    charge,
    count_lines,
    refund,
    render,
    set_aside,
    ship,
    show,
    transfer,
]


def bearer() -> str | None:
    """The token of the pod, as it is now; None outside of a cluster."""
    token = FOLDER / "token"
    return token.read_text() if token.exists() else None


def encryption() -> TLSConfig | bool:
    """TLS, where there is an authority to trust."""
    authority = FOLDER / "ca.crt"
    return TLSConfig(server_root_ca_cert=authority.read_bytes()) if authority.exists() else False


async def main() -> None:
    """Work until stopped."""
    token = bearer()
    client = await Client.connect(
        os.environ.get("TEMPORAL_ADDRESS", "perdure-temporal.perdure-system:7233"),
        namespace=os.environ.get("TEMPORAL_NAMESPACE", "default"),
        api_key=token,
        tls=encryption(),
    )
    async with Worker(client, task_queue="orders", workflows=WORKFLOWS, activities=ACTIVITIES):
        while True:  # the kubelet renews the token
            await asyncio.sleep(60)
            if token:
                client.api_key = bearer()


if __name__ == "__main__":
    asyncio.run(main())
