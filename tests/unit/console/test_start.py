"""The form of the console that starts a run: it acts as the user, once, and executes nothing that users have written."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from perdure.console.forms import MAX_FORM, submitted
from support.apiserver import ApiServer
from support.apiserver import serving as api_server
from support.console import NASTY, PERDURE, Browser, items, meta, opened, parsed, ready, shown

PATH = "/namespaces/shop/workflows/order-flow/start"
SCHEMA = {
    "type": "object",
    "required": ["id", "amount"],
    "properties": {
        "amount": {"type": "integer", "minimum": 1, "title": "Amount", "description": "In cents"},
        "express": {"type": "boolean", "default": False},
        "id": {"type": "string"},
        "items": {"type": "array"},
    },
}


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server(tmp_path, monkeypatch) as found:
        found.answers |= {
            f"{PERDURE}/workflows": items(workflow(SCHEMA)),
            f"{PERDURE}/workflows/order-flow": workflow(SCHEMA),
            f"{PERDURE}/workflowruns": items(),
        }
        yield found


def workflow(schema: Any, status: Any = None) -> dict[str, Any]:
    return {"metadata": meta("order-flow"), "spec": {"input": {"schema": schema}}, "status": status or ready()}


async def fields(browser: Browser, **entered: str) -> list[tuple[str, str]]:
    """The form as the browser sends it."""
    page = await browser.get(PATH)
    (request,) = re.findall(r'name="request" value="([0-9a-f]{10})"', page)
    return [("request", request), *((name.replace("__", "."), value) for name, value in entered.items())]


ENTERED = {"input__amount": "349", "input__id": "A-1", "input__express": "true", "input__items": '["lamp"]'}


async def test_a_run_is_started_with_the_input_of_the_form(api: ApiServer) -> None:
    async with opened() as browser:
        assert f'href="{PATH}"' in await browser.get("/namespaces/shop/workflows")
        page = await browser.get(PATH)
        assert "Amount (required) A whole number. In cents" in shown(page)
        sent = await fields(browser, **ENTERED, workflowId=" order-A-1 ")
        _, leads_to = await browser.post(PATH, sent, 303)
    name = f"order-flow-{sent[0][1]}"
    assert leads_to == f"/namespaces/shop/runs/{name}"
    (made,) = api.created
    assert made["metadata"]["name"] == name
    order = {"amount": 349, "express": True, "id": "A-1", "items": ["lamp"]}
    assert made["spec"] == {"workflow": {"name": "order-flow"}, "workflowId": "order-A-1", "input": order}


async def test_a_form_submitted_twice_starts_one_run(api: ApiServer) -> None:
    async with opened() as browser:
        sent = await fields(browser, **ENTERED)
        answers = [await browser.post(PATH, sent, 303) for _ in range(2)]
        assert answers[0] == answers[1]
        assert len(api.created) == 1
        # Another input is not lost: it starts another run when it is sent again.
        page, _ = await browser.post(PATH, [*sent, ("input.amount", "350")], 409)
        assert f"This form has already started order-flow-{sent[0][1]}" in shown(page)
        (again,) = re.findall(r'name="request" value="([0-9a-f]{10})"', page)
        await browser.post(PATH, [("request", again), *sent[1:], ("input.amount", "350")], 303)
    assert [made["spec"]["input"]["amount"] for made in api.created] == [349, 350]


async def test_errors_are_shown_at_their_fields_and_input_is_kept(api: ApiServer) -> None:
    async with opened() as browser:
        sent = await fields(browser, input__amount="0", input__items="[", input__express='"x"', workflowId=NASTY)
        page, _ = await browser.post(PATH, sent, 422)
        assert f'name="request" value="{sent[0][1]}"' in page
    attributes = {
        values["name"]: values for tag, values in parsed(page).tags if values.get("name", "") and tag != "meta"
    }
    text = shown(page)
    for name, message in {
        "input.amount": "0 is less than the minimum of 1",
        "input.id": "Enter a value.",
        "input.items": "Enter JSON: Expecting value",
        "input.express": "Select one of the values.",
    }.items():
        assert attributes[name]["aria-invalid"] == "true"
        assert f"{attributes[name]['id']}-problem" in str(attributes[name]["aria-describedby"])
        assert f"✗ {message}" in text
    assert attributes["input.amount"]["value"] == "0"
    assert attributes["workflowId"]["value"] == NASTY
    assert not api.created


async def test_the_workflow_id_of_an_open_run_is_rejected_at_its_field(api: ApiServer) -> None:
    run = {"metadata": meta("other"), "spec": {"workflow": {"name": "x"}, "workflowId": "order-A-1"}, "status": {}}
    api.answers[f"{PERDURE}/workflowruns"] = items(run)
    async with opened() as browser:
        page, _ = await browser.post(PATH, await fields(browser, **ENTERED, workflowId="order-A-1"), 409)
    assert "Workflow ID : The open run other has this workflow ID." in shown(page)
    assert not api.created


async def test_an_error_of_the_api_server_is_shown_on_the_form(api: ApiServer) -> None:
    api.refuses = lambda _: True
    async with opened() as browser:
        page, _ = await browser.post(PATH, await fields(browser, **ENTERED), 502)
    assert "The request failed: the API server refused the request: it must not be" in shown(page)
    assert 'value="349"' in page


async def test_the_input_can_be_written_as_json(api: ApiServer) -> None:
    async with opened() as browser:
        assert f'href="{PATH}?json"' in await browser.get(PATH)
        page = await browser.get(f"{PATH}?json")
        assert f'href="{PATH}"' in page
        sent = await fields(browser, input='{"id": "A-1", "amount": 3, "more": [1]}')
        await browser.post(f"{PATH}?json", sent, 303)
    assert api.created[0]["spec"]["input"] == {"id": "A-1", "amount": 3, "more": [1]}


async def test_user_input_is_escaped(api: ApiServer) -> None:
    properties = {
        NASTY: {"title": NASTY, "description": NASTY, "enum": [NASTY, 1]},
        f"a{NASTY}": {"type": "string", "default": f"{NASTY}\n</textarea>{NASTY}"},
        f"b{NASTY}": {"type": "string", "default": NASTY},
        f"c{NASTY}": {"type": "object", "default": {NASTY: NASTY}},
    }
    schema = {"properties": properties, "required": [NASTY]}
    api.answers[f"{PERDURE}/workflows/order-flow"] = workflow(schema, ready("False", NASTY))
    async with opened() as browser:
        sent = await fields(browser, **{f"input.c{NASTY}": "</textarea><script>alert(1)</script>", "workflowId": NASTY})
        pages = [await browser.get(PATH), (await browser.post(PATH, sent, 422))[0]]
    for page in map(parsed, pages):
        assert [values for tag, values in page.tags if tag == "script"] == [
            {"src": "/static/console.js", "defer": None}
        ]
        assert not [tag for tag, _ in page.tags if tag in {"img", "style", "iframe"}]
        for tag, values in page.tags:
            assert not [name for name in values if name.startswith("on") or name == "style"], tag
        assert f"input.{NASTY}" in [values.get("name") for tag, values in page.tags if tag == "select"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
    ],
)
async def test_only_forms_of_the_console_are_accepted(api: ApiServer, headers: dict[str, str], status: int) -> None:
    async with opened() as browser:
        await browser.post(PATH, await fields(browser, **ENTERED), status, **headers)
    assert not api.created


async def test_without_fetch_metadata_the_origin_is_checked(api: ApiServer) -> None:
    async with opened() as browser:
        sent = await fields(browser, **ENTERED)
        for headers, status in (({}, 403), ({"Origin": browser.origin}, 303)):
            asked = browser.session.post(browser.origin + PATH, data=sent, headers=headers, allow_redirects=False)
            async with asked as answer:
                assert answer.status == status
    assert len(api.created) == 1


@pytest.mark.usefixtures("api")
async def test_a_form_without_a_request_id_or_with_many_fields_is_rejected() -> None:
    async with opened() as browser:
        await browser.post(PATH, [("input.id", "A-1")], 400)
        await browser.post(PATH, [("request", "../../x")], 400)
        await browser.post(PATH, [("x", "1")] * 1_001, 400)
        await browser.post("/namespaces/shop/workflows/none/start", await fields(browser), 404)


async def test_a_form_that_is_too_large_is_rejected() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x=" + b"x" * MAX_FORM, "more_body": False}

    headers = [(b"content-type", b"application/x-www-form-urlencoded"), (b"sec-fetch-site", b"same-origin")]
    with pytest.raises(HTTPException, match="413"):
        await submitted(Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive))


async def test_a_read_only_console_has_no_form(api: ApiServer) -> None:
    async with opened(read_only=True) as browser:
        assert "/start" not in await browser.get("/namespaces/shop/workflows")
        await browser.get(PATH, status=404)
        await browser.post(PATH, [("request", "0123456789"), ("input.id", "A-1"), ("input.amount", "1")], 404)
    assert not api.created
