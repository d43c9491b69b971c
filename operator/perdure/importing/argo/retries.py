"""Converts the retries and timeouts of Argo's templates."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from perdure.api.fields import MAX_COUNT
from perdure.importing.argo.scope import ERRORS
from perdure.importing.durations import NO_LIMIT, go_duration
from perdure.importing.expressions import TAG, UntranslatableError, condition, constants
from perdure.importing.programs import FINAL_CODE, MISSING_CODE, TimedFailures
from perdure.importing.reader import ConversionReport, Fields, Object
from perdure.language.expressions import ExpressionError, compile_condition

_SECONDS: Final = re.compile("[0-9]+")
_INTEGER: Final = re.compile("-?[0-9]+")
_CODES: Final = tuple(code for code in range(1, 256) if code != MISSING_CODE)
"""The exit codes of programs that fail."""
_COMPUTED: Final = re.compile(r"lastRetry\.duration\s*\)?\s*[-+*/%]|[-+*/%]\s*(?:\w+\()?\s*lastRetry\.duration")
_KILLED: Final = (143, 137)
"""The exit codes of containers that are stopped: by the signal TERM, or later by KILL."""
_TIMEOUT: Final = "TemporalTimeout:StartToClose"
"""The type of the failure of an attempt that its deadline has ended."""
NOT_RETRIED: Final = "NotRetried"
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
        except ValueError as error:
            computed = f"`{text}` is not a duration that is known before the run; set it on the activity"
            template.gap(name, computed if TAG.search(str(text)) else str(error))
    return found


def attempt_limit(template: Fields) -> str:
    """Take the time limit of an attempt. In Argo, an explicit zero means no limit."""
    names = ("activeDeadlineSeconds", "timeout")
    default = NO_LIMIT if any(name in template for name in names) else MAX_ATTEMPT
    return timeout(template, *names) or default


@dataclass(frozen=True, slots=True)
class Retries:
    """The retries of an activity."""

    fields: Object
    """`retryPolicy`, and `failureTypes` for the condition of a `retryStrategy`."""
    timed: tuple[TimedFailures, ...] = ()
    """The failures that are not retried because of the time that they took, which a shell in the container has to find."""
    only_errors: bool = False
    """Whether only the status Error is retried."""


def retries(template: Fields, *, errs: bool = False) -> Retries:
    """Return the retries of an activity for a `retryStrategy`.

    Args:
        template: The template; takes `retryStrategy`.
        errs: Whether it has outputs without which it fails with the status Error.
    """
    if "retryStrategy" not in template:
        template.drop("retryStrategy")
        return Retries({"retryPolicy": NO_RETRY})
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
    final = _final(strategy, policy, expression)
    codes = list(final.codes)
    types = [*(ERRORS if errs and final.errors else ()), *((_TIMEOUT,) if final.timeouts else ())]
    timed = final.timed if exponential["maximumAttempts"] != 1 else ()
    if len(codes) == len(_CODES) and (final.errors or not errs):
        exponential["maximumAttempts"] = 1
        timed = ()
    elif codes or timed:
        # Only this policy does not retry it: that of the steps around it may.
        codes = sorted({*codes, FINAL_CODE}) if timed else codes
        fields["failureTypes"] = [{"exitCodes": codes, "type": NOT_RETRIED}]
        types.append(NOT_RETRIED)
    if types and exponential["maximumAttempts"] != 1:
        exponential["nonRetryableErrorTypes"] = types
    strategy.done({})
    only_errors = len(codes) >= len(_CODES) and errs and not final.errors and not timed
    return Retries({"retryPolicy": {"exponential": exponential}, **fields}, timed, only_errors)


@dataclass(frozen=True, slots=True)
class _Final:
    """The failures that end an activity without a further attempt."""

    codes: tuple[int, ...] = ()
    errors: bool = False
    """Whether the status Error is one of them."""
    timeouts: bool = False
    """Whether the end of an attempt by its deadline is one of them."""
    timed: tuple[TimedFailures, ...] = ()


def _final(strategy: Fields, policy: str, expression: str | None) -> _Final:
    """Return after which failures a strategy permits no other attempt."""
    never = policy in {"OnError", "OnTransientError"}
    final = _Final(_CODES if never else (), policy in {"OnFailure", "OnTransientError"}, never)
    if expression is None:
        return final
    try:
        permits = _permits(expression)
        starts = _starts(expression)
        fails = {code: tuple(not permits(str(code), "Failed", each) for each in starts) for code in _CODES}
        errs = tuple(not permits("0", "Error", each) for each in starts)
    except (UntranslatableError, ExpressionError) as error:
        known = "lastRetry.exitCode, lastRetry.status, and lastRetry.duration"
        strategy.gap("expression", f"{error}; only conditions on {known} are imported")
        return final
    codes = tuple(code for code in _CODES if code in final.codes or all(fails[code]))
    kinds = {code: ends for code, ends in fails.items() if code not in codes}
    if not (final.errors or all(errs)):
        kinds[MISSING_CODE] = errs
    timed = _timed(kinds, starts) if any(map(any, kinds.values())) else ()
    if timed:
        strategy.note(
            "expression", "a shell in the container measures the time of an attempt; its image needs `sh` and `date`"
        )
    if len({all(fails[code]) for code in _KILLED}) > 1:
        message = f"an attempt that its deadline ends counts as the exit code {_KILLED[0]}, that of a container that is stopped"
        strategy.note("expression", message)
    return _Final(codes, final.errors or all(errs), never or all(fails[_KILLED[0]]), timed)


def _timed(kinds: Mapping[int, tuple[bool, ...]], starts: Sequence[int]) -> tuple[TimedFailures, ...]:
    """Return when failures are final.

    Args:
        kinds: For each exit code, whether it is in each period.
        starts: The starts of the periods, in seconds.
    """
    groups: dict[tuple[bool, ...], list[int]] = {}
    for code, ends in kinds.items():
        groups.setdefault(ends, []).append(code)
    ordered = sorted(groups.items(), key=lambda each: len(each[1]))
    found = []
    for ends, codes in ordered:
        last = codes == ordered[-1][1]
        periods = zip(starts, [*starts[1:], None], ends, strict=True)
        times: list[tuple[int, int | None]] = []
        for start, end, is_final in periods:
            if is_final:
                begun = times.pop()[0] if times and times[-1][1] == start else start
                times.append((begun, end))
        found.append(TimedFailures(() if last else tuple(codes), tuple(times)))
    return tuple(each for each in found if each.times or each.codes)


def _starts(expression: str) -> list[int]:
    """Return the times at which the value of an expression may change, in seconds: at its numbers, and after them."""
    if "lastRetry.duration" not in expression:
        return [0]
    if _COMPUTED.search(expression):
        raise UntranslatableError("it computes with `lastRetry.duration`; compare it with a number")
    numbers = [int(each) for each in _SECONDS.findall(expression)]
    return sorted({0, *numbers, *(each + 1 for each in numbers)})


def _permits(expression: str) -> Callable[[str, str, int], bool]:
    """Return what says whether an `expression` permits another attempt, by the exit code, the status, and the duration."""
    names = {"lastRetry.exitCode": "code", "lastRetry.status": "status", "lastRetry.duration": "seconds"}
    source = "${" + condition("{{=" + expression + "}}", constants(names)) + "}"
    compiled = compile_condition(source, names=frozenset(names.values()))

    def permits(code: str, status: str, seconds: int) -> bool:
        return bool(compiled.evaluate({"code": code, "status": status, "seconds": str(seconds)}))

    return permits


def repeats_only_errors(template: Fields, *, errs: bool) -> bool:
    """Whether a `retryStrategy` of steps only repeats them after the status Error.

    Args:
        template: The template; nothing is taken.
        errs: Whether it can end with the status Error.
    """
    return retries(Fields(template.data, template.path, ConversionReport()), errs=errs).only_errors


def retries_of_child(template: Fields, *, errs: bool) -> Object:
    """Return the fields of a `childWorkflow` for the `retryStrategy` of its template.

    Args:
        template: The template; takes `retryStrategy`.
        errs: Whether it can end with the status Error.
    """
    made = retries(template, errs=errs)
    if "failureTypes" in made.fields and not made.only_errors:
        template.gap("retryStrategy.expression", "steps have no exit code; set it on the templates with containers")
    total = made.fields.get("scheduleToCloseTimeout")
    return {"retryPolicy": made.fields["retryPolicy"], **({"executionTimeout": total} if total else {})}


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
    if _INTEGER.fullmatch(limit):
        return max(1, min(MAX_COUNT, int(limit) + 1))  # below zero, none is left for a second attempt
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
