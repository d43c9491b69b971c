"""How effects are applied; with an API server on loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web

from perdure.api.policies import ParentClosePolicy
from perdure.controller.runs.effects.context import PendingInputs
from perdure.controller.runs.effects.effects import Effects
from perdure.engine import commands as cmd
from perdure.engine.effects import CloseChild, StartChild
from perdure.engine.inputs import EffectDone
from perdure.engine.starts import WorkflowStart
from perdure.engine.state import RunState
from perdure.kube.client import ConflictError
from perdure.runtime.attempts import RunRef
from support.engine.coded import Coded
from support.http_server import api_server
from support.managers import manager_over, unchanged

PARENT = RunRef(name="order", namespace="shop", uid="uid-1", workflow_id="order")
RUN: dict[str, Any] = {"metadata": {"name": "order", "namespace": "shop", "uid": "uid-1"}, "spec": {}, "status": {}}


class Quota:
    """The API server of a namespace whose quota refuses new runs."""

    def __init__(self) -> None:
        self.exhausted = True
        self.created: list[str] = []
        self.tries = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"metadata": {}, "items": []})
        self.tries += 1
        if self.exhausted:
            return web.json_response({"reason": "Forbidden", "message": "exceeded quota"}, status=403)
        self.created.append(orjson.loads(await request.read())["metadata"]["name"])
        return web.json_response({"metadata": {"name": "order-5", "uid": "uid-2", "resourceVersion": "2"}}, status=201)


@asynccontextmanager
async def applying(quota: Quota, refused: list[str]) -> AsyncIterator[tuple[Effects, PendingInputs]]:
    async with api_server(quota.answer) as client:
        manager = manager_over(client)
        peers, policies = manager.runs, manager.services.policies
        effects = Effects(client, PARENT, None, peers, policies, lambda: None, refused.append)
        yield effects, effects.context.pending


def closed_before_its_child_started() -> tuple[RunState, datetime, int]:
    parent = Coded.begin()
    start = WorkflowStart(workflow_type="Kid", task_queue="kids", workflow_id="kid")
    abandoned = ParentClosePolicy.ABANDON
    parent.decide(
        cmd.StartChildWorkflowExecution(child_id="1", start=start, parent_close_policy=abandoned),
        cmd.CompleteWorkflowExecution(),
    )
    (child,) = parent.state.children.values()
    return parent.state, parent.now, child.initiated_event_id


async def test_an_abandoned_child_rejected_by_a_quota_is_started_after_its_parent_has_closed() -> None:
    quota, refused = Quota(), list[str]()
    state, now, number = closed_before_its_child_started()
    async with applying(quota, refused) as (effects, pending):
        await effects.apply(state, RUN, now, unchanged)
        assert pending.first() == [], "the child is neither started nor forgotten"
        assert "exceeded quota" in effects.refused(state)
        assert len(refused) == 1
        assert not effects.are_due(state, now), "it waits, and nothing spins"
        await effects.apply(state, RUN, now, unchanged)
        assert quota.tries == 1

        quota.exhausted = False
        later = effects.next_try(state)
        assert later is not None
        assert now < later < now + timedelta(minutes=1)
        assert effects.are_due(state, later)
        await effects.apply(state, RUN, later, unchanged)
        assert quota.created == [f"order-{number}"]
        assert pending.first() == [EffectDone(effect=CloseChild(number))]
        assert effects.has_applied(StartChild(number))
        assert not effects.refused(state)
        assert not effects.are_due(state, later)
        await effects.apply(state, RUN, later, unchanged)
        assert quota.tries == 2


async def test_a_state_is_confirmed_before_each_effect() -> None:
    """Another operator may take over the run while the first child is being created."""
    parent = Coded.begin()
    start = WorkflowStart(workflow_type="Kid", task_queue="kids", workflow_id="kid")
    parent.decide(*(cmd.StartChildWorkflowExecution(child_id=number, start=start) for number in "12"))
    first, second = (child.initiated_event_id for child in parent.state.children.values())
    quota = Quota()
    quota.exhausted = False

    async def confirm() -> None:
        if quota.created:
            raise ConflictError(409, "Conflict", "another operator has written")

    async with applying(quota, []) as (effects, _):
        with pytest.raises(ConflictError):
            await effects.apply(parent.state, RUN, parent.now, confirm)
        assert quota.created == [f"order-{first}"]
        assert effects.has_applied(StartChild(first))
        assert not effects.has_applied(StartChild(second))
