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
from subscriptions import SubscriptionWorkflow, bill
from trips import TripWorkflow, book, cancel

TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

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
    render,
    set_aside,
    ship,
    show,
    transfer,
]


def bearer() -> str | None:
    """The token of the pod, as it is now; None outside of a cluster."""
    return TOKEN.read_text() if TOKEN.exists() else None


def encryption() -> TLSConfig | bool:
    """TLS, where TEMPORAL_CA has the certificate of who vouches for the server."""
    authority = os.environ.get("TEMPORAL_CA", "")
    return TLSConfig(server_root_ca_cert=authority.encode()) if authority else False


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
