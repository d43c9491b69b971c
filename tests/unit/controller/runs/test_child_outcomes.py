"""Outcomes of children that a run receives; with an API server on loopback."""

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from perdure.controller.runs.effects.effects import Effects
from perdure.controller.runs.effects.relations import ChildOutcomes
from perdure.controller.runs.status import StatusComposer
from perdure.engine import commands as cmd
from perdure.engine import inputs as inp
from perdure.engine.failures import RetryState
from perdure.engine.inputs import ChildOutcome
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import WorkflowStart
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import child_run
from support.engine.coded import Coded
from support.engine.script import application, seconds
from support.managers import manager_over

PARENT = RunRef(name="order", namespace="shop", uid="uid-1", workflow_id="order")
COMPOSER = StatusComposer("uid-2")


def failed(**attributes: Any) -> Coded:
    child = Coded.begin(**attributes)
    child.decide(cmd.FailWorkflowExecution(failure=application(non_retryable=True)))
    return child


def late(**attributes: Any) -> Coded:
    child = Coded.begin(workflow_run_timeout=seconds(5), **attributes)
    child.at(5)
    return child


@pytest.mark.parametrize(
    ("child", "outcome", "want"),
    [
        (failed(), ChildOutcome.FAILED, RetryState.RETRY_POLICY_NOT_SET),
        (failed(retry_policy=RetryPolicy()), ChildOutcome.FAILED, RetryState.NON_RETRYABLE_FAILURE),
        (late(), ChildOutcome.TIMED_OUT, RetryState.RETRY_POLICY_NOT_SET),
        (
            late(retry_policy=RetryPolicy(maximum_attempts=1)),
            ChildOutcome.TIMED_OUT,
            RetryState.MAXIMUM_ATTEMPTS_REACHED,
        ),
    ],
    ids=["no policy", "a final failure", "run timeout without a policy", "run timeout of the last attempt"],
)
async def test_a_parent_gets_the_retry_state_of_its_child(
    child: Coded, outcome: ChildOutcome, want: RetryState
) -> None:
    parent = Coded.begin()
    start = WorkflowStart(workflow_type="Kid", task_queue="kids", workflow_id="kid")
    parent.decide(cmd.StartChildWorkflowExecution(child_id="1", start=start))
    (pending,) = parent.state.children.values()
    made: dict[str, Any] = child_run(PARENT, pending)
    made["metadata"] |= {"uid": "uid-2", "resourceVersion": "2", "creationTimestamp": "2026-01-01T00:00:00Z"}
    made["status"] = COMPOSER.compose(made, child.state, child.events, child.now)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        assert request.path.endswith(f"/workflowruns/{made['metadata']['name']}")
        return web.json_response(made)

    async with (
        RawTestServer(answer) as server,
        Client.open(Access(server=str(server.make_url("")).rstrip("/")), user_agent="test") as client,
    ):
        manager, refused = manager_over(client), list[str]()
        manager.directory.put(made)
        peers, policies = manager.runs, manager.services.policies
        effects = Effects(client, PARENT, None, peers, policies, lambda: None, refused.append)
        outcomes = ChildOutcomes(effects.context, effects.has_applied)
        outcomes.update("uid-2")
        (observed,) = await outcomes.gather(parent.state)
    assert isinstance(observed, inp.ChildClosed)
    assert refused == []
    assert (observed.outcome, observed.retry_state) == (outcome, want)
    parent.at(9, observed)
    closed: Any = parent.events[-2]
    assert closed.retry_state is want
