"""`console`: pages that complement Temporal's Web UI, in the browser, with the user's own permissions."""

import asyncio
import webbrowser
from urllib.parse import urlsplit

import click

from perdure.cli.command import option, verb
from perdure.cli.connection import connect
from perdure.cli.options import (
    browser_option,
    context_option,
    local_port_option,
    namespace_option,
    system_namespace_option,
)
from perdure.cli.terminal import program_of
from perdure.client.errors import CliError

web_uioption = option(
    "--web-ui",
    metavar="URL",
    default="http://127.0.0.1:8233",
    help="Address of the Web UI, for links to it; empty for none",
)


read_only_option = option("--read-only", is_flag=True, help="Hide all actions, and reject them")


_CONNECTIONS = 64
"""Maximum number of concurrent requests to the API server; each followed log is one."""


@verb()
@namespace_option
@local_port_option(8234)
@browser_option
@web_uioption
@read_only_option
@system_namespace_option
@context_option
@click.pass_context
def console(
    context: click.Context,
    *,
    namespace: str | None,
    port: int,
    browser: bool,
    web_ui: str,
    read_only: bool,
    system: str,
    cluster: str | None,
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
        from perdure.console.access import KubeconfigAccess
        from perdure.console.local import serve_console
        from perdure.console.site import ConsoleSettings
    except ModuleNotFoundError as error:
        raise CliError(f"{error}; install it with `pip install 'perdure[console]'`") from error

    from perdure.cli.web_ui import interrupted

    if web_ui and urlsplit(web_ui).scheme not in {"http", "https"}:
        raise click.BadParameter("must begin with http:// or https://", param_hint="--web-ui")

    async def serve() -> None:
        reached = connect(context=cluster, namespace=namespace, program=program_of(context), connections=_CONNECTIONS)
        async with reached as found:
            settings = ConsoleSettings(
                namespace=found.namespace, system_namespace=system, web_ui=web_ui, read_only=read_only
            )
            async with serve_console(KubeconfigAccess(found), settings, port) as guard:
                url = guard.url(f"/namespaces/{found.namespace}/runs")
                click.echo(f"The console is at {url}\nPress Ctrl-C to end it.")
                if browser:
                    await asyncio.to_thread(webbrowser.open, url)
                await interrupted()

    asyncio.run(serve())
