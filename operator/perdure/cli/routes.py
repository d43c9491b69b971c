"""The options of commands that call the Temporal frontend, and the connection that they describe."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from perdure.api.names import FRONTEND_SERVICE
from perdure.cli.command import option, packed, stacked
from perdure.cli.connection import connect
from perdure.cli.flags import kubectl_arguments
from perdure.cli.options import (
    account_option,
    audience_option,
    context_option,
    namespace_option,
    seconds_of,
    system_namespace_option,
)
from perdure.cli.terminal import program_of
from perdure.client.route import FrontendRoute, reach

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import click

    from perdure.client.cluster import Cluster
    from perdure.client.frontend import FrontendApi

Answer = TypeVar("Answer")

address_options = stacked(
    (
        account_option,
        option("--address", metavar="URL", help="Address of the HTTP API; default: through a port-forward"),
        audience_option,
        system_namespace_option,
        option("--service", metavar="NAME", default=FRONTEND_SERVICE, help="Service of the Temporal frontend"),
        option("--timeout", default="30s", help="How long to wait for the answer"),
    )
)
"""The options for the location of the frontend, and the identity of the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOptions:
    """The options of a command that calls the frontend."""

    namespace: str | None
    account: str | None
    address: str | None
    audience: str
    system: str
    service: str
    timeout: str
    cluster: str | None

    def __post_init__(self) -> None:
        seconds_of(self.timeout, "--timeout")  # an invalid one is reported before any request

    def call(self, context: click.Context, work: Callable[[FrontendApi], Awaitable[Answer]]) -> Answer:
        """Call the frontend, and return the answer.

        Raises:
            CliError: The call was rejected, or the frontend cannot be reached.
        """
        return self.call_with_cluster(context, lambda api, _: work(api))

    def call_with_cluster(
        self, context: click.Context, work: Callable[[FrontendApi, Cluster], Awaitable[Answer]]
    ) -> Answer:
        """Call the frontend and the API server, and return the answer.

        Raises:
            CliError: The call was rejected, or one of them cannot be reached.
        """

        async def call() -> Answer:
            program = program_of(context)
            async with (
                connect(context=self.cluster, namespace=self.namespace, program=program) as cluster,
                self.reach(cluster) as api,
            ):
                return await work(api, cluster)

        return asyncio.run(call())

    @asynccontextmanager
    async def reach(self, cluster: Cluster) -> AsyncIterator[FrontendApi]:
        """Connect to the frontend of a cluster.

        Raises:
            CliError: The frontend cannot be reached.
        """
        route = FrontendRoute(
            address=self.address,
            account=self.account,
            audience=self.audience,
            system=self.system,
            service=self.service,
            kubectl=kubectl_arguments(self.cluster),
        )
        async with reach(cluster, route, seconds_of(self.timeout, "--timeout")) as api:
            yield api


routed = packed(RouteOptions, namespace_option, address_options, context_option)
"""Let a verb call the frontend: after the context from Click, it gets the `RouteOptions`."""
