"""A run of workers with a Nexus operation, which its handler answers."""

from typing import Any

from perdure.engine import commands as cmd
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import Answer, OperationOutcome
from support.engine.coded import Coded

BOOM = Failure(kind=FailureKind.APPLICATION, message="boom", type="Boom")
BUSY = Failure(kind=FailureKind.NEXUS_HANDLER, message="busy", type="UNAVAILABLE")


def schedule(request_id: str = "op-1", **attributes: Any) -> cmd.ScheduleNexusOperation:
    return cmd.ScheduleNexusOperation(
        endpoint="billing",
        endpoint_id="e1",
        handler_namespace="bills",
        service="invoices",
        operation="charge",
        request_id=request_id,
        input={"amount": 5},
        **attributes,
    )


def scheduled(**attributes: Any) -> Coded:
    """A run that has scheduled an operation with event 5."""
    run = Coded.begin()
    run.decide(schedule(**attributes))
    assert "NexusOperationScheduled" in run.names
    return run


def answer(run: Coded, outcome: OperationOutcome, at: float = 0, attempt: int = 1, **said: Any) -> Answer:
    about = {"scheduled_event_id": 5, "attempt": attempt, "handler_namespace": "bills", **said}
    return run.ask(inp.OperationReported, at, outcome=outcome, **about)


def end(run: Coded, outcome: OperationOutcome, at: float = 0, **said: Any) -> Answer:
    about = {"scheduled_event_id": 5, "operation_request_id": "op-1", "handler_namespace": "bills", **said}
    return run.ask(inp.OperationEnded, at, outcome=outcome, **about)


def started(run: Coded, at: float = 0, attempt: int = 1) -> Coded:
    assert answer(run, OperationOutcome.STARTED, at, attempt, operation_token="token").ok
    return run
