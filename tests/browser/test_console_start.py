"""The form of the console that starts runs, in Chromium."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.tab import SCREENS, check_accessibility, opened
from support.apiserver import ApiServer
from support.apiserver import serving as api_server
from support.console import NASTY, PERDURE, items, meta, ready

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

PATH = "/namespaces/shop/workflows/order-flow/start"
SCHEMA = {
    "type": "object",
    "required": ["id", "amount", "service"],
    "properties": {
        "amount": {"type": "integer", "minimum": 1, "title": "Amount", "description": "In cents, with all taxes"},
        "express": {"type": "boolean", "default": False, "title": "Express delivery"},
        "id": {"type": "string", "title": "Order", "description": "Its number in the shop"},
        "items": {"type": "array", "minItems": 1, "title": "Items", "items": {"type": "string"}, "default": ["lamp"]},
        "rate": {"type": "number", "title": "Exchange rate"},
        "service": {"enum": ["standard", "overnight"], "title": "Service"},
    },
}


def workflow(schema: Any, message: str = "") -> dict[str, Any]:
    status = ready("False", message) if message else ready()
    return {"metadata": meta("order-flow"), "spec": {"input": {"schema": schema}}, "status": status}


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server(tmp_path, monkeypatch) as found:
        found.answers |= {
            f"{PERDURE}/workflows": items(workflow(SCHEMA)),
            f"{PERDURE}/workflows/order-flow": workflow(SCHEMA),
            f"{PERDURE}/workflowruns": items(),
            "/api/v1/namespaces/shop/pods": items(),
            "/api/v1/namespaces/shop/events": items(),
        }
        yield found


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("screen", SCREENS)
def test_the_form_and_its_errors_are_accessible(browser: Any, screen: str, tmp_path: Path) -> None:
    with opened(browser, **SCREENS[screen]) as page:
        page.goto(PATH)
        page.screenshot(path=tmp_path / f"start-{screen}.png", full_page=True)
        check_accessibility(page, "start")
        page.get_by_label("Amount").fill("0")
        page.get_by_label("Items").fill("[")
        page.get_by_role("button", name="Start").click()
        page.get_by_role("alert").wait_for()
        page.screenshot(path=tmp_path / f"problems-{screen}.png", full_page=True)
        check_accessibility(page, "problems")
        page.goto(f"{PATH}?json")
        page.screenshot(path=tmp_path / f"json-{screen}.png", full_page=True)
        check_accessibility(page, "json")


def test_a_run_can_be_started_with_the_keyboard(browser: Any, api: ApiServer) -> None:
    with opened(browser) as page:
        page.goto("/namespaces/shop/workflows")
        page.get_by_role("link", name="Start order-flow").focus()
        page.keyboard.press("Enter")
        page.get_by_label("Amount").focus()
        for text in ("349", "A-1"):
            page.keyboard.type(text)
            page.keyboard.press("Tab")
        page.keyboard.type("over")  # selects the value with that prefix
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Start").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/runs/order-flow-*")
        page.get_by_role("heading", name="order-flow-").wait_for()
    (made,) = api.created
    assert made["spec"]["input"] == {
        "amount": 349,
        "express": False,
        "id": "A-1",
        "items": ["lamp"],
        "service": "overnight",
    }


def test_a_double_click_starts_one_run(browser: Any, api: ApiServer) -> None:
    with opened(browser) as page:
        page.goto(PATH)
        page.get_by_label("Amount").fill("349")
        page.get_by_label("Order").fill("A-1")
        page.get_by_label("Service").select_option("standard")
        page.get_by_role("button", name="Start").dblclick()
        page.wait_for_url("**/runs/order-flow-*")
        page.go_back()
        page.get_by_role("button", name="Start").wait_for()
    assert len(api.created) == 1


def test_an_error_links_to_its_field(browser: Any, api: ApiServer) -> None:
    with opened(browser) as page:
        page.goto(PATH)
        page.get_by_label("Amount").fill("0")
        page.get_by_label("Order").fill("A-1")
        page.get_by_label("Service").select_option("standard")
        page.get_by_role("button", name="Start").click()
        alert = page.get_by_role("alert")
        alert.get_by_role("link", name="Amount").click()
        field = page.get_by_label("Amount")
        assert page.evaluate("document.activeElement.name") == "input.amount"
        assert field.get_attribute("aria-invalid") == "true"
        assert "0 is less than the minimum of 1" in str(
            field.evaluate("it => it.ariaDescribedByElements.at(-1).textContent")
        )
        assert page.title().startswith("Error: ")
        assert page.get_by_label("Service").input_value() == '"standard"'
        assert not api.created
        field.fill("1")
        page.get_by_role("button", name="Start").click()
        page.wait_for_url("**/runs/order-flow-*")
    assert len(api.created) == 1


def test_user_input_is_not_executed(browser: Any, api: ApiServer) -> None:
    properties = {
        NASTY: {"title": NASTY, "description": NASTY, "enum": [NASTY, 1]},
        f"a{NASTY}": {"type": "string", "default": f"\n</textarea>{NASTY}"},
        f"b{NASTY}": {"type": "string", "default": NASTY},
    }
    nasty = workflow({"properties": properties, "required": [NASTY]}, NASTY)
    api.answers |= {f"{PERDURE}/workflows": items(nasty), f"{PERDURE}/workflows/order-flow": nasty}
    with opened(browser) as page:
        page.goto("/namespaces/shop/workflows")
        page.goto(PATH)
        page.get_by_label("Workflow ID").fill(NASTY)
        page.get_by_role("button", name="Start").click()
        page.get_by_role("alert").wait_for()
        check_accessibility(page, "nasty")
        assert page.get_by_label("Workflow ID").input_value() == NASTY
        page.get_by_role("combobox").first.select_option(index=1)
        page.get_by_role("button", name="Start").click()
        page.wait_for_url("**/runs/order-flow-*")
    (made,) = api.created
    assert made["spec"]["workflowId"] == NASTY
    assert made["spec"]["input"] == {NASTY: NASTY, f"a{NASTY}": f"\n</textarea>{NASTY}", f"b{NASTY}": NASTY}
