"""The console in Chromium: it can be read by everyone, updates itself, and executes nothing that users have written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.tab import SCREENS, check_accessibility, opened
from support import console
from support.apiserver import ApiServer
from support.apiserver import serving as api_server

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

RUN = "/namespaces/shop/runs/order-42"
PAGES = {
    "run": RUN,
    "fan-out": "/namespaces/shop/runs/album-1",
    "log": f"{RUN}/logs/order-42-5-3",
    "runs": "/namespaces/shop/runs",
    "workflows": "/namespaces/shop/workflows",
    "limits": "/namespaces/shop/limits",
    "retrypolicies": "/namespaces/shop/retrypolicies",
    "deadletters": "/namespaces/shop/deadletters",
    "deadletter": "/namespaces/shop/deadletters/order-7-charge",
    "fleet": "/fleet",
}


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server(tmp_path, monkeypatch) as found:
        attempts = [
            console.pod("order-42-2-2", "reserve", 2),
            console.pod("order-42-5-1", "charge", 1, event=5, code=1),
            console.pod("order-42-5-3", "charge", 3, event=5, code=None),
        ]
        console.fill(found, console.order(), *attempts)
        found.answers[f"{console.PERDURE}/workflowruns/album-1"] = console.fanned_out(6).object
        yield found


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("screen", SCREENS)
def test_the_pages_are_accessible(browser: Any, screen: str, tmp_path: Path) -> None:
    with opened(browser, **SCREENS[screen]) as page:
        for name, path in PAGES.items():
            page.goto(path)
            page.screenshot(path=tmp_path / f"{name}-{screen}.png", full_page=True)
            check_accessibility(page, name)


def test_a_fan_out_of_200_is_drawn_partially(browser: Any, api: ApiServer) -> None:
    api.answers[f"{console.PERDURE}/workflowruns/album-1"] = console.fanned_out(200).object
    with opened(browser) as page:
        page.goto(PAGES["fan-out"])
        page.get_by_text("more steps are not drawn").wait_for()
        assert page.locator("svg a").count() == 300


def test_the_page_of_an_open_run_refreshes(browser: Any, api: ApiServer) -> None:
    with opened(browser) as page:
        page.goto(RUN)
        main = page.get_by_role("main")
        main.get_by_text("Running").first.wait_for()
        row = main.get_by_role("row", name="charge#1")
        row.get_by_role("link").focus()
        closed = console.order().object
        closed["status"] = {**closed["status"], "phase": "Completed", "output": {"text": console.NASTY}}
        api.answers[f"{console.PERDURE}/workflowruns/order-42"] = closed
        main.get_by_text("Completed").first.wait_for()
        assert page.evaluate("document.activeElement.getAttribute('href')").endswith("/order-42-5-1")
        assert page.get_by_label("Update this page").count() == 0


@pytest.mark.usefixtures("api")
def test_the_log_is_shown_as_text(browser: Any) -> None:
    with opened(browser) as page:
        page.goto(RUN)
        page.get_by_role("link", name="Log of charge#3").click()
        page.get_by_text("The log has ended").wait_for()
        lines = page.get_by_label("Log", exact=True).inner_text().splitlines()
        assert lines[-1] == "2026-01-01T12:00:02Z done"
        assert "<script>alert(1)</script>" in lines[0]


@pytest.mark.usefixtures("api")
def test_the_console_can_be_used_with_the_keyboard(browser: Any) -> None:
    with opened(browser) as page:
        page.goto(RUN)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        for link in ("Send a signal, or cancel the run", "History, timeline, and more actions in the Web UI"):
            assert page.evaluate("document.activeElement.textContent") == link
            page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Graph of the steps"
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.url.endswith("#step-reserve")
