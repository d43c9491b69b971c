"""`ui`: Temporal's Web UI in the browser, with the user's own permissions."""

import asyncio
import webbrowser

import click

from perdure.cli.command import option, verb
from perdure.cli.connection import connect
from perdure.cli.flags import kubectl_arguments
from perdure.cli.frontend import AccountToken, KubeconfigToken, PortForward
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

service_option = option("--service", metavar="NAME", default="perdure-ui", help="Service of the Web UI")


@verb()
@namespace_option
@account_option
@local_port_option(8233)
@browser_option
@audience_option
@system_namespace_option
@service_option
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
    from perdure.cli.web_ui import Proxy, interrupted

    async def serve() -> None:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            token = KubeconfigToken(found) if account is None else AccountToken(found, account, audience)
            await token.current()
            forward = PortForward(system, service, 8080, kubectl_arguments(cluster))
            try:
                await forward.address()
                proxy = Proxy(forward.address, token.current)
                async with proxy.serve(port):
                    url = proxy.url(f"/namespaces/{found.namespace}/workflows")
                    click.echo(f"The Web UI is at {url}\nPress Ctrl-C to end it.")
                    if browser:
                        await asyncio.to_thread(webbrowser.open, url)
                    await interrupted()
            finally:
                await forward.close()

    asyncio.run(serve())
