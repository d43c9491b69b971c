"""How kopf is let in: the same way as our own client."""

import asyncio
from datetime import timedelta
from typing import Any

import kopf

from perdure.kube.access import Access
from perdure.kube.clock import now

_RENEW_AFTER = timedelta(minutes=5)
"""The kubelet renews the token in its file; kopf is to read it again before the old one ends."""

_PAUSE = 1.0


def register(registry: kopf.OperatorRegistry, access: Access) -> None:
    """Have kopf log in by `access`. Refused for ever, it would ask again at once, for ever: a second try waits."""
    tries = 0

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        nonlocal tries
        tries += 1
        if tries > 1:
            await asyncio.sleep(_PAUSE)
        return kopf.ConnectionInfo(
            server=access.server,
            ca_path=access.ca_file,
            insecure=not access.verify,
            token=access.bearer(),
            certificate_path=access.client_cert_file,
            private_key_path=access.client_key_file,
            expiration=now() + _RENEW_AFTER if access.token_file else None,
        )
