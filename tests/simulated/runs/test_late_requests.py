"""A run records a request of another run once, even if the request is delivered again after its ID was dropped."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure.controller.reconcile.reconciler import Inbox
from perdure.controller.runs.effects.context import EffectContext
from perdure.controller.runs.effects.effects import Effects
from perdure.controller.runs.run import next_requests
from perdure.engine import inputs
from perdure.engine.starts import ExternalReference
from perdure.runtime.attempts import RunRef
from simulated.place import KEY, Place
from simulated.world import Setting, World, simulate
from support.managers import manager_over

RECEIVER: Any = {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "500s"}}]}}
NOTIFY: Any = {"name": "notify", "signal": {"workflowId": "receiver", "name": "go"}}


def delete_sender(world: World) -> None:
    world.delete("workflowruns", "sender")


@pytest.mark.parametrize("sender", [[NOTIFY], [NOTIFY, *RECEIVER["inline"]["steps"]]], ids=["closed", "open"])
@pytest.mark.parametrize("before", [lambda _: None, delete_sender], ids=["exists", "deleted"])
def test_a_signal_that_is_delivered_late_is_not_recorded_again(
    sender: list[Any], before: Callable[[World], None]
) -> None:
    async def scenario(world: World) -> None:
        world.begin()
        (operator,) = world.operators
        world.create("WorkflowRun", "receiver", RECEIVER)
        await world.calm(5)
        made = world.create("WorkflowRun", "sender", {"inline": {"steps": sender}})
        await world.calm(world.loop.time() + 10)
        events = world.run("sender")["status"]["history"]["events"]
        number = next(int(each["eventId"]) for each in events if each["eventType"].startswith("SignalExternal"))
        before(world)
        run_id = made["metadata"]["uid"]
        late = inputs.SignalRequested(
            request_id=f"{run_id}/{number}",
            signal_name="go",
            external=ExternalReference(workflow_id="sender", run_id=run_id, initiated_event_id=number),
        )
        runs = operator.manager.runs
        receiver = operator.manager.directory.named("default", "receiver")
        assert receiver is not None
        operator.within(runs.send, receiver, late, lambda _: None)
        await world.rest()
        history = world.run("receiver")["status"]["history"]["events"]
        signals = sum(each["eventType"] == "WorkflowExecutionSignaled" for each in history)
        if signals != 1:
            world.checker.fail(f"the signal was recorded {signals} times")

    assert simulate(scenario, Setting(seed=0, faults=0, kills=0)).violations == []


class Requests:
    """Requests to a run, and the run that sends some of them: it waits for the answers of events 5 and 7."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.inbox: Inbox[inputs.Request] = Inbox("the run")
        self.answers: list[inputs.Answer] = []
        state = {"status": "Running", "externals": {"5": "{}", "7": "{}"}}
        place.server.update(KEY, lambda obj: obj.update(status={"state": state}))
        self.uid: str = place.server.get(KEY)["metadata"]["uid"]
        self.context = place.run(self._make())

    async def _make(self) -> EffectContext:
        """The context of the run that gets the requests, in an operator that knows the sender."""
        manager = manager_over(self.place.client)
        manager.directory.put(self.place.server.get(KEY))
        receiver = RunRef(name="receiver", namespace="default", uid="receiver", workflow_id="receiver")
        policies = manager.services.policies
        effects = Effects(self.place.client, receiver, None, manager.runs, policies, lambda: None, lambda _: None)
        return effects.context

    def ask(self, name: str, number: int, *, run_id: str = "") -> None:
        external = ExternalReference(workflow_id="run", run_id=run_id or self.uid, initiated_event_id=number)
        self.inbox.put(
            inputs.SignalRequested(request_id=name, signal_name="go", external=external), self.answers.append
        )

    def next(self) -> list[str]:
        found = self.place.run(next_requests(self.inbox, self.context))
        return [each.request.request_id for each in found]


@pytest.fixture
def sent(place: Place) -> Requests:
    return Requests(place)


def test_only_awaited_requests_of_runs_are_processed(sent: Requests) -> None:
    sent.inbox.put(inputs.SignalRequested(request_id="client", signal_name="go"), sent.answers.append)
    sent.inbox.put(inputs.TerminateRequested(request_id="other"), sent.answers.append)
    for number in (5, 6, 7):
        sent.ask(f"run/{number}", number)
    sent.ask("unknown", 5, run_id="unknown")
    assert sent.next() == ["client", "other", "run/5", "run/7"]
    assert [each.request.request_id for each in sent.inbox] == ["client", "other", "run/5", "run/7"]
    assert sent.place.requests == ["GET"], "a sender is read once"
    assert sent.answers == []


def test_requests_of_others_need_no_reading(sent: Requests) -> None:
    sent.inbox.put(inputs.CancelRequested(request_id="client"), sent.answers.append)
    assert sent.next() == ["client"]
    assert sent.place.requests == []


def test_a_request_that_a_reset_run_sends_again_is_processed(sent: Requests) -> None:
    sent.ask("same", 5, run_id="the run before the reset")
    sent.ask("same", 5)
    assert sent.next() == ["same"]
    assert len(sent.inbox) == 1


def test_a_deleted_sender_waits_for_nothing(sent: Requests) -> None:
    sent.ask("run/5", 5)
    sent.place.server.delete(KEY)
    assert sent.next() == []
