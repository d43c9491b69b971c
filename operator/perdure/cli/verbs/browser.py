"""`ui` and `console`: Temporal's Web UI, and the pages that complement it, in the browser, with the user's own permissions."""

import asyncio
import html
import signal
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import click

from perdure.cli.archive import ArchiveRoute, reads_archive
from perdure.cli.command import option, verb
from perdure.cli.connection import connect
from perdure.cli.flags import kubectl_arguments
from perdure.cli.options import (
    account_option,
    audience_option,
    browser_option,
    context_option,
    local_port_option,
    namespace_option,
    system_namespace_option,
)
from perdure.cli.terminal import program_of
from perdure.client.errors import CliError
from perdure.client.route import AccountToken, KubeconfigToken, PortForward
from perdure.extras import MissingExtraError, required
from perdure.lazy import lazily

with lazily():
    from perdure.cli import web_ui as web_ui_proxy
    from perdure.console import server as console_server
    from perdure.console import site as console_site


@verb()
@namespace_option
@account_option
@local_port_option(8233)
@browser_option
@audience_option
@system_namespace_option
@option("--service", metavar="NAME", default="perdure-ui", help="Service of the Web UI")
@context_option
@click.pass_context
def ui(
    context: click.Context,
    *,
    namespace: str | None,
    account: str | None,
    port: int,
    browser: bool,
    audience: str,
    system: str,
    service: str,
    cluster: str | None,
) -> None:
    """Open the Web UI in the browser.

    A port-forward leads to the Web UI in the cluster (requires kubectl, and
    `ui.enabled` in the chart). It shows and does what your token permits: the one
    of the kubeconfig, if the frontend accepts cluster tokens, or one of a
    ServiceAccount, which is renewed as long as the command runs. Only the browser
    that has opened the printed address can use it. Press Ctrl-C to stop.

    \b
    Examples:
      {program} ui --service-account web-ui
      {program} ui -n shop --service-account me --no-browser
    """

    async def serve() -> None:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            token = KubeconfigToken(found) if account is None else AccountToken(found, account, audience)
            await token.current()
            forward = PortForward(system, service, 8080, kubectl_arguments(cluster))
            try:
                await forward.address()
                proxy = web_ui_proxy.Proxy(forward.address, token.current)
                async with proxy.serve(port):
                    await _show("Web UI", proxy.guard.url(f"/namespaces/{found.namespace}/workflows"), browser=browser)
            finally:
                await forward.close()

    asyncio.run(serve())


_CONNECTIONS = 64
"""Maximum number of concurrent requests to the API server; each followed log is one."""


@verb()
@namespace_option
@local_port_option(8234)
@browser_option
@option(
    "--web-ui",
    metavar="URL",
    default="http://127.0.0.1:8233",
    help="Address of the Web UI, for links to it; empty for none",
)
@option("--read-only", is_flag=True, help="Hide all actions, and reject them")
@reads_archive
def console(
    context: click.Context,
    archive: ArchiveRoute,
    *,
    namespace: str | None,
    port: int,
    browser: bool,
    web_ui: str,
    read_only: bool,
) -> None:
    """Open the console in the browser.

    Shows what the Web UI (`{program} ui`) cannot: the step graph of a run, live
    logs of its attempts, WorkflowLimits with their holders and waiters, circuit
    breakers, DeadLetters, and the fleet. Starts runs with a form, and re-drives
    DeadLetters. It runs on this computer, with the permissions of your kubeconfig.
    Only the browser that has opened the printed address can use it. Press Ctrl-C
    to stop.

    Requires the extra `console`: pip install 'perdure[console]'.

    \b
    Examples:
      {program} console
      {program} console -n shop --port 0 --no-browser
      {program} console --read-only
    """
    try:
        with required("console"):
            serve_console = console_server.serve_console
    except MissingExtraError as error:
        raise CliError(str(error)) from error

    if web_ui and urlsplit(web_ui).scheme not in {"http", "https"}:
        raise click.BadParameter("must begin with http:// or https://", param_hint="--web-ui")

    async def serve() -> None:
        reached = connect(
            context=archive.cluster, namespace=namespace, program=program_of(context), connections=_CONNECTIONS
        )
        async with reached as found:
            settings = console_site.ConsoleSettings(
                namespace=found.namespace, system_namespace=archive.system, web_ui=web_ui, read_only=read_only
            )
            async with serve_console(console_site.KubeconfigAccess(found, archive.reach), settings, port) as guard:
                await _show("console", guard.url(f"/namespaces/{found.namespace}/runs"), browser=browser)

    asyncio.run(serve())


_PAGE = """<!DOCTYPE html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Perdure</title>
<p><a href="{url}">Continue</a>
"""


@contextmanager
def opened(url: str) -> Iterator[None]:
    """Open an address with a key in the browser.

    Other users of the machine can read the arguments of the browser's process. So it opens a file that only the user can read,
    which leads to the address; the file exists within the block.
    """
    with TemporaryDirectory(prefix="perdure-") as folder:
        page = Path(folder, "open.html")
        page.touch(mode=0o600)
        page.write_text(_PAGE.format(url=html.escape(url)), encoding="utf-8")
        webbrowser.open(page.as_uri())
        yield


async def _show(what: str, url: str, *, browser: bool) -> None:
    """Print the address, open it in the browser, and wait for Ctrl-C, or for a termination signal from a supervisor."""
    click.echo(f"The {what} is at {url}\nPress Ctrl-C to end it.")
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with ExitStack() as pages:
        if browser:
            await asyncio.to_thread(pages.enter_context, opened(url))
        await stopped.wait()
