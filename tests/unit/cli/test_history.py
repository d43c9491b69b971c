"""`perdure history`: the order of events, and following them."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from perdure.cli.app import build
from support.apiserver import ApiServer
from support.view.flow import Flow, charged_after_two_refusals

RUN = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns/order-42"


def history(*options: str) -> Result:
    arguments = ["history", "order-42", "--color", "never", *options]
    return CliRunner().invoke(build("perdure", ["history", "version"]), arguments)


def ids(done: Result) -> list[int]:
    assert done.exit_code == 0, done.stderr
    return [int(line.split()[0]) for line in done.stdout.splitlines()[1:]]


def as_stored(flow: Flow, version: int) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(json.dumps(flow.object))
    stored["metadata"]["resourceVersion"] = str(version)
    return stored


def test_events_can_be_listed_newest_first(server: ApiServer) -> None:
    flow = charged_after_two_refusals()
    server.answers[RUN] = flow.object
    inorder = ids(history())
    assert inorder == sorted(inorder)
    assert ids(history("--reverse")) == inorder[::-1]
    found = json.loads(history("--reverse", "-o", "json").stdout)["events"]
    assert found == flow.status["history"]["events"][::-1]


def test_new_events_are_printed_until_the_run_ends(server: ApiServer) -> None:
    flow = charged_after_two_refusals()
    looks = [as_stored(flow, 1), as_stored(flow, 1)]
    before = len(flow.status["history"]["events"])
    looks.append(as_stored(flow.at(56), 2))
    following = iter(looks)
    server.answers[RUN] = lambda: next(following)
    done = history("--follow")
    assert ids(done) == list(range(1, len(flow.status["history"]["events"]) + 1))
    assert len(ids(done)) > before
    assert sum("EVENT" in line for line in done.stdout.splitlines()) == 1
    assert next(following, None) is None


def test_a_run_that_is_deleted_ends_the_command(server: ApiServer) -> None:
    looks = iter([as_stored(charged_after_two_refusals(), 1)])
    gone = (404, {"kind": "Status", "reason": "NotFound", "message": 'workflowruns "order-42" not found'})
    server.answers[RUN] = lambda: next(looks, gone)
    done = history("--follow")
    assert done.exit_code == 2
    assert len(done.stdout.splitlines()) > 1


@pytest.mark.parametrize("other", [["--reverse"], ["-o", "json"]], ids=" ".join)
def test_following_shows_text_in_the_order_of_events(server: ApiServer, other: list[str]) -> None:
    done = history("--follow", *other)
    assert (done.exit_code, server.asked) == (2, [])
    assert "leave out --reverse and --output" in " ".join(done.stderr.split())
