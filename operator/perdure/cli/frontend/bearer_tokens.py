"""Tokens for the frontend: the token of the kubeconfig, or tokens of a ServiceAccount that are renewed before they expire."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from perdure.client.errors import CliError
from perdure.kube import clock

if TYPE_CHECKING:
    from perdure.client.cluster import Cluster

_EARLY = timedelta(minutes=5)
"""The time before expiry at which a token is renewed."""


class KubeconfigToken:
    """The token of the kubeconfig."""

    def __init__(self, cluster: Cluster) -> None:
        """Read the token.

        Raises:
            CliError: The kubeconfig has no token.
        """
        self._cluster = cluster
        if not cluster.bearer():
            raise CliError(
                "the kubeconfig logs in with a certificate, but the frontend identifies its callers by tokens; choose a "
                "ServiceAccount whose permissions you want to use with --service-account"
            )

    async def current(self) -> str:
        """Return the token."""
        return self._cluster.bearer() or ""


class AccountToken:
    """Tokens of a ServiceAccount for one audience."""

    def __init__(self, cluster: Cluster, account: str, audience: str) -> None:
        """`account` is a ServiceAccount in the namespace of the cluster."""
        self._cluster = cluster
        self._account = account
        self._audience = audience
        self._token = ""
        self._renew = clock.now()
        self._renewing = asyncio.Lock()

    async def current(self) -> str:
        """Return a valid token.

        Raises:
            CliError: The API server does not issue a token.
        """
        async with self._renewing:
            if clock.now() >= self._renew:
                self._token, expires = await self._cluster.issue_token(self._account, self._audience)
                self._renew = expires - _EARLY
            return self._token
