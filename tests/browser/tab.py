"""The console in a tab of Chromium."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest

from perdure.cli.connection import connect
from perdure.console.server import serve_console
from perdure.console.site import ConsoleSettings, KubeconfigAccess

SCREENS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1300, "height": 900}},
    "dark": {"viewport": {"width": 1300, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 375, "height": 760}},
    # 200 % of a window that is 1280 pixels wide
    "zoom": {"viewport": {"width": 640, "height": 450}, "device_scale_factor": 2},
}
_REFUSED = "the server responded with a status of 4"
"""What Chromium says of a form that the console refuses."""


@contextmanager
def served() -> Iterator[str]:
    """Serve the console in its own thread, and yield its address."""
    loop = asyncio.new_event_loop()
    ready: asyncio.Future[str] = loop.create_future()
    stop = asyncio.Event()

    async def serve() -> None:
        settings = ConsoleSettings(namespace="shop", system_namespace="perdure-system", web_ui="http://127.0.0.1:8233")
        async with (
            connect(context=None, namespace=None, program="perdure") as found,
            serve_console(KubeconfigAccess(found), settings, 0) as guard,
        ):
            ready.set_result(guard.url())
            await stop.wait()

    async def started() -> str:
        return await ready

    thread = Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(started(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@contextmanager
def opened(browser: Any, **screen: Any) -> Iterator[Any]:
    """A tab with the address. Script errors and violations of the content security policy fail the test."""
    with served() as url:
        context = browser.new_context(base_url=url.partition("/?")[0], **screen)
        context.set_default_timeout(180_000)
        page, wrong = context.new_page(), list[str]()
        page.on(
            "console",
            lambda said: wrong.append(said.text) if said.type == "error" and _REFUSED not in said.text else None,
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.goto(url)
        yield page
        context.close()
        assert not wrong


def check_accessibility(page: Any, name: str) -> None:
    """Check a page for barriers, and that it is not wider than the window."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python").Axe()
    found = axe.run(page)
    assert found.violations_count == 0, f"{name}: {found.generate_report()}"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"
