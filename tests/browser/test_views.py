"""The views of Temporal's Web UI, of runs of Workflows and of workflows in code."""

import re
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from browser.flows import QUEUE
from browser.reading import RUNS, SORTS, Sort, approval, confirm, matching, order, see, status, stuck
from browser.stand import Stand

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

each_sort = pytest.mark.parametrize("sort", SORTS)


def test_the_list_filters_and_counts_runs(page: Any, ui: Stand) -> None:
    approval(ui, "yaml", "listed-yaml")
    approval(ui, "code", "listed-code")
    matching(page, 'WorkflowId STARTS_WITH "listed-"')
    for name in ("listed-yaml", "listed-code"):
        page.get_by_role("link", name=name).first.wait_for()
    assert page.get_by_test_id("workflow-count").inner_text() == "2"
    see(page.get_by_role("main"), re.compile(r"2\s*Running"))
    matching(page, 'WorkflowId STARTS_WITH "listed-" AND WorkflowType = "approval"')
    page.get_by_role("link", name="listed-yaml").first.wait_for()
    assert page.get_by_role("link", name="listed-code").count() == 0


def test_a_filter_is_saved_as_a_view(page: Any, ui: Stand) -> None:
    approval(ui, "yaml", "viewed-yaml")
    matching(page, '`WorkflowId`="viewed-yaml"')
    page.get_by_role("link", name="viewed-yaml").first.wait_for()
    page.get_by_test_id("create-view-button").click()
    dialog = page.get_by_role("dialog", name="Save as New View")
    dialog.get_by_role("textbox").fill("Mine")
    dialog.get_by_role("button", name="Save", exact=True).click()
    saved = page.get_by_role("link", name="saved view: Mine")
    saved.wait_for()
    page.get_by_role("link", name="Running", exact=True).click()
    page.wait_for_url(re.compile("ExecutionStatus"))
    saved.click()
    page.wait_for_url(re.compile("viewed-yaml"))


@each_sort
def test_pending_activities_show_attempts_and_failures(page: Any, ui: Stand, sort: Sort) -> None:
    page.goto(f"{stuck(ui, sort, f'pending-{sort}')}/pending-activities")
    main = page.get_by_role("main")
    main.get_by_role("heading", name="charge-card" if sort == "yaml" else "call-bank").wait_for()
    see(main, re.compile("the card network does not answer" if sort == "yaml" else "the bank does not answer"))
    see(main, "Attempt")


@each_sort
def test_the_workers_tab_lists_pollers_of_the_task_queue(page: Any, ui: Stand, sort: Sort) -> None:
    page.goto(f"{approval(ui, sort, f'polled-{sort}')}/workers")
    page.get_by_role("button", name=re.compile("^Pollers")).click()
    see(page.get_by_role("main"), "perdure.dev/operator" if sort == "yaml" else re.compile(r"\d+@"))


@each_sort
def test_the_page_of_a_task_queue_lists_its_pollers(page: Any, sort: Sort) -> None:
    page.goto(f"/namespaces/default/task-queues/{'workflows' if sort == 'yaml' else QUEUE}")
    page.get_by_role("button", name=re.compile("^Pollers")).click()
    see(page.get_by_role("main"), "perdure.dev/operator" if sort == "yaml" else re.compile(r"\d+@"))


@each_sort
def test_the_call_stack_shows_what_the_run_waits_for(page: Any, ui: Stand, sort: Sort) -> None:
    page.goto(f"{approval(ui, sort, f'stack-{sort}')}/call-stack")
    stack = page.get_by_test_id("query-call-stack")
    see(stack, re.compile("answer" if sort == "yaml" else "call-bank"))


@each_sort
def test_queries_are_answered(page: Any, ui: Stand, sort: Sort) -> None:
    page.goto(f"{approval(ui, sort, f'queried-{sort}')}/query")
    page.get_by_test_id("query-result").wait_for()
    if sort == "code":
        page.get_by_test_id("query-select-button").click()
        page.get_by_role("option", name="note").click()
    page.get_by_role("button", name=re.compile("Run Query|Refresh")).click()
    see(page.get_by_test_id("query-result"), re.compile("ask" if sort == "yaml" else "nothing yet"))


@each_sort
def test_user_metadata_shows_what_the_run_waits_for(page: Any, ui: Stand, sort: Sort) -> None:
    page.goto(f"{approval(ui, sort, f'details-{sort}')}/user-metadata")
    frame = page.get_by_role("main").locator("iframe").first.content_frame
    see(frame.locator("body"), re.compile("decision"))


@each_sort
def test_search_attributes_and_memo_are_shown(page: Any, ui: Stand, sort: Sort) -> None:
    async def register(client: Client) -> None:
        kinds = {"Team": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD}
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace="default", search_attributes=kinds)
        )

    ui.do(register)
    team = SearchAttributePair(SearchAttributeKey.for_keyword("Team"), "shipping")
    path = approval(ui, sort, f"memo-{sort}", memo={"team": "blue"}, search_attributes=TypedSearchAttributes([team]))
    page.goto(f"{path}/memo")
    see(page.get_by_role("main"), re.compile("blue"))
    page.goto(f"{path}/search-attributes")
    see(page.get_by_role("main"), "shipping")


@each_sort
def test_relationships_link_a_run_with_its_child(page: Any, ui: Stand, sort: Sort) -> None:
    child = f"child-{sort}"
    if sort == "yaml":
        run = ui.start("parent", f"parent-{sort}", {"child": child})
    else:
        run = ui.start("Parent", f"parent-{sort}", child, queue=QUEUE)
    page.goto(f"{RUNS}/parent-{sort}/{run}/relationships")
    page.get_by_role("main").get_by_text(child).filter(visible=True).first.wait_for()
    page.goto(f"{RUNS}/{child}")
    page.get_by_role("heading", name=child).wait_for()
    page.get_by_role("tab", name="Relationships").click()
    see(page.get_by_role("main"), f"parent-{sort}")


@each_sort
def test_a_history_is_downloaded_and_imported(page: Any, ui: Stand, sort: Sort, tmp_path: Path) -> None:
    if sort == "yaml":
        path = f"{RUNS}/history-{sort}/{ui.start('order-flow', f'history-{sort}', order('A-3', '1s'))}"
    else:
        path = f"{RUNS}/history-{sort}/{ui.start('Order', f'history-{sort}', 'A-3', queue=QUEUE)}"
    page.goto(f"{path}/history")
    status(page, "Completed")
    page.get_by_test_id("download").filter(visible=True).click()
    with page.expect_download() as download:
        confirm(page, "download-history")
    download.value.save_as(tmp_path / "history.json")
    page.goto("/import/events")
    page.locator("input[type=file]").set_input_files(tmp_path / "history.json")
    page.get_by_role("button", name="Import").filter(visible=True).last.click()
    see(page.get_by_role("main"), re.compile("charge-card|Workflow Execution Completed"))
