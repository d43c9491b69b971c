"""Runs that are only in the archive, which commands read through the Temporal frontend after the cluster has no such run."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from perdure.api.labels import ARCHIVE_ANNOTATION, ARCHIVED_ANNOTATION
from perdure.api.names import FRONTEND_SERVICE
from perdure.cli.command import packed
from perdure.cli.flags import kubectl_arguments
from perdure.cli.options import archive_options, context_option
from perdure.client.errors import ClientError, CliError, ForbiddenError, NotFoundError
from perdure.kube import paths
from perdure.lazy import lazily

with lazily():
    from perdure.api import state_versions
    from perdure.client import frontend as client_frontend
    from perdure.client import route as client_route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perdure.client.cluster import Cluster
    from perdure.client.frontend import FrontendApi
    from perdure.client.requests import Object

_SECONDS = 30.0


def _announce(run: Object) -> None:
    """Say on stderr that a run is the archived one."""
    name = run["metadata"]["name"]
    click.echo(f"The run `{name}` was deleted from the cluster; this is the archived one.", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRoute:
    """The options of a command that also finds archived runs."""

    address: str | None
    account: str | None
    system: str
    cluster: str | None
    """Context of the kubeconfig."""

    async def ended(self, cluster: Cluster, run: Object, missing: NotFoundError) -> Object:
        """Read a run from the archive that was deleted from the cluster while a command waited for its end.

        Args:
            cluster: The cluster.
            run: The run as it was last read.
            missing: The error to raise if the archive does not have it.

        Raises:
            NotFoundError: As for `archived`, also if the archive only has another run of that name.
            CliError: As for `archived`.
        """
        found = await self.archived(cluster, run["metadata"]["name"], None, missing)
        if found["metadata"]["uid"] != run["metadata"]["uid"]:
            raise missing
        _announce(found)
        return found

    async def find(self, cluster: Cluster, name: str | None, workflow_id: str | None) -> Object:
        """Read a run by its name or workflow ID: from the cluster, otherwise from the archive, and say so on stderr.

        Raises:
            CliError: The run is in neither of them, or cannot be read.
        """
        try:
            return await cluster.runs.find(name, workflow_id)
        except NotFoundError as error:
            missing = error
        found = await self.archived(cluster, name, workflow_id, missing)
        _announce(found)
        return found

    async def archived(
        self, cluster: Cluster, name: str | None, workflow_id: str | None, missing: NotFoundError
    ) -> Object:
        """Read a run from the archive.

        Args:
            cluster: The cluster, which does not have the run.
            name: The name of the run.
            workflow_id: Its workflow ID instead.
            missing: The error to raise if the archive does not have the run either, or does not exist.

        Raises:
            NotFoundError: The archive does not have the run, or cannot be read.
            CliError: Only a newer version of the command can read the run.
        """
        try:
            async with self.reach(cluster) as api:
                found = await api.archived_run(name, workflow_id)
        except (NotFoundError, client_frontend.NoArchiveError):
            raise missing from None
        except ForbiddenError:
            raise NotFoundError(
                f"{missing}; if it is archived, you may not read it with these permissions: set --address or --service-account"
            ) from None
        except ClientError as error:
            raise NotFoundError(f"{missing}; it may be archived, but the archive cannot be read: {error}") from error
        version = state_versions.version_of(found.get("status") or {})
        if why := state_versions.unreadable(version, state_versions.NEWEST):
            run = found["metadata"]["name"]
            raise CliError(f"a newer version of Perdure has archived the run `{run}` ({why}); update `perdure`")
        return found

    @asynccontextmanager
    async def reach(self, cluster: Cluster) -> AsyncIterator[FrontendApi]:
        """Connect to the frontend that reads the archive.

        Raises:
            NoArchiveError: The installation has no archive.
            CliError: The frontend cannot be reached.
        """
        if self.address is None:
            await self._check(cluster)
        route = client_route.FrontendRoute(
            address=self.address,
            account=self.account,
            system=self.system,
            kubectl=kubectl_arguments(self.cluster),
        )
        async with client_route.reach(cluster, route, _SECONDS) as api:
            yield api

    async def _check(self, cluster: Cluster) -> None:
        """Check that the chart says that there is an archive, so that installations without one start no port-forward."""
        if not await has_archive(cluster, self.system):
            raise client_frontend.NoArchiveError(
                f"the installation in namespace `{self.system}` has no archive that commands can read: it needs "
                "`archive.enabled` and `temporal.enabled` in the chart; choose another namespace with --system-namespace"
            )


async def has_archive(cluster: Cluster, system: str) -> bool:
    """Whether the chart says that the installation in a namespace has an archive that commands can read.

    Raises:
        CliError: The Service cannot be read.
    """
    service = await cluster.diagnosis.read(paths.path(paths.CORE, system, "services", FRONTEND_SERVICE))
    return service is not None and ARCHIVE_ANNOTATION in (service["metadata"].get("annotations") or {})


def is_archived(run: Object) -> bool:
    """Whether a run was read from the archive."""
    return ARCHIVED_ANNOTATION in (run["metadata"].get("annotations") or {})


reads_archive = packed(ArchiveRoute, archive_options, context_option)
"""Let a verb find archived runs: after the context from Click, it gets the `ArchiveRoute`."""
