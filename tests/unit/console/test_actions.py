"""The actions of the console: re-drives, signals, and cancellations, as Operations of the user."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.api import labels
from perdure.console.forms import MAX_TARGETS
from support import console
from support.apiserver import ApiServer
from support.apiserver import serving as api_server
from support.console import NASTY, PERDURE, Browser, fill, items, letter, opened, parsed, shown

LETTERS = "/namespaces/shop/deadletters"
RUN = "/namespaces/shop/runs/order-42"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server(tmp_path, monkeypatch) as found:
        fill(found, console.order())
        done = letter("order-8-charge")
        done["status"] = {"conditions": [{"type": "Redriven", "status": "True"}]}
        found.answers[f"{PERDURE}/deadletters"] = items(letter(), letter("order-9-charge"), done)
        found.status = answer
        yield found


def answer(operation: dict[str, Any]) -> dict[str, Any]:
    """Reject requests to order-9-charge, and complete the others."""
    name = operation["spec"]["target"]["name"]
    if name == "order-9-charge":
        condition = {"type": "Failed", "status": "True", "reason": "Refused", "message": NASTY}
        return {"phase": "Failed", "completionTime": "2026-01-01T12:00:00Z", "conditions": [condition]}
    condition = {"type": "Complete", "status": "True", "reason": "Complete", "message": "it has it"}
    result = {"workflowRun": f"{name}-redrive-1"}
    return {
        "phase": "Complete",
        "completionTime": "2026-01-01T12:00:00Z",
        "conditions": [condition],
        "result": result,
    }


async def request_id(browser: Browser, path: str) -> tuple[str, str]:
    page = await browser.get(path)
    return "request", re.findall(r'name="request" value="([0-9a-f]{10})"', page)[0]


async def test_the_selected_dead_letters_are_redriven(api: ApiServer) -> None:
    async with opened() as browser:
        page = await browser.get(LETTERS)
        boxes = [values["value"] for _, values in parsed(page).tags if values.get("type") == "checkbox"]
        assert boxes == ["order-7-charge", "order-9-charge"]  # the third one has succeeded
        sent = [await request_id(browser, LETTERS), *(("name", str(name)) for name in boxes)]
        page, _ = await browser.post(f"{LETTERS}/redrive", sent, 200)
        await browser.post(f"{LETTERS}/redrive", sent, 200)
    text = shown(page)
    assert "order-7-charge ✓ Accepted order-7-charge-redrive-1 it has it" in text
    assert "order-9-charge ✗ Refused" in text
    assert NASTY.split(">")[0] in text
    assert [made["spec"] for made in api.created] == [
        {"target": {"kind": "DeadLetter", "name": name}, "redrive": {}} for name in boxes
    ]


@pytest.mark.parametrize("path", [LETTERS, f"{LETTERS}/order-7-charge"])
async def test_the_button_of_a_dead_letter_redrives_only_it(api: ApiServer, path: str) -> None:
    async with opened() as browser:
        assert '<button name="only" value="order-7-charge">' in (await browser.get(path)).replace(' class="main"', "")
        sent = [await request_id(browser, path), ("name", "order-9-charge"), ("only", "order-7-charge")]
        await browser.post(f"{LETTERS}/redrive", sent, 200)
    assert [made["spec"]["target"]["name"] for made in api.created] == ["order-7-charge"]


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("names", [[], ["../x"], [f"a-{number}" for number in range(MAX_TARGETS + 1)]])
async def test_an_invalid_selection_is_rejected(names: list[str]) -> None:
    async with opened() as browser:
        sent = [("request", "0123456789"), *(("name", name) for name in names)]
        page, _ = await browser.post(f"{LETTERS}/redrive", sent, 422)
    assert "Select 1 to 50 dead letters." in shown(page)


async def test_a_signal_is_sent_with_its_input(api: ApiServer) -> None:
    run = console.order().object
    run["status"] = {**run["status"], "awaitedSignals": [{"name": "approved", "step": "approval"}] * 2}
    api.answers[f"{PERDURE}/workflowruns/order-42"] = run
    async with opened() as browser:
        page = await browser.get(RUN)
        assert "The run waits for approved." in shown(page)
        assert [tag["value"] for _, tag in parsed(page).tags if tag.get("name") == "signal"] == ["approved"]
        sent = [("request", "0123456789"), ("signal", "approved"), ("input", '{"message": "yes"}')]
        page, _ = await browser.post(f"{RUN}/signal", sent, 200)
        assert "order-42 ✓ Accepted it has it" in shown(page)
        await browser.post(f"{RUN}/signal", [*sent[:2], ("input", '"no"')], 409)
    (made,) = api.created
    assert made["spec"] == {
        "target": {"kind": "WorkflowRun", "name": "order-42"},
        "signal": {"name": "approved", "input": {"message": "yes"}},
    }


async def test_an_invalid_signal_shows_the_form_again_with_the_problem_at_its_field(api: ApiServer) -> None:
    run = console.order().object
    run["status"] = {**run["status"], "awaitedSignals": [{"name": "approved", "step": "approval"}]}
    api.answers[f"{PERDURE}/workflowruns/order-42"] = run
    async with opened() as browser:
        sent = [("request", "0123456789"), ("signal", "approved"), ("input", NASTY)]
        page, _ = await browser.post(f"{RUN}/signal", sent, 422)
        assert "Input : Enter JSON: Expecting value" in shown(page)
        assert "The run waits for approved." in shown(page)
        fields = {tag["name"]: tag for _, tag in parsed(page).tags if tag.get("name") in {"signal", "input"}}
        assert fields["signal"]["value"] == "approved"
        assert fields["input"]["aria-invalid"] == "true"
        assert "signal-input-problem" in str(fields["input"]["aria-describedby"])
        assert NASTY in "".join(parsed(page).parts)  # the input of the user
        page, _ = await browser.post(f"{RUN}/signal", [sent[0], ("signal", " "), ("input", "yes")], 422)
        assert "Signal : Enter the name of the signal." in shown(page)
        assert "Input : Enter JSON" in shown(page)
        assert not api.created
        corrected = [await request_id(browser, RUN), sent[1], ("input", ' {"by": "ada"} ')]
        await browser.post(f"{RUN}/signal", corrected, 200)
    assert [made["spec"]["signal"] for made in api.created] == [{"name": "approved", "input": {"by": "ada"}}]


async def test_a_run_is_cancelled_with_a_reason(api: ApiServer) -> None:
    async with opened() as browser:
        sent = [await request_id(browser, RUN), ("reason", NASTY)]
        await browser.post(f"{RUN}/cancel", sent, 200)
    assert api.created[0]["spec"]["cancel"] == {"reason": NASTY}


async def test_a_pending_request_can_be_viewed_again(api: ApiServer) -> None:
    api.status = lambda _: {}
    async with opened(answer_seconds=0.0) as browser:
        sent = [await request_id(browser, RUN), ("reason", "")]
        assert "Reload the page" in shown((await browser.post(f"{RUN}/cancel", sent, 200))[0])
        api.status = answer
        assert "order-42 ✓ Accepted" in shown((await browser.post(f"{RUN}/cancel", sent, 200))[0])
    assert [made["spec"]["cancel"] for made in api.created] == [{}]


async def test_a_request_that_the_user_cannot_make_is_rejected(api: ApiServer) -> None:
    said = 'operations.perdure.dev is forbidden: User "ada" cannot create resource "operations"'
    monkey = (403, {"kind": "Status", "reason": "Forbidden", "message": said})
    api.create = lambda *_: monkey  # type: ignore[method-assign]
    async with opened() as browser:
        page, _ = await browser.post(f"{RUN}/cancel", [("request", "0123456789")], 403)
    assert (
        'User "ada" cannot create resource "operations". Ask your administrator for the role `perdure-on-call`'
        in shown(page)
    )


@pytest.mark.parametrize("path", [f"{LETTERS}/redrive", f"{RUN}/cancel", f"{RUN}/signal"])
async def test_only_forms_of_the_console_are_accepted(api: ApiServer, path: str) -> None:
    sent = [("request", "0123456789"), ("only", "order-7-charge"), ("signal", "approved")]
    async with opened() as browser:
        await browser.post(path, sent, 403, **{"Sec-Fetch-Site": "cross-site"})
        await browser.post(path, sent[1:], 400)
    assert not api.created


async def test_a_read_only_console_has_no_actions(api: ApiServer) -> None:
    sent = [("request", "0123456789"), ("only", "order-7-charge"), ("signal", "approved")]
    async with opened(read_only=True) as browser:
        for path in (LETTERS, f"{LETTERS}/order-7-charge", RUN):
            forms = [values for tag, values in parsed(await browser.get(path)).tags if tag == "form"]
            assert [values["action"] for values in forms] == ["/go"]
        for path in (f"{RUN}/cancel", f"{RUN}/signal"):
            await browser.post(path, sent, 404)
        await browser.post(f"{LETTERS}/redrive", sent, 405)
    assert not api.created


def closed(api: ApiServer, phase: str) -> None:
    run = console.order().object
    run["status"] = {**run["status"], "phase": phase, "completionTime": "2026-01-01T12:00:00Z"}
    run["metadata"]["labels"] = {"team": "shop", "perdure.dev/schedule": "nightly"}
    api.answers[f"{PERDURE}/workflowruns/order-42"] = run


@pytest.mark.parametrize(("phase", "verbs"), [("Completed", ["rerun"]), ("Failed", ["retry", "rerun"])])
async def test_a_closed_run_can_be_repeated_but_not_cancelled(api: ApiServer, phase: str, verbs: list[str]) -> None:
    closed(api, phase)
    async with opened() as browser:
        forms = [values["action"] or "" for tag, values in parsed(await browser.get(RUN)).tags if tag == "form"]
    assert [each.rpartition("/")[2] for each in forms] == ["go", *verbs]


async def test_a_failed_run_is_retried(api: ApiServer) -> None:
    closed(api, "Failed")
    async with opened() as browser:
        page, _ = await browser.post(f"{RUN}/retry", [await request_id(browser, RUN), ("reason", "fixed")], 200)
    assert "order-42 ✓ Accepted order-42-redrive-1 it has it" in shown(page)
    assert api.created[0]["spec"] == {
        "target": {"kind": "WorkflowRun", "name": "order-42"},
        "retry": {"reason": "fixed"},
    }


async def test_the_retries_of_a_run_are_shown(api: ApiServer) -> None:
    closed(api, "Failed")
    failed = api.answers[f"{PERDURE}/workflowruns/order-42"]
    lineage = [{"name": "order-42", "runId": failed["metadata"]["uid"], "eventId": 3}]
    notes = {labels.RESET_ANNOTATION: json.dumps({"requestId": "r", "lineage": lineage})}
    retry = {
        "metadata": console.meta("order-42-2", annotations=notes),
        "spec": {**failed["spec"], "workflowId": "order-42"},
        "status": {"phase": "Completed"},
    }
    api.answers[f"{PERDURE}/workflowruns"] = items(failed, retry)
    async with opened() as browser:
        page = shown(await browser.get(RUN))
    assert "Retried as order-42-2 ✓ Completed" in page
    assert "A retry of this run has completed." in page


async def test_a_run_is_rerun_once_for_each_form(api: ApiServer) -> None:
    closed(api, "Completed")
    async with opened() as browser:
        sent = [("request", "0123456789")]
        answers = [await browser.post(f"{RUN}/rerun", sent, 303) for _ in range(2)]
    assert [where for _, where in answers] == ["/namespaces/shop/runs/order-42-0123456789"] * 2
    (made,) = api.created
    assert (made["kind"], made["metadata"]["labels"]) == ("WorkflowRun", {"team": "shop"})
    assert made["spec"] == api.answers[f"{PERDURE}/workflowruns/order-42"]["spec"]


@pytest.mark.parametrize("verb", ["trigger", "pause", "unpause"])
async def test_a_schedule_is_paused_and_triggered(api: ApiServer, verb: str) -> None:
    async with opened() as browser:
        for path in ("/namespaces/shop/schedules", "/namespaces/shop/schedules/nightly"):
            assert f"{path.removesuffix('/nightly')}/nightly/trigger" in await browser.get(path)
        sent = [("request", "0123456789")]
        page, _ = await browser.post(f"/namespaces/shop/schedules/nightly/{verb}", sent, 200)
        await browser.post("/namespaces/shop/schedules/nightly/delete", sent, 404)
    assert "nightly ✓ Accepted" in shown(page)
    assert [made["spec"] for made in api.created] == [{"target": {"kind": "Schedule", "name": "nightly"}, verb: {}}]
