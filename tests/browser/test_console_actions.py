"""Re-drives, signals, and cancellations from the console, in Chromium."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.tab import SCREENS, check_accessibility, opened
from support import console
from support.apiserver import ApiServer
from support.apiserver import serving as api_server
from support.console import NASTY, PERDURE, fill, items, letter

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

LETTERS = "/namespaces/shop/deadletters"
RUN = "/namespaces/shop/runs/order-42"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server(tmp_path, monkeypatch) as found:
        fill(found, console.order())
        found.answers[f"{PERDURE}/deadletters"] = items(*(letter(f"order-{number}-charge") for number in (7, 8, 9)))
        run = console.order().object
        run["status"] = {**run["status"], "awaitedSignals": [{"name": NASTY, "step": "approval"}]}
        found.answers[f"{PERDURE}/workflowruns/order-42"] = run
        found.status = lambda _: {
            "phase": "Failed",
            "completionTime": "2026-01-01T12:00:00Z",
            "conditions": [{"type": "Failed", "status": "True", "reason": "Refused", "message": NASTY}],
        }
        yield found


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("screen", SCREENS)
def test_forms_and_their_results_are_accessible(browser: Any, screen: str, tmp_path: Path) -> None:
    with opened(browser, **SCREENS[screen]) as page:
        for name, path in {"letters": LETTERS, "letter": f"{LETTERS}/order-7-charge", "run": RUN}.items():
            page.goto(path)
            page.screenshot(path=tmp_path / f"{name}-{screen}.png", full_page=True)
            check_accessibility(page, name)
        page.goto(LETTERS)
        page.get_by_role("button", name="Re-drive order-7-charge").click()
        page.get_by_role("heading", name="Re-drive").wait_for()
        page.screenshot(path=tmp_path / f"answers-{screen}.png", full_page=True)
        check_accessibility(page, "answers")


def test_selected_dead_letters_can_be_redriven_with_the_keyboard(browser: Any, api: ApiServer) -> None:
    with opened(browser) as page:
        page.goto(LETTERS)
        for name in ("order-7-charge", "order-9-charge"):
            page.get_by_label(f"Select {name}").focus()
            page.keyboard.press("Space")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Re-drive").wait_for()
        page.get_by_role("cell", name=NASTY).first.wait_for()
        page.reload()  # sends the form again
        page.get_by_role("heading", name="Re-drive").wait_for()
    assert [made["spec"]["target"]["name"] for made in api.created] == ["order-7-charge", "order-9-charge"]


def test_a_double_click_redrives_once(browser: Any, api: ApiServer) -> None:
    with opened(browser) as page:
        page.goto(f"{LETTERS}/order-7-charge")
        page.get_by_role("button", name="Re-drive").dblclick()
        page.get_by_role("heading", name="Re-drive").wait_for()
    assert len(api.created) == 1


def test_a_waiting_run_can_be_approved_with_a_message(browser: Any, api: ApiServer) -> None:
    with opened(browser) as page:
        page.goto(RUN)
        page.get_by_role("link", name="Send a signal").click()
        assert page.get_by_label("Signal (required)", exact=True).input_value() == NASTY
        page.get_by_label("Input", exact=True).last.fill('{"approved": true, "message": "looks good"}')
        page.get_by_role("button", name="Send").click()
        page.get_by_role("heading", name="Signal").wait_for()
        page.goto(RUN)
        page.get_by_text("Cancel the run", exact=True).first.click()
        page.get_by_label("Reason").fill(NASTY)
        page.get_by_role("button", name="Cancel the run").click()
        page.get_by_role("heading", name="Cancellation").wait_for()
    signal, cancel = (made["spec"] for made in api.created)
    assert signal["signal"] == {"name": NASTY, "input": {"approved": True, "message": "looks good"}}
    assert cancel["cancel"] == {"reason": NASTY}
