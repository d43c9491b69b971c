"""The answers of a run to requests, with a warning if a workflow never waits for a signal."""

from perdure.api.reasons import ConditionReason
from perdure.controller.workflows.definitions import Definition
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.language.signals import unknown_signal
from perdure.runtime.attempts import RunRef


def answered(request: inputs.Request, answer: Answer, run: RunRef, definition: Definition | None) -> Answer:
    """The answer of a run to a request, with a warning for a signal that its workflow never waits for."""
    if definition is None or not isinstance(request, inputs.SignalRequested) or not answer.ok or answer.reason:
        return answer
    unknown = unknown_signal(definition.program, request.signal_name)
    if not unknown:
        return answer
    reason = ConditionReason.SIGNAL_NOT_AWAITED.value
    return Answer(ok=True, reason=reason, message=f"`{run.name}` keeps the signal, but {unknown}")
