"""A run as the cluster would have it: the real engine, interpreter and status, with made-up inputs and times."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from textwrap import dedent
from typing import Any

import yaml
from rich.text import Text

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.controller.runs.deciders import RunDecider
from perdure.controller.runs.status import StatusComposer
from perdure.controller.workflows.definitions import Definition
from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import AttemptCompleted, AttemptFailed, AttemptLost, AttemptStarted, HeartbeatRead, RunInput
from perdure.engine.state import PendingActivity
from perdure.engine.step import RunTransition, start, step
from perdure.language.compiler import compile_program
from perdure.language.interpreter import Interpreter, RunScope
from perdure.runtime.revisions import Content
from perdure.view.page import Page
from perdure.view.runs.open_work import LiveState
from perdure.view.runs.replay import trace
from perdure.view.runs.run import RunView, read_run

T0 = datetime(2026, 1, 1, 12, tzinfo=UTC)
UID = "11111111-2222-3333-4444-555555555555"

ORDER = """
activities:
- name: reserve-stock
  startToCloseTimeout: 5m
  heartbeatTimeout: 10s
  container: {image: shop}
- name: charge-card
  startToCloseTimeout: 30s
  retryPolicy: {exponential: {initialInterval: 4s, maximumAttempts: 3}}
  container: {image: shop}
steps:
- {name: reserve, activity: {name: reserve-stock, input: "${input.items}"}}
- {name: charge, activity: {name: charge-card, input: {amount: "${input.amount}"}}}
- {name: change-of-mind, sleep: {duration: 30s}}
- {name: done, return: {output: {reservation: "${steps.reserve.output}"}}}
"""


def at(offset: float) -> datetime:
    return T0 + timedelta(seconds=offset)


def declined(message: str = "no funds", **options: Any) -> Failure:
    return Failure(kind=FailureKind.APPLICATION, type="CardDeclined", message=message, **options)


@dataclass
class Flow:
    """A run that a test drives."""

    definition: str = ORDER
    input: Any = field(default_factory=lambda: {"items": ["lamp"], "amount": 349})
    name: str = "order-42"
    timeout: timedelta | None = None
    now: datetime = T0
    status: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.program = compile_program(WorkflowSpec.parse(yaml.safe_load(self.definition)))
        scope = RunScope(name=self.name, namespace="shop", workflow_id=self.name, run_id=UID, attempt=1)
        self.decider = Interpreter(self.program, scope, input=self.input, start_time=T0)
        first = ev.WorkflowExecutionStarted(
            event_id=1,
            event_time=T0,
            workflow_type="order-flow",
            workflow_id=self.name,
            input=self.input,
            workflow_run_timeout=self.timeout,
            original_execution_run_id=UID,
            first_execution_run_id=UID,
        )
        self._commit(start(first, self.decider))

    def _commit(self, transition: RunTransition) -> "Flow":
        self.state = transition.state
        composer, snapshot = StatusComposer(UID), yaml.safe_load(self.definition)
        content = Content(workflow="order-flow", definition=snapshot)
        composer.define(RunDecider(decider=self.decider, definition=Definition(self.program, "order-flow", content)))
        run = {"metadata": {"name": self.name, "uid": UID}, "status": self.status}
        self.status = composer.compose(run, self.state, transition.events, self.now)
        return self

    def continued(self, offset: float, transition: RunTransition) -> "Flow":
        """Continue with a transition that another run begins with."""
        self.now = at(offset)
        return self._commit(transition)

    def at(self, offset: float, *inputs: RunInput) -> "Flow":
        self.now = at(offset)
        return self._commit(step(self.state, inputs, self.now, self.decider))

    def _open(self, of: str | None) -> PendingActivity:
        (only,) = [a for a in self.state.activities.values() if of in {None, a.activity_id}]
        return only

    def _attempt(self, of: str | None) -> dict[str, Any]:
        return {"scheduled_event_id": self._open(of).scheduled_event_id, "attempt": self._open(of).attempt}

    def started(self, offset: float, of: str | None = None) -> "Flow":
        return self.at(offset, AttemptStarted(**self._attempt(of), time=at(offset)))

    def heartbeat(self, offset: float, details: Any, of: str | None = None) -> "Flow":
        return self.at(offset, HeartbeatRead(**self._attempt(of), time=at(offset), details=details))

    def completed(self, offset: float, result: Any = None, of: str | None = None) -> "Flow":
        return self.at(offset, AttemptCompleted(**self._attempt(of), result=result))

    def failed(self, offset: float, failure: Failure | None = None, of: str | None = None) -> "Flow":
        return self.at(offset, AttemptFailed(**self._attempt(of), failure=failure or declined()))

    def lost(self, offset: float, of: str | None = None) -> "Flow":
        failure = Failure(kind=FailureKind.SERVER, message="pod order-42-2-1 was deleted by someone")
        return self.at(offset, AttemptLost(**self._attempt(of), failure=failure))

    @property
    def object(self) -> dict[str, Any]:
        return {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "WorkflowRun",
            "metadata": {
                "name": self.name,
                "namespace": "shop",
                "uid": UID,
                "creationTimestamp": "2026-01-01T11:59:59Z",
                "resourceVersion": "1",
            },
            "spec": {"workflow": {"name": "order-flow"}, "ttlSecondsAfterFinished": 3600},
            "status": self.status,
        }

    def run(self, offset: float | None = None, live: LiveState | None = None) -> RunView:
        now = self.now if offset is None else at(offset)
        return read_run(self.object, now=now, live=live, trace=trace(self.object))

    def page(self, offset: float | None = None, **options: Any) -> Page:
        return Page(now=self.now if offset is None else at(offset), **options)


def plain(lines: list[Text]) -> str:
    """The text on the screen, without colors."""
    return "\n".join(line.plain for line in lines)


def golden(text: str) -> str:
    return dedent(text).strip("\n")


def charged_after_two_refusals() -> Flow:
    """Reserved at the second attempt (the first pod was deleted), charged at the third."""
    flow = Flow().started(1).lost(3)
    flow.started(5).completed(10, "R-1")
    flow.failed(12, declined("try again")).failed(16).started(24)
    return flow.completed(26)
