"""`ui`: Temporal's Web UI in the browser, with the user's own permissions."""

import asyncio
import webbrowser
from typing import Annotated

import typer

from perdure.cli.connection import connect
from perdure.cli.options import BrowserOption, ContextOption, LocalPortOption, NamespaceOption, SystemNamespaceOption
from perdure.cli.talking import AUDIENCE, AccountOption, AudienceOption
from perdure.cli.terminal import program_of

HELP = """Open the Web UI in the browser.

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

ServiceOption = Annotated[str, typer.Option("--service", metavar="NAME", help="Service of the Web UI")]


def command(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    account: AccountOption = None,
    port: LocalPortOption = 8233,
    browser: BrowserOption = True,
    audience: AudienceOption = AUDIENCE,
    system: SystemNamespaceOption = "perdure-system",
    service: ServiceOption = "perdure-ui",
    cluster: ContextOption = None,
) -> None:
    """Serve the Web UI until interrupted."""
    from perdure.cli.flags import kubectl_arguments
    from perdure.cli.frontend import AccountToken, KubeconfigToken, PortForward
    from perdure.cli.web_ui import Proxy, interrupted

    async def serve() -> None:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            token = KubeconfigToken(found) if account is None else AccountToken(found, account, audience)
            await token.current()
            forward = PortForward(system, service, 8080, kubectl_arguments(cluster))
            try:
                await forward.address()
                proxy = Proxy(forward.address, token.current)
                async with proxy.serving(port):
                    url = proxy.url(f"/namespaces/{found.namespace}/workflows")
                    typer.echo(f"The Web UI is at {url}\nPress Ctrl-C to end it.")
                    if browser:
                        await asyncio.to_thread(webbrowser.open, url)
                    await interrupted()
            finally:
                await forward.close()

    asyncio.run(serve())
