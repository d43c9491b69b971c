"""The order and the identity of Operations."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.controller.operations.status import identity
from perdure.controller.runs.run import with_warning
from perdure.controller.workflows.definitions import Definition
from perdure.engine.inputs import Answer, SignalRequested
from perdure.kube.paths import escaped
from perdure.language.compiler import compile_program
from perdure.runtime.attempts import RunRef
from perdure.runtime.operation_requests import arrival


def operation(version: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "ask", "resourceVersion": version}, "status": status}


def test_operations_keep_their_recorded_arrival_order() -> None:
    new, noted = operation("120"), operation("999", arrival=80)
    assert sorted([new, noted, operation("1000")], key=arrival) == [noted, new, operation("1000")]
    assert identity(new) == "operation/ask"


@pytest.mark.parametrize(
    ("signal", "answer", "reason"),
    [
        ("approved", Answer(ok=True), ""),
        ("aproved", Answer(ok=True), "SignalNotAwaited"),
        ("aproved", Answer(ok=False, reason="SignalLimitExceeded"), "SignalLimitExceeded"),
        ("aproved", Answer(ok=True, reason="WorkflowExecutionCompleted"), "WorkflowExecutionCompleted"),
    ],
)
def test_a_signal_that_the_workflow_never_waits_for_is_answered_with_a_warning(
    signal: str, answer: Answer, reason: str
) -> None:
    spec = WorkflowSpec.parse({"steps": [{"name": "approve", "waitForSignal": {"name": "approved"}}]})
    definition = Definition(compile_program(spec), "order", None)
    run = RunRef(namespace="shop", name="order-42", uid="u", workflow_id="order-42")
    request = SignalRequested(request_id="1", signal_name=signal)
    found = with_warning(request, answer, run, definition)
    assert (found.ok, found.reason) == (answer.ok, reason)
    assert ("it waits for `approved`" in found.message) == (reason == "SignalNotAwaited")
    assert with_warning(request, answer, run, None) == answer


def unescaped(text: str) -> str:
    """As the API server reads a value in a field selector (k8s.io/apimachinery/pkg/fields: UnescapeValue)."""
    read, rest = "", iter(text)
    for character in rest:
        assert character not in ",="
        read += next(rest) if character == "\\" else character
    return read


@given(st.text(alphabet="a\\,= /", max_size=20))
def test_any_workflow_id_can_be_looked_up(workflow_id: str) -> None:
    assert unescaped(escaped(workflow_id)) == workflow_id
