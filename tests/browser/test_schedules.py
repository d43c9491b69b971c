"""Schedules in Temporal's Web UI, of runs of Workflows and of workflows in code."""

import re
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleIntervalSpec, ScheduleSpec

from browser.flows import QUEUE
from browser.reading import RUNS, SORTS, Sort, confirm, order, see, shown, write_json
from browser.stand import Stand

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

SCHEDULES = "/namespaces/default/schedules"
each_sort = pytest.mark.parametrize("sort", SORTS)


def opened(page: Any, ui: Stand, sort: Sort, verb: str) -> str:
    """Create a Schedule, and open its page; returns its name."""
    name = f"{verb}-{sort}"
    workflow, argument, queue = (
        ("order-flow", order("A-1", "1s"), "workflows") if sort == "yaml" else ("Order", "A-1", QUEUE)
    )
    action = ScheduleActionStartWorkflow(workflow, argument, id=f"{name}-run", task_queue=queue)
    spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(hours=1))])

    async def create(client: Client) -> None:
        await client.create_schedule(name, Schedule(action=action, spec=spec))

    ui.do(create)
    page.goto(f"{SCHEDULES}/{name}")
    page.get_by_test_id("schedule-name").filter(has_text=name).wait_for()
    return name


def choose(page: Any, action: str) -> None:
    """Choose an item of the menu with the actions of a Schedule, and confirm it."""
    page.get_by_label("Schedule Actions").first.click()
    page.get_by_test_id(f"{action}-schedule").click()
    confirm(page, f"{action}-schedule-modal")


@each_sort
def test_a_schedule_is_created_with_the_form(page: Any, sort: Sort) -> None:
    name = f"created-{sort}"
    page.goto(f"{SCHEDULES}/create")
    page.get_by_test_id("schedule-name-input").fill(name)
    page.get_by_test_id("schedule-type-input").fill("order-flow" if sort == "yaml" else "Order")
    page.get_by_test_id("schedule-workflow-id-input").fill(f"{name}-run")
    page.get_by_test_id("schedule-task-queue-input").fill("workflows" if sort == "yaml" else QUEUE)
    write_json(page.get_by_role("main"), {"id": "A-1", "changeOfMind": "1s"} if sort == "yaml" else "A-1")
    page.get_by_role("textbox", name="Cron expression").fill("0 3 * * *")
    page.get_by_test_id("create-schedule-button").click()
    page.wait_for_url(re.compile(f"{SCHEDULES}$"))
    page.get_by_role("link", name=name).first.wait_for()


@each_sort
def test_a_schedule_is_paused_and_unpaused(page: Any, ui: Stand, sort: Sort) -> None:
    opened(page, ui, sort, "paused")
    for button in ("Pause", "Unpause"):
        page.get_by_role("button", name=button, exact=True).filter(visible=True).first.click()
        shown(page, "pause-schedule-modal").get_by_role("textbox").fill("holidays")
        confirm(page, "pause-schedule-modal")
    page.get_by_role("button", name="Pause", exact=True).filter(visible=True).first.wait_for()


@each_sort
def test_a_schedule_is_triggered(page: Any, ui: Stand, sort: Sort) -> None:
    name = opened(page, ui, sort, "triggered")
    choose(page, "trigger")
    page.locator(f"a[href*='{RUNS}/{name}-run']").first.wait_for()


@each_sort
def test_a_schedule_is_backfilled(page: Any, ui: Stand, sort: Sort) -> None:
    opened(page, ui, sort, "backfilled")
    choose(page, "backfill")
    shown(page, "backfill-schedule-modal").wait_for(state="hidden")


@each_sort
def test_a_schedule_is_edited(page: Any, ui: Stand, sort: Sort) -> None:
    name = opened(page, ui, sort, "edited")
    page.goto(f"{SCHEDULES}/{name}/edit")
    page.get_by_test_id("schedule-workflow-id-input").fill(f"{name}-again")
    page.get_by_test_id("create-schedule-button").click()
    page.wait_for_url(re.compile(f"{SCHEDULES}/{name}$"))

    async def workflow_id(client: Client) -> str:
        description = await client.get_schedule_handle(name).describe()
        action = description.schedule.action
        assert isinstance(action, ScheduleActionStartWorkflow)
        return action.id

    assert ui.do(workflow_id) == f"{name}-again"


@each_sort
def test_a_schedule_is_deleted(page: Any, ui: Stand, sort: Sort) -> None:
    name = opened(page, ui, sort, "deleted")
    choose(page, "delete")
    page.wait_for_url(re.compile(f"{SCHEDULES}$"))
    see(page, re.compile("Schedule"))
    assert page.get_by_role("link", name=name).count() == 0
