"""Runs of Workflows, and of workflows in code, in Temporal's Web UI."""

import re
from typing import Any

import pytest

from browser.flows import QUEUE
from browser.reading import opened, order, see, status
from browser.stand import Stand

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]


def test_the_timeline_names_the_steps_and_the_activities(page: Any, ui: Stand) -> None:
    ui.start("order-flow", "order-timeline", order("A-1", "1s"))
    main = opened(page, "order-timeline", "Timeline")
    status(page, "Completed")
    for name in ("reserve-stock", "charge-card", "change-of-mind", "ship"):
        main.get_by_role("button", name=re.compile(f"^Event {name}.*: (Completed|Fired)$")).wait_for()
    step = main.get_by_role("button", name="Event charge-card").locator("iframe").content_frame
    see(step.locator("body"), re.compile("charge-card.*charge$|^charge$"))
    page.get_by_role("tab", name="Event History").click()
    see(main, "Timer Started")
    ui.start("Order", "code-timeline", "A-2", queue=QUEUE)
    main = opened(page, "code-timeline", "Timeline")
    step = main.get_by_role("button", name="Event charge-card").locator("iframe").content_frame
    see(step.locator("body"), "Charge the card")
