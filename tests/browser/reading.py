"""Runs of Workflows and of workflows in code, and helpers to read the pages of the Web UI."""

import asyncio
import json
import re
from typing import Any, Literal
from urllib.parse import quote

from temporalio.client import Client

from browser.flows import QUEUE
from browser.stand import Stand

Sort = Literal["yaml", "code"]
SORTS: tuple[Sort, ...] = ("yaml", "code")
RUNS = "/namespaces/default/workflows"


def order(name: str, wait: str = "1d") -> dict[str, Any]:
    return {"id": name, "items": ["lamp", "table"], "amount": 349, "changeOfMind": wait}


def approval(ui: Stand, sort: Sort, name: str, **options: Any) -> str:
    """Start a run that waits for a decision; returns the path of its pages."""
    if sort == "yaml":
        run = ui.start("approval", name, {"document": name, "patience": "1d"}, **options)
    else:
        run = ui.start("Approval", name, name, queue=QUEUE, **options)
    return f"{RUNS}/{name}/{run}"


def stuck(ui: Stand, sort: Sort, name: str) -> str:
    """Start a run with an activity that fails again and again; returns the path of its pages once it has failed."""
    started = approval(ui, "code", name) if sort == "code" else ui.start("order-flow", name, order("B-1"))

    async def failed(client: Client) -> None:
        async with asyncio.timeout(120):
            while True:
                description = await client.get_workflow_handle(name).describe()
                if any(each.attempt > 1 for each in description.raw_description.pending_activities):
                    return
                await asyncio.sleep(0.2)

    ui.do(failed)
    return started if sort == "code" else f"{RUNS}/{name}/{started}"


def matching(page: Any, query: str) -> None:
    """Open the list of the runs that match a query."""
    page.goto(f"{RUNS}?query={quote(query)}")


def opened(page: Any, workflow_id: str, tab: str = "") -> Any:
    """Open a run, and one of its tabs."""
    page.goto(f"/namespaces/default/workflows/{workflow_id}")
    page.get_by_role("heading", name=workflow_id).wait_for()
    if tab:
        page.get_by_role("tab", name=tab).click()
    return page.get_by_role("main")


def see(where: Any, text: str | re.Pattern[str]) -> None:
    """Wait until a text is visible."""
    where.get_by_text(text).filter(visible=True).first.wait_for()


def status(page: Any, wanted: str) -> None:
    page.get_by_role("status").filter(has_text=wanted).first.wait_for()


def choose(page: Any, item: str) -> None:
    """Choose an item of the menu with the actions of a run."""
    page.get_by_role("button", name="More Actions").filter(visible=True).click()
    page.get_by_test_id(item).filter(visible=True).click()


def shown(page: Any, dialog: str) -> Any:
    """Return the dialog that is visible."""
    return page.locator(f"#{dialog}").filter(visible=True).first


def confirm(page: Any, dialog: str) -> None:
    """Confirm a dialog. The page has each twice, one of them for phones."""
    shown(page, dialog).get_by_test_id("confirm-modal-button").click()


def write_json(where: Any, value: Any) -> None:
    """Write formatted JSON into the editor of an input: otherwise, the editor moves the buttons while they are pressed."""
    where.locator(".cm-content").filter(visible=True).first.fill(json.dumps(value, indent=2))
