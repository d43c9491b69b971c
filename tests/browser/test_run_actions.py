"""The actions of Temporal's Web UI on runs of Workflows and of workflows in code."""

import re
from typing import Any

import pytest
from temporalio.client import Client

from browser.flows import QUEUE
from browser.reading import (
    RUNS,
    SORTS,
    Sort,
    approval,
    choose,
    confirm,
    matching,
    order,
    see,
    shown,
    status,
    stuck,
    write_json,
)
from browser.stand import Stand

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

each_sort = pytest.mark.parametrize("sort", SORTS)


@each_sort
def test_a_run_is_started_with_the_form(page: Any, ui: Stand, sort: Sort) -> None:
    name = f"started-{sort}"
    page.goto(f"{RUNS}/start-workflow")
    page.locator("#workflowId").fill(name)
    page.locator("#taskQueue").fill("workflows" if sort == "yaml" else QUEUE)
    page.locator("#workflowType").fill("order-flow" if sort == "yaml" else "Order")
    see(page.get_by_role("main"), "Task Queue is Active")
    write_json(page.get_by_role("main"), {"id": "A-9", "changeOfMind": "1s"} if sort == "yaml" else "A-9")
    page.get_by_test_id("start-workflow-button").filter(visible=True).click()
    see(page, re.compile("Workflow started successfully"))

    async def result(client: Client) -> Any:
        return await client.get_workflow_handle(name).result()

    assert ui.do(result) == "charged A-9" if sort == "code" else ui.do(result)["order"] == "A-9"


@each_sort
def test_a_signal_is_sent(page: Any, ui: Stand, sort: Sort) -> None:
    name = f"signaled-{sort}"
    page.goto(approval(ui, sort, name))
    status(page, "Running")
    choose(page, "signal-button")
    dialog = shown(page, "signal-confirmation-modal")
    signal = "decision" if sort == "yaml" else "decide"
    dialog.get_by_role("button", name="Select a signal").click()
    dialog.get_by_role("option", name=signal).first.click()
    write_json(dialog, {"approved": True, "by": "bob"} if sort == "yaml" else "yes")
    confirm(page, "signal-confirmation-modal")
    status(page, "Completed")


def test_an_update_is_sent(page: Any, ui: Stand) -> None:
    page.goto(approval(ui, "code", "updated-code"))
    status(page, "Running")
    choose(page, "update-button")
    dialog = shown(page, "update-confirmation-modal")
    dialog.get_by_role("button", name="Select an Update").click()
    dialog.get_by_role("option", name="write").first.click()
    write_json(dialog, "later")
    confirm(page, "update-confirmation-modal")
    see(page, re.compile("wrote later|Update successful"))


@each_sort
def test_a_run_is_cancelled(page: Any, ui: Stand, sort: Sort) -> None:
    page.goto(approval(ui, sort, f"cancelled-{sort}"))
    status(page, "Running")
    button = page.get_by_role("button", name="Request Cancellation").filter(visible=True)
    more = page.get_by_role("button", name="More Actions").filter(visible=True)
    more.wait_for()
    if button.count():
        button.click()
    else:
        choose(page, "request-cancellation-button")
    confirm(page, "cancel-confirmation-modal")
    status(page, "Canceled")


@each_sort
def test_a_run_is_terminated(page: Any, ui: Stand, sort: Sort) -> None:
    page.goto(approval(ui, sort, f"terminated-{sort}"))
    status(page, "Running")
    choose(page, "terminate-button")
    page.locator("#workflow-termination-reason").filter(visible=True).fill("wrong document")
    confirm(page, "terminate-confirmation-modal")
    status(page, "Terminated")


def test_a_run_of_code_is_reset(page: Any, ui: Stand) -> None:
    run = ui.start("Order", "reset-code", "A-5", queue=QUEUE)
    page.goto(f"{RUNS}/reset-code/{run}")
    status(page, "Completed")
    page.get_by_role("button", name="Reset", exact=True).filter(visible=True).click()
    dialog = shown(page, "reset-confirmation-modal")
    dialog.get_by_test_id("workflow-reset-event-id-select-button").click()
    dialog.get_by_role("option").first.click()
    confirm(page, "reset-confirmation-modal")
    page.get_by_test_id("workflow-reset-alert").wait_for()


def test_a_run_of_a_workflow_cannot_be_reset(page: Any, ui: Stand) -> None:
    run = ui.start("order-flow", "reset-yaml", order("A-6", "1s"))
    page.goto(f"{RUNS}/reset-yaml/{run}")
    status(page, "Completed")
    assert page.get_by_role("button", name="Reset", exact=True).filter(visible=True).is_disabled()


@each_sort
def test_an_activity_is_paused_and_reset(page: Any, ui: Stand, sort: Sort) -> None:
    page.goto(f"{stuck(ui, sort, f'activity-{sort}')}/pending-activities")
    page.get_by_role("button", name="Reset", exact=True).first.click()
    page.get_by_test_id("activity-reset-confirmation-modal").get_by_role("button", name="Reset").click()
    see(page, re.compile("has been reset successfully"))
    page.get_by_role("button", name="Pause", exact=True).first.click()
    page.locator("#activity-pause-reason").filter(visible=True).fill("the bank is closed")
    page.get_by_test_id("activity-pause-confirmation-modal").get_by_role("button", name="Pause").click()
    see(page, "the bank is closed")
    page.get_by_role("button", name="Unpause", exact=True).first.click()
    page.get_by_test_id("activity-unpause-confirmation-modal").get_by_role("button", name="Unpause").click()
    page.get_by_role("button", name="Pause", exact=True).first.wait_for()


def test_the_options_of_an_activity_are_changed(page: Any, ui: Stand) -> None:
    page.goto(f"{stuck(ui, 'code', 'options-code')}/pending-activities")
    page.get_by_role("button", name="Update", exact=True).first.click()
    drawer = page.locator("#activity-options-update-drawer").filter(visible=True)
    drawer.get_by_label("Retry Max Attempts").fill("70")
    drawer.get_by_role("button", name="Save").click()
    see(page, re.compile("have been updated"))


def test_selected_runs_are_terminated_as_a_batch(page: Any, ui: Stand) -> None:
    for sort in SORTS:
        approval(ui, sort, f"batch-{sort}")
    matching(page, 'WorkflowId STARTS_WITH "batch-"')
    for sort in SORTS:
        page.get_by_role("link", name=f"batch-{sort}").first.wait_for()
    page.get_by_test_id("batch-actions-checkbox").click()
    page.get_by_test_id("select-all-workflows").click()
    page.get_by_test_id("bulk-terminate-button").click()
    page.get_by_test_id("batch-terminate-confirmation").get_by_test_id("confirm-modal-button").click()
    for sort in SORTS:
        page.goto(f"{RUNS}/batch-{sort}")
        status(page, "Terminated")
    page.goto("/namespaces/default/batch-operations")
    see(page.get_by_role("main"), re.compile("Terminate"))
