"""How both workers connect to Perdure."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from temporalio.client import Client
from temporalio.service import TLSConfig
from temporalio.worker import Worker

FOLDER = Path("/var/run/perdure")
"""Where the manifests mount a token for the frontend, and the authority that has signed its certificate."""


async def work(worker: Callable[[Client], Worker]) -> None:
    """Connect, and work until stopped."""
    token, authority = FOLDER / "token", FOLDER / "ca.crt"
    client = await Client.connect(
        os.environ.get("TEMPORAL_ADDRESS", "perdure-temporal.perdure-system:7233"),
        namespace=os.environ["TEMPORAL_NAMESPACE"],
        api_key=token.read_text() if token.exists() else None,
        tls=TLSConfig(server_root_ca_cert=authority.read_bytes()) if authority.exists() else False,
    )
    async with worker(client):
        while True:  # the kubelet renews the token
            await asyncio.sleep(60)
            if token.exists():
                client.api_key = token.read_text()
