"""Converts the retries and timeouts of Argo's templates."""

import re
from typing import Final

from perdure.importing.argo.scope import PodScope
from perdure.importing.durations import go_duration
from perdure.importing.expressions import UntranslatableError, condition, constants
from perdure.importing.reader import Fields, Object
from perdure.language.expressions import ExpressionError, compile_condition

_SECONDS: Final = re.compile("[0-9]+")
_EXIT_CODES: Final = 256
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


def retries(template: Fields, scope: PodScope) -> Object:
    """Return the fields of an activity for a `retryStrategy`: `retryPolicy`, and `failureTypes` for its condition."""
    if "retryStrategy" not in template:
        template.drop("retryStrategy")
        if "retryStrategy" not in template.data:
            return {"retryPolicy": NO_RETRY}
    strategy = template.part("retryStrategy")
    policy = strategy.text("retryPolicy") or ("Always" if "expression" in strategy else "OnFailure")
    exponential: Object = {"maximumAttempts": _attempts(strategy, policy)}
    exponential = {**_backoff(strategy.part("backoff"), scope), **exponential}
    fields: Object = {
        "retryPolicy": {"exponential": {key: value for key, value in exponential.items() if key != "total"}}
    }
    if exponential.get("total"):
        fields["scheduleToCloseTimeout"] = exponential["total"]
    if "affinity" in strategy:
        strategy.drop("affinity")
        fields["retryOnAnotherNode"] = True
        strategy.note("affinity", "a preference, so that an attempt also runs if there is no other node")
    expression = strategy.text("expression")
    if expression is not None:
        fields |= _conditional(strategy, expression, fields)
    strategy.done({})
    return fields


def retries_of_child(template: Fields, scope: PodScope) -> Object:
    """Return the fields of a `childWorkflow` for the `retryStrategy` of its template."""
    made = retries(template, scope)
    if "failureTypes" in made:
        template.gap("retryStrategy.expression", "steps have no exit code; set it on the templates with containers")
    total = made.get("scheduleToCloseTimeout")
    return {"retryPolicy": made["retryPolicy"], **({"executionTimeout": total} if total else {})}


def _attempts(strategy: Fields, policy: str) -> int:
    limit = strategy.text("limit")
    if policy not in {"Always", "OnFailure", "OnError", "OnTransientError"}:
        strategy.gap("retryPolicy", f"`{policy}` is not known; use Always, OnFailure, OnError, or OnTransientError")
    if policy in {"OnError", "OnTransientError"}:
        strategy.note(
            "retryPolicy", "attempts that the infrastructure loses are always retried, and do not count as attempts"
        )
        return 1
    if limit is None:
        return 0
    if _SECONDS.fullmatch(limit):
        return int(limit) + 1
    strategy.gap(
        "limit", f"`{limit}` is not a number that is known before the run; set `maximumAttempts` of the activity"
    )
    return 1


def _backoff(backoff: Fields, scope: PodScope) -> Object:
    if not backoff.data:
        return {"initialInterval": "1s", "backoffCoefficient": "1.0"}
    del scope
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


def _conditional(strategy: Fields, expression: str, fields: Object) -> Object:
    """Return the failure types for the exit codes that an `expression` of a retryStrategy does not retry."""
    final = []
    try:
        for code in range(1, _EXIT_CODES):
            facts = constants({"lastRetry.exitCode": f"'{code}'", "lastRetry.status": "'Failed'"})
            source = condition("{{=" + expression + "}}", facts)
            if not compile_condition("${" + source + "}", names=()).evaluate({}):
                final.append(code)
    except (UntranslatableError, ExpressionError) as error:
        strategy.gap("expression", f"{error}; only conditions on lastRetry.exitCode and lastRetry.status are imported")
        return {}
    if len(final) == _EXIT_CODES - 1:
        return {"retryPolicy": {"exponential": {**fields["retryPolicy"]["exponential"], "maximumAttempts": 1}}}
    return {"failureTypes": [{"exitCodes": final, "type": "NotRetried", "nonRetryable": True}]} if final else {}
