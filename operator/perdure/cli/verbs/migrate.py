"""`migrate`: move what can be moved from a running Temporal server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.exceptions import Exit

from perdure.cli.command import option, verb
from perdure.cli.connection import connect
from perdure.cli.routes import RouteOptions, routed
from perdure.cli.terminal import program_of
from perdure.client.errors import CliError, ExitCode

if TYPE_CHECKING:
    from temporalio.client import Client

_FILE: Final = click.Path(exists=True, dir_okay=False)


@verb()
@option("--from", "source", metavar="HOST:PORT", required=True, help="gRPC address of the Temporal server")
@option("--from-namespace", metavar="NAME", default="default", help="Namespace on the Temporal server")
@option("--from-api-key-file", metavar="FILE", type=_FILE, help="File with an API key of the Temporal server")
@option("--from-ca-file", metavar="FILE", type=_FILE, help="CA certificates of the Temporal server, for TLS")
@option("--from-cert-file", metavar="FILE", type=_FILE, help="Client certificate for the Temporal server, for mTLS")
@option("--from-key-file", metavar="FILE", type=_FILE, help="Private key of the client certificate")
@option("--from-tls", is_flag=True, help="Use TLS with the CA certificates of this machine")
@option("--workflow-type", "types", metavar="TYPE", multiple=True, help="Also restart open workflows of this type here")
@option("--take-over", is_flag=True, help="Pause the schedules and terminate the workflows on the Temporal server")
@option("--dry-run", is_flag=True, help="Print what would be moved, and change nothing")
@routed
def migrate(
    context: click.Context,
    route: RouteOptions,
    *,
    source: str,
    from_namespace: str,
    from_api_key_file: str | None,
    from_ca_file: str | None,
    from_cert_file: str | None,
    from_key_file: str | None,
    from_tls: bool,
    types: tuple[str, ...],
    take_over: bool,
    dry_run: bool,
) -> None:
    """Move what can be moved from a running Temporal server.

    Registers its search attributes, and creates its schedules, paused. With
    --take-over, pauses each schedule on the Temporal server, and unpauses it here
    if it ran there. Lists the namespaces of the server.

    With --workflow-type and --take-over, starts open workflows of this type here
    from the input of their current run, and terminates them there. Their progress
    in this run is lost: choose only types whose code can start over.

    You can repeat the command: it continues where it stopped.

    Exit status: 0 moved, 1 something was not moved, 2 error, 124 timeout.

    \b
    Examples:
      {program} migrate --from old:7233 --from-namespace shop --dry-run
      {program} migrate --from old:7233 --from-namespace shop
      {program} migrate --from old:7233 --workflow-type Poll --take-over
    """
    if types and not (take_over or dry_run):
        raise click.BadParameter("requires --take-over: the workflows would run twice", param_hint="--workflow-type")
    if bool(from_cert_file) != bool(from_key_file):
        raise click.UsageError("--from-cert-file and --from-key-file require each other")
    for text in (source, from_namespace, *types):
        text.encode()  # the Temporal SDK does not say what is wrong with a text that is not UTF-8
    from perdure.cli.migration import Migration  # noqa: PLC0415 - the Temporal SDK is slow to import

    async def move() -> bool:
        client = await _connected(
            source,
            from_namespace,
            api_key=_key(from_api_key_file),
            tls=from_tls or bool(from_ca_file or from_cert_file),
            authorities=_content(from_ca_file),
            certificate=_content(from_cert_file),
            key=_content(from_key_file),
        )
        async with (
            connect(context=route.cluster, namespace=route.namespace, program=program_of(context)) as cluster,
            route.reach(cluster) as api,
        ):
            migration = Migration(client, cluster, api, take_over=take_over, dry_run=dry_run)
            await migration.list_namespaces()
            await migration.move_search_attributes()
            await migration.move_schedules()
            for each in types:
                await migration.restart_workflows(each)
            return migration.complete

    from temporalio.service import RPCError  # noqa: PLC0415 - the same

    try:
        complete = asyncio.run(move())
    except RPCError as error:
        raise CliError(f"the Temporal server at {source} refused a request: {error.message}") from error
    if not complete:
        raise Exit(ExitCode.NO)


async def _connected(
    source: str,
    namespace: str,
    *,
    api_key: str | None,
    tls: bool,
    authorities: bytes | None,
    certificate: bytes | None,
    key: bytes | None,
) -> Client:
    from temporalio.client import Client  # noqa: PLC0415 - the same
    from temporalio.service import TLSConfig  # noqa: PLC0415 - the same

    config = TLSConfig(server_root_ca_cert=authorities, client_cert=certificate, client_private_key=key)
    try:
        return await Client.connect(source, namespace=namespace, tls=config if tls else False, api_key=api_key)
    except ValueError as error:
        raise CliError(f"{source!r} is not the address of a Temporal server: {error}; write HOST:PORT") from error
    except RuntimeError as error:
        raise CliError(f"the Temporal server at {source} cannot be reached: {error}") from error


def _key(file: str | None) -> str | None:
    """Return the API key in a file.

    Raises:
        BadParameter: It is not text.
    """
    try:
        return (_content(file) or b"").decode().strip() or None
    except UnicodeDecodeError:
        raise click.BadParameter(f"{file} is not UTF-8", param_hint="--from-api-key-file") from None


def _content(file: str | None) -> bytes | None:
    return Path(file).read_bytes() if file else None
