"""A standalone Nexus operation that a test drives manually."""

from itertools import count
from typing import Any

from perdure.engine import commands as cmd
from perdure.engine import inputs as inp
from perdure.engine.commands import StandaloneDecider
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import OperationOutcome
from support.engine.script import Drive

_numbers = count(1)
BOOM = Failure(kind=FailureKind.APPLICATION, message="boom", type="Boom")


def begin(*, handler_namespace: str = "bills", paused: bool = False, **options: Any) -> Drive:
    """A standalone operation that is scheduled."""
    operation = cmd.ScheduleNexusOperation(
        endpoint="billing",
        endpoint_id="e1",
        handler_namespace=handler_namespace,
        service="payments",
        operation="charge",
        request_id="secret",
        input={"amount": 5},
        **options,
    )
    return Drive.by(StandaloneDecider(operation), standalone=True, paused=paused)


def report(run: Drive, at: float, outcome: OperationOutcome, **said: Any) -> None:
    """Let the handler answer the call that starts the operation."""
    number, operation = next(iter(run.state.operations.items()))
    request = inp.OperationReported(
        request_id=f"r{next(_numbers)}",
        scheduled_event_id=int(number),
        attempt=operation.calls.attempt,
        handler_namespace="bills",
        outcome=outcome,
        **said,
    )
    assert run.ask(at, request).ok


def end(run: Drive, at: float, outcome: OperationOutcome, **said: Any) -> bool:
    """Complete the operation by the run that its handler has started."""
    about = {"operation_request_id": "secret", "handler_namespace": "bills", "scheduled_event_id": 2, **said}
    return run.ask(at, inp.OperationEnded(request_id=f"r{next(_numbers)}", outcome=outcome, **about)).ok
