"""What an operator makes of attempts whose pods it does not find after a restart. The API server is real."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from kube import Cluster, python
from perdure.api.workflow import WorkflowSpec
from perdure.controller.dead_letters import DeadLetters
from perdure.controller.limits.workflow_limits import WorkflowLimits
from perdure.controller.payloads.payload_store import Blobs
from perdure.controller.pods.attempt_pods import Pods
from perdure.controller.pods.service_account import ActivityIdentity
from perdure.controller.reconcile.record import Record
from perdure.controller.retry_policies import Policies
from perdure.controller.runs.attempts.run_attempts import Attempts
from perdure.controller.tools import Tools
from perdure.controller.workflows.definitions import Definition, Definitions
from perdure.engine.effects import StartAttempt
from perdure.engine.inputs import AttemptLost
from perdure.engine.state import PendingActivity, RunState
from perdure.kube.access import find_access
from perdure.kube.client import Client
from perdure.kube.clock import now
from perdure.kube.events import Recorder
from perdure.language.compiler import compile_program
from perdure.runtime.attempts import PodSettings, RunRef

pytestmark = pytest.mark.cluster


@pytest.fixture
async def attempts(namespace: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Attempts]:
    """Those of a run that has no pods."""
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    run = RunRef(namespace=namespace.namespace, name="order", uid="0b7d1b5e-0000-4000-8000-0", workflow_id="order")
    async with Client.open(find_access(), user_agent="perdure-test") as client:
        recorder = Recorder(client, instance="test")
        tools = Tools(
            client=client,
            pods=Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings()),
            definitions=Definitions(client),
            policies=Policies(client, recorder),
            letters=DeadLetters(client, recorder),
            limits=WorkflowLimits(client, recorder),
            recorder=recorder,
            blobs=Blobs(client),
        )
        meta = {"namespace": run.namespace, "name": run.name, "uid": run.uid, "resourceVersion": "1"}
        record = Record(client, {"metadata": meta})
        found = Attempts(
            tools, run, record, None, lambda _note, _pod: None, lambda _note, _pod: None, wake=lambda: None
        )
        spec = {"activities": [python("pass")], "steps": [{"name": "only", "activity": {"name": "work"}}]}
        found.define(Definition(compile_program(WorkflowSpec.parse(spec)), "order", None))
        yield found


def open_activity(*, started: bool) -> RunState:
    """A run with one, scheduled a minute ago."""
    time = now() - timedelta(minutes=1)
    work = PendingActivity(
        scheduled_event_id=2,
        activity_id="only",
        activity_type="work",
        first_scheduled_time=time,
        scheduled_time=time,
        started_time=time if started else None,
    )
    return RunState(start_time=time, next_event_id=3, activities={"2": work})


async def test_an_attempt_that_had_started_and_has_no_pod_is_lost(attempts: Attempts) -> None:
    state = open_activity(started=True)
    await attempts.recover(state)
    (told,) = await attempts.gather(state, now())
    assert isinstance(told, AttemptLost)
    assert told.failure.details == {"reason": "PodGone"}


async def test_an_attempt_that_may_never_have_had_a_pod_gets_one(attempts: Attempts) -> None:
    state = open_activity(started=False)
    await attempts.recover(state)
    assert await attempts.gather(state, now()) == []
    assert attempts._effects.left(state, now()) == [StartAttempt(2, 1)]
