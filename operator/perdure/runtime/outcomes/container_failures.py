"""Why the containers of an attempt failed."""

from datetime import timedelta
from typing import Any, Final

from perdure.api.times import parse_decimal_duration
from perdure.api.workflow import Activity
from perdure.engine.failures import Failure, FailureKind
from perdure.runtime import payloads
from perdure.runtime.statuses import EndedContainer

MESSAGE_LIMIT: Final = 2048
"""Maximum characters of a failure's message. It is stored in the run's status while the activity is open."""

_TAIL_LIMIT: Final = 1500

_TYPE_LIMIT: Final = 256


def container_failure(ended: EndedContainer, definition: Activity) -> Failure:
    """Return the failure of an activity's own container, from its error document or otherwise from its exit code.

    Args:
        ended: The end of the container, with a nonzero exit code.
        definition: The activity's definition.

    Returns:
        The failure.
    """
    return error_document(ended, definition) or exit_failure(ended, definition)


def error_document(ended: EndedContainer, definition: Activity) -> Failure | None:
    """The failure that the container itself described, if its termination message is such a document.

    `{"error": {"type", "message", "details", "nonRetryable", "nextRetryDelay", "stackTrace", "cancelled"}}`; at least
    `type`, `message`, or `cancelled` is required.
    """
    document, is_json = payloads.decode(ended.message)
    error = document.get("error") if is_json and isinstance(document, dict) else None
    if not isinstance(error, dict):
        return None
    kind, text = _text(error.get("type")), _text(error.get("message"))
    stack_trace = _text(error.get("stackTrace"))
    if error.get("cancelled") is True:
        return Failure(
            kind=FailureKind.CANCELLED,
            message=shortened(text or ""),
            details=error.get("details"),
            stack_trace=stack_trace,
        )
    if kind is None and text is None:
        return None
    by_code = exit_failure(ended, definition)
    message = text or f"container {ended.name} failed with {kind}"
    delay, mistake = _retry_delay(error.get("nextRetryDelay"))
    return Failure(
        kind=FailureKind.APPLICATION,
        type=by_code.type if kind is None else kind[:_TYPE_LIMIT],
        message=shortened(message + mistake),
        details=error.get("details"),
        non_retryable=error.get("nonRetryable") is True or (kind is None and by_code.non_retryable),
        next_retry_delay=delay,
        stack_trace=stack_trace,
    )


def _retry_delay(given: Any) -> tuple[timedelta | None, str]:
    """Return the delay, or a remark about an invalid one: a mistake in it must not hide the failure itself."""
    if given is None:
        return None, ""
    try:
        return parse_decimal_duration(given if isinstance(given, str) else ""), ""
    except ValueError:
        return None, f" (nextRetryDelay {str(given)[:40]!r} is not a valid duration and was ignored)"


def exit_failure(ended: EndedContainer, definition: Activity) -> Failure:
    """Return the failure for an exit code.

    Its type is the first of: the type that `failureTypes` assigns to the code; `OOMKilled`; Kubernetes' reason unless it
    is `Error` (`StartError`: the command does not exist); the signal (`SIGSEGV`); `ExitCode<n>`.
    """
    rule = next((rule for rule in definition.failure_types if ended.exit_code in rule.exit_codes), None)
    word = ended.reason if ended.reason not in {"", "Error", "Completed"} else None
    kind = (rule.type if rule else None) or word or ended.signal or f"ExitCode{ended.exit_code}"
    return Failure(
        kind=FailureKind.APPLICATION,
        type=kind,
        message=shortened(_how_it_ended(ended)),
        details=_exit_details(ended),
        non_retryable=rule is not None and rule.non_retryable,
    )


def init_failure(ended: EndedContainer) -> Failure:
    """Return the failure of an init container; `failureTypes` apply only to the activity's own container."""
    return Failure(
        kind=FailureKind.APPLICATION,
        type="InitContainerFailed",
        message=shortened("init " + _how_it_ended(ended)),
        details=_exit_details(ended),
    )


def sidecar_failure(ended: EndedContainer) -> Failure:
    """Return the failure for work that is done, but whose result is unknown."""
    return Failure(
        kind=FailureKind.APPLICATION,
        type="ResultMissing",
        message=shortened("the activity succeeded, but its result was not delivered: " + _how_it_ended(ended)),
        details=_exit_details(ended),
    )


def upload_failure(ended: EndedContainer | None, definition: Activity) -> Failure:
    """Return the failure for work that is done, but whose output artifacts are not stored.

    Args:
        ended: The end of the sidecar that uploads them; None if it is not known.
        definition: The activity's definition.
    """
    reported = error_document(ended, definition) if ended is not None else None
    if reported is not None:
        return reported
    how = "their upload was not reported" if ended is None else _how_it_ended(ended)
    return Failure(
        kind=FailureKind.APPLICATION,
        type="ArtifactsNotStored",
        message=shortened(f"the activity succeeded, but its artifacts are not stored: {how}"),
        details=None if ended is None else _exit_details(ended),
    )


def _exit_details(ended: EndedContainer) -> dict[str, Any]:
    details: dict[str, Any] = {"container": ended.name, "exitCode": ended.exit_code}
    if ended.reason:
        details["reason"] = ended.reason
    if ended.signal is not None:
        details["signal"] = ended.signal
    return details


def _how_it_ended(ended: EndedContainer) -> str:
    code = f"exit code {ended.exit_code}"
    match ended.reason:
        case "OOMKilled":
            sentence = (
                f"container {ended.name} was killed because it used too much memory (OOMKilled, {code}); "
                "raise its `resources.limits.memory`, or make it use less"
            )
        case "" | "Error" | "Completed" if ended.signal is not None:
            sentence = f"container {ended.name} was killed by {ended.signal} ({code})"
        case "" | "Error" | "Completed":
            sentence = f"container {ended.name} failed ({code})"
        case "StartError" | "ContainerCannotRun":
            sentence = (
                f"container {ended.name} could not be started ({ended.reason}, {code}); check that the image contains "
                "its `command`"
            )
        case _:
            sentence = f"container {ended.name} failed ({ended.reason}, {code})"
    tail = ended.message.strip()
    if len(tail) > _TAIL_LIMIT:
        tail = "…" + tail[-_TAIL_LIMIT:]
    return f"{sentence}:\n{tail}" if tail else sentence


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def shortened(text: str) -> str:
    """The text, truncated to the maximum length of a message."""
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"
