"""Fixtures for tests in a real browser. They need Chromium and Playwright; without them, they are skipped."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.stand import Stand, stand

_CHROMIUM = shutil.which("chromium")
_PATIENCE = 180_000
"""Milliseconds that a page may take: a machine that runs other tests is slow."""


@pytest.fixture(scope="session")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The Web UI over an operator in memory."""
    with stand(tmp_path_factory.mktemp("ui")) as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: uv run --with playwright")
    if _CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, ui: Stand, tmp_path: Path) -> Iterator[Any]:
    """A page of the Web UI. Requests that the frontend refuses, and errors of scripts, fail the test."""
    context = browser.new_context(base_url=ui.url, viewport={"width": 1500, "height": 1100})
    context.set_default_timeout(_PATIENCE)
    made = context.new_page()
    refused: list[str] = []

    def on_response(response: Any) -> None:
        if response.status >= 400:
            refused.append(f"{response.status} {response.request.method} {response.url.removeprefix(ui.url)}")

    made.on("response", on_response)
    made.on("pageerror", lambda error: refused.append(str(error)))
    yield made
    made.screenshot(path=tmp_path / "page.png")
    context.close()
    assert not refused
