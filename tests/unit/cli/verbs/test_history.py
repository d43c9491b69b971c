"""`perdure history`: the order of events, and following them."""

import asyncio
import base64
import json
from typing import Any

import pytest
from click.testing import Result
from temporalio import workflow
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from perdure.api.state_versions import NEWEST, stamped
from perdure.engine import commands as cmd
from perdure.runtime import blobs
from support.apiserver import ApiServer
from support.cli import perdure
from support.engine.coded import Coded, timer
from support.engine.standalone import begin
from support.view.coderun import object_of
from support.view.flow import Flow, charged_after_two_refusals
from support.view.standalone import object_of as standalone_object

RUN = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns/order-42"
PAYLOADS = "/apis/perdure.dev/v1alpha1/namespaces/shop/payloads"


def history(*options: str) -> Result:
    arguments = ["history", "order-42", "--color", "never", *options]
    return perdure(*arguments)


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


async def test_the_temporal_form_replays_with_an_sdk(server: ApiServer) -> None:
    """Issue 44, C 3: the replayers of SDKs rejected the JSON of `history`."""
    run = Coded.begin(input="A-1")
    run.decide(timer("1", 5))
    run.at(6)
    run.decide(cmd.CompleteWorkflowExecution(result="sent A-1"), seconds=6)
    obj = object_of(run)
    obj["metadata"]["name"] = "order-42"
    server.answers[RUN] = obj
    done = await asyncio.to_thread(history, "--temporal")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["events"][0]["eventType"] == "EVENT_TYPE_WORKFLOW_EXECUTION_STARTED"
    recorded = WorkflowHistory.from_json("order-1", found)
    result = await Replayer(workflows=[Order]).replay_workflow(recorded)
    assert result.replay_failure is None
    with pytest.raises(NondeterminismError):
        await Replayer(workflows=[Impatient]).replay_workflow(recorded)


def test_the_temporal_form_is_only_json(server: ApiServer) -> None:
    server.answers[RUN] = charged_after_two_refusals().object
    assert history("--temporal", "--reverse").exit_code == 2
    assert history("--temporal", "-o", "yaml").exit_code == 2
    shown = json.loads(history("--temporal").stdout)["events"]
    assert shown[0]["workflowExecutionStartedEventAttributes"]["workflowType"]["name"]


@pytest.mark.parametrize(("version", "want"), [(NEWEST, 0), (NEWEST + 1, 2)], ids=["this version", "a newer one"])
def test_the_temporal_form_has_large_payloads_that_this_version_can_read(
    server: ApiServer, version: int, want: int
) -> None:
    content = Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=b'"large"')]).SerializeToString()
    value = blobs.refer(content)
    run = Coded.begin(input=dict(value, payloads=dict(value["payloads"])))
    obj = object_of(run)
    obj["metadata"]["name"] = "order-42"
    part = blobs.first_part(value["payloads"], "shop", None)
    part["spec"] = stamped(part["spec"], version)
    server.answers |= {RUN: obj, f"{PAYLOADS}/{part['metadata']['name']}": part}
    done = history("--temporal")
    assert done.exit_code == want, done.stderr
    assert ("update `perdure`" in done.stderr) == bool(want)
    assert (base64.b64encode(b'"large"').decode() in done.stdout) != bool(want)


def test_the_temporal_form_of_a_standalone_activity_names_no_steps(server: ApiServer) -> None:
    """Its IDs are no paths of steps, as in the responses of the frontend."""
    stored = standalone_object(begin())
    stored["metadata"]["name"] = "order-42"
    server.answers[RUN] = stored
    events = json.loads(history("--temporal").stdout)["events"]
    assert any("activityTaskScheduledEventAttributes" in each for each in events)
    assert not any("userMetadata" in each for each in events)


@workflow.defn(name="Order", sandboxed=False)
class Order:
    """Waits, then completes."""

    @workflow.run
    async def run(self, order: str) -> str:
        await workflow.sleep(5)
        return f"sent {order}"


@workflow.defn(name="Order", sandboxed=False)
class Impatient:
    """Makes other decisions."""

    @workflow.run
    async def run(self, order: str) -> str:
        return f"sent {order}"
