"""The expressions of an activity that are evaluated after its work: conditions and outputs."""

from typing import Any

from perdure.activity import ApplicationError, Info
from perdure.language.cel import Meter
from perdure.language.expressions import ExpressionError, compile_condition, compile_template
from perdure.language.step_failures import EXPRESSION_ERROR


class DeferredExpressions:
    """Evaluates expressions with the data of the attempt and the result of its work."""

    def __init__(self, value: Any, info: Info) -> None:
        """`value` is the input of the activity, `info` the metadata of the attempt."""
        run = {"name": info.run, "namespace": info.namespace, "workflowId": info.workflow_id, "runId": info.run_id}
        self._scope = {"input": value, "run": run, "attempt": info.attempt}

    def is_true(self, condition: str, field: str, **found: Any) -> bool:
        """Whether a condition is true. A condition that cannot be evaluated, for example because a field is missing, is false."""
        try:
            return bool(compile_condition(condition, path=field).evaluate({**self._scope, **found}, Meter()))
        except ExpressionError:
            return False

    def output(self, value: Any, **found: Any) -> Any:
        """Evaluate the output.

        Raises:
            ApplicationError: An expression has no value.
        """
        try:
            return compile_template(value, path="output").evaluate({**self._scope, **found}, Meter())
        except ExpressionError as error:
            raise ApplicationError(str(error), type=EXPRESSION_ERROR, non_retryable=True) from error
