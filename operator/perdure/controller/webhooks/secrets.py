"""The secrets that senders of webhook requests share with the operator, read on demand."""

import asyncio
import base64
import binascii
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from perdure.api.kinds.webhook import SecretKey
from perdure.kube import client as kube
from perdure.kube.clock import now

READ_AGAIN: Final = timedelta(seconds=30)
"""How long a secret, or the failure to read it, is cached."""
SHORTEST: Final = 16
"""Minimum length of a secret, in bytes."""
_MAX_CACHED: Final = 1_000
"""Maximum number of cached secrets."""
_FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True)
class FoundSecret:
    """A secret, or the reason why it cannot be used."""

    value: bytes = b""
    """The secret; empty if it cannot be used."""
    problem: str = ""


_Place = tuple[str, str, str]
"""Namespace, name, and key."""


class WebhookSecrets:
    """Reads secrets, and caches each of them briefly."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self._read: OrderedDict[_Place, tuple[datetime, FoundSecret]] = OrderedDict()
        self._locks: dict[_Place, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def find(self, namespace: str, reference: SecretKey) -> FoundSecret:
        """Return a secret.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        place = namespace, reference.name, reference.key
        async with self._locks[place]:
            since, found = self._read.get(place, (None, FoundSecret()))
            if since is None or not since <= now() < since + READ_AGAIN:
                found = await self._find(namespace, reference)
                self._read[place] = now(), found
                self._read.move_to_end(place)
                if len(self._read) > _MAX_CACHED:
                    self._locks.pop(self._read.popitem(last=False)[0], None)
        return found

    async def _find(self, namespace: str, reference: SecretKey) -> FoundSecret:
        try:
            secret = await self._client.get(kube.path(kube.CORE, namespace, "secrets", reference.name))
        except kube.NotFoundError:
            return FoundSecret(problem=f"Secret `{reference.name}` does not exist")
        except kube.ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            return FoundSecret(
                problem=f"The operator is not allowed to read Secret `{reference.name}`: create a Role and a RoleBinding for it "
                f"(docs/webhooks.md). {error.message}"
            )
        encoded = (secret.get("data") or {}).get(reference.key)
        if encoded is None:
            return FoundSecret(problem=f"Secret `{reference.name}` has no key `{reference.key}`")
        try:
            value = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            return FoundSecret(problem=f"Secret `{reference.name}`: key `{reference.key}` cannot be decoded")
        if len(value) < SHORTEST:
            return FoundSecret(
                problem=f"Secret `{reference.name}`: the value of `{reference.key}` must have at least {SHORTEST} bytes"
            )
        return FoundSecret(value)
