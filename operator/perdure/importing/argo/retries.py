"""Converts the retries and timeouts of Argo's templates."""

import re
from typing import Final

from perdure.importing.argo.scope import ERRORS
from perdure.importing.durations import go_duration
from perdure.importing.expressions import UntranslatableError, condition, constants
from perdure.importing.programs import MISSING_CODE
from perdure.importing.reader import Fields, Object
from perdure.language.expressions import ExpressionError, compile_condition

_SECONDS: Final = re.compile("[0-9]+")
_EXIT_CODES: Final = 256
_NOT_RETRIED: Final = "NotRetried"
"""The type of a failure after which a `retryStrategy` permits no other attempt."""
MAX_ATTEMPT: Final = "1d"
"""Maximum time of an attempt whose template has no deadline: Perdure needs one to notice lost attempts."""
NO_RETRY: Final[Object] = {"exponential": {"maximumAttempts": 1}}
"""The retry policy for a template without `retryStrategy`."""


def timeout(template: Fields, *names: str) -> str | None:
    """Take the first of several fields with a duration; a number is in seconds. None without one, or for zero."""
    found = None
    for name in names:
        text = template.text(name)
        try:
            found = found or (None if text is None else go_duration(text, seconds=True))
        except ValueError:
            template.gap(name, f"`{text}` is not a duration that is known before the run; set it on the activity")
    return found


def retries(template: Fields, *, errs: bool = False) -> Object:
    """Return the fields of an activity for a `retryStrategy`: `retryPolicy`, and `failureTypes` for its condition.

    Args:
        template: The template; takes `retryStrategy`.
        errs: Whether it has outputs without which it fails with the status Error.
    """
    if "retryStrategy" not in template:
        template.drop("retryStrategy")
        return {"retryPolicy": NO_RETRY}
    strategy = template.part("retryStrategy")
    expression = strategy.text("expression")
    policy = strategy.text("retryPolicy") or ("OnFailure" if expression is None else "Always")
    exponential: Object = {"maximumAttempts": _attempts(strategy, policy, errs=errs)}
    exponential = {**_backoff(strategy.part("backoff")), **exponential}
    total = exponential.pop("total", None)
    fields: Object = {"scheduleToCloseTimeout": total} if total else {}
    if "affinity" in strategy:
        strategy.drop("affinity")
        fields["retryOnAnotherNode"] = True
        strategy.note("affinity", "a preference, so that an attempt also runs if there is no other node")
    final, final_errors = _final(strategy, policy, expression)
    types = list(ERRORS) if errs and final_errors else []
    if len(final) == _EXIT_CODES - 2 and (final_errors or not errs):
        exponential["maximumAttempts"] = 1
    elif final:
        # Only this policy does not retry it: that of the steps around it may.
        fields["failureTypes"] = [{"exitCodes": final, "type": _NOT_RETRIED}]
        types.append(_NOT_RETRIED)
    if types and exponential["maximumAttempts"] != 1:
        exponential["nonRetryableErrorTypes"] = types
    strategy.done({})
    return {"retryPolicy": {"exponential": exponential}, **fields}


def _final(strategy: Fields, policy: str, expression: str | None) -> tuple[list[int], bool]:
    """Return the exit codes that are not retried, and whether the status Error is not."""
    codes = [code for code in range(1, _EXIT_CODES) if code != MISSING_CODE]
    final = {code for code in codes if policy in {"OnError", "OnTransientError"}}
    final_errors = policy in {"OnFailure", "OnTransientError"}
    if expression is None:
        return sorted(final), final_errors
    try:
        final |= {code for code in codes if not _retried(expression, str(code), "Failed")}
        final_errors = final_errors or not _retried(expression, "0", "Error")
    except (UntranslatableError, ExpressionError) as error:
        strategy.gap("expression", f"{error}; only conditions on lastRetry.exitCode and lastRetry.status are imported")
    return sorted(final), final_errors


def _retried(expression: str, code: str, status: str) -> bool:
    """Whether an `expression` permits another attempt after one that has ended in some way."""
    facts = constants({"lastRetry.exitCode": f"'{code}'", "lastRetry.status": f"'{status}'"})
    source = condition("{{=" + expression + "}}", facts)
    return bool(compile_condition("${" + source + "}", names=()).evaluate({}))


def retries_of_child(template: Fields, *, errs: bool) -> Object:
    """Return the fields of a `childWorkflow` for the `retryStrategy` of its template.

    Args:
        template: The template; takes `retryStrategy`.
        errs: Whether it can end with the status Error.
    """
    policy = (template.data.get("retryStrategy") or {}).get("retryPolicy")
    if errs and policy != "Always":
        template.note("retryStrategy.retryPolicy", "steps are repeated after the status Error as after Failed")
    made = retries(template)
    if "failureTypes" in made:
        template.gap("retryStrategy.expression", "steps have no exit code; set it on the templates with containers")
    total = made.get("scheduleToCloseTimeout")
    return {"retryPolicy": made["retryPolicy"], **({"executionTimeout": total} if total else {})}


def _attempts(strategy: Fields, policy: str, *, errs: bool) -> int:
    limit = strategy.text("limit")
    if policy not in {"Always", "OnFailure", "OnError", "OnTransientError"}:
        strategy.gap("retryPolicy", f"`{policy}` is not known; use Always, OnFailure, OnError, or OnTransientError")
    if policy in {"OnError", "OnTransientError"}:
        strategy.note(
            "retryPolicy", "attempts that the infrastructure loses are always retried, and do not count as attempts"
        )
        if not errs or policy == "OnTransientError":
            return 1
    if limit is None:
        return 0
    if _SECONDS.fullmatch(limit):
        return int(limit) + 1
    strategy.gap(
        "limit", f"`{limit}` is not a number that is known before the run; set `maximumAttempts` of the activity"
    )
    return 1


def _backoff(backoff: Fields) -> Object:
    if not backoff.data:
        return {"initialInterval": "1s", "backoffCoefficient": "1.0"}
    exponential: Object = {"initialInterval": timeout(backoff, "duration") or "1s"}
    factor = backoff.text("factor") or "1"
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", factor):
        exponential["backoffCoefficient"] = factor if float(factor) >= 1 else "1.0"
    else:
        backoff.gap("factor", f"`{factor}` is not a number that is known before the run; set `backoffCoefficient`")
    cap, total = timeout(backoff, "cap"), timeout(backoff, "maxDuration")
    backoff.done({})
    if cap is not None:
        exponential["maximumInterval"] = cap
    return {**exponential, "total": total} if total else exponential
