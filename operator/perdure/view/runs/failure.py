"""Formats failures: in one line next to a step, or as the whole chain of causes."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from rich.text import Text

from perdure.api.json_values import Json, mapping, mappings
from perdure.engine.failures import full_message_of
from perdure.language.step_failures import DEADLINE_EXCEEDED
from perdure.view import text
from perdure.view.page import Page

_MAX_DEPTH = 50
_TRACE_LINES = 8
_STEP: Final = re.compile("step `([^`]*)`")
"""How the message of a failure names a step: by its path."""
_NO_TITLES: Final[Mapping[str, str]] = MappingProxyType({})


def title(failure: Mapping[str, Any]) -> str:
    """Return the kind of a failure in one word.

    Args:
        failure: One failure of the chain.

    Returns:
        The type of an application failure, or the kind of any other failure.
    """
    kind, type_ = str(failure.get("kind") or ""), failure.get("type")
    return str((type_ if kind in {"", "Application"} or type_ == DEADLINE_EXCEEDED else None) or kind or "Failure")


def titled(message: str, titles: Mapping[str, str]) -> str:
    """Name the steps in the message of a failure for users.

    Args:
        message: The message.
        titles: The names of the steps, by their paths.

    Returns:
        For instance "step `train[3: lr=0.1]`: ...", where the message has "step `train[3]`: ...".
    """
    return _STEP.sub(lambda step: f"step `{titles.get(step[1], step[1])}`", message)


def summary(failure: Mapping[str, Any], titles: Mapping[str, str] = _NO_TITLES) -> str:
    """Format a failure in one line, with its cause if it has one.

    Args:
        failure: The outermost failure.
        titles: The names of the steps of the run for users, by their paths.

    Returns:
        For instance `CardDeclined: no funds`.
    """
    head = _sentence(failure)
    if failure.get("kind") in {"Activity", "ChildWorkflow"}:  # which usually contain the reason already
        return text.one_line(titled(with_cause(head, failure), titles))
    cause = failure.get("cause")
    before = _sentence(cause) if isinstance(cause, dict) else ""
    return text.one_line(titled(f"{head}, after {before}" if before and before != head else head, titles))


def task_failure(event: Mapping[str, Any]) -> str:
    """Format the failure of a workflow task in one line.

    Args:
        event: The WorkflowTaskFailed or WorkflowTaskTimedOut.

    Returns:
        For instance `WorkflowWorkerUnhandledFailure: no such step`, with the first line of the worker's message.
    """
    cause = str(event.get("cause") or "") or f"{event.get('timeoutType')} timeout"
    message = str(mapping(event.get("failure")).get("message") or "").strip().partition("\n")[0]
    return text.one_line(text.join((cause, message), ": "))


def with_cause(message: str, failure: Mapping[str, Any]) -> str:
    """Return the message of a failure and of its innermost cause, because SDKs only report that an activity failed.

    Args:
        message: The message that is already shown.
        failure: The outermost failure.

    Returns:
        For instance `Activity task failed: NotFoundError: there is no such activity`.
    """
    causes = [node for node in _causes(failure) if node.get("message")]
    if not causes or str(causes[-1]["message"]) in message:
        return message
    return f"{message}: {_sentence(causes[-1])}"


def _causes(failure: Mapping[str, Any]) -> Iterator[Json]:
    node = mapping(failure.get("cause"))
    for _ in range(_MAX_DEPTH):
        if not node:
            return
        yield node
        node = mapping(node.get("cause"))


def _sentence(failure: Mapping[str, Any]) -> str:
    message = str(failure.get("message") or "")
    if failure.get("kind") in {"Activity", "ChildWorkflow"} and message:
        return full_message_of(failure)
    if failure.get("kind") in {"Timeout", "Server"} and message:
        return message
    return f"{title(failure)}: {message}" if message else title(failure)


def chain(failure: Mapping[str, Any], page: Page, titles: Mapping[str, str] = _NO_TITLES) -> Iterator[Text]:
    """Show a failure and its causes, each indented below the failure that it caused.

    Args:
        failure: The outermost failure.
        page: The page for the output.
        titles: The names of the steps of the run for users, by their paths.

    Yields:
        Lines.
    """
    yield from _chain(failure, page, titles, 1, "")


def _chain(node: Any, page: Page, titles: Mapping[str, str], depth: int, before: str) -> Iterator[Text]:
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        return
    indent = "  " * depth
    name = text.one_line(title(node))
    message = text.join((f"{before}{name}", titled(_message_of(node), titles)), ": ")
    lines = [
        part for line in text.paragraphs(message) for part in text.wrap(line, max(page.width - len(indent) - 2, 20))
    ]
    for number, part in enumerate(lines):
        line = Text(indent + part if number == 0 else f"{indent}  {part}")
        if number == 0:
            line.stylize("bold red", len(indent) + len(before), len(indent) + len(before) + len(name))
        yield line
    yield from _more(node, f"{indent}  ", page)
    yield from _chain(node.get("cause"), page, titles, depth + 1, "caused by ")
    for other in mappings(node.get("suppressed")):
        yield from _chain(other, page, titles, depth + 1, "then failed as well: ")


def _message_of(node: Mapping[str, Any]) -> str:
    """Return the message of a failure without the messages of its causes, which are shown below it."""
    message = str(node.get("message") or "").strip()
    for other in reversed([mapping(node.get("cause")), *mappings(node.get("suppressed"))]):
        cause_message = str(other.get("message") or "").strip()
        for joint in ("; then failed as well: ", ": "):
            if cause_message and message.endswith(f"{joint}{cause_message}"):
                message = message.removesuffix(f"{joint}{cause_message}")
                break
    return message


def _more(node: Mapping[str, Any], indent: str, page: Page) -> Iterator[Text]:
    for name, label in (
        ("details", "details"),
        ("lastHeartbeatDetails", "last heartbeat"),
        ("nonRetryable", "not retryable"),
    ):
        shown = node.get(name)
        if shown not in (None, False):
            line = f"{label}: {text.value(shown)}" if shown is not True else label
            yield Text(indent + page.shorten(line, page.width - len(indent)), style="dim")
    # A log usually ends with the stack trace that was reported; a message may be the end of the log.
    for field, what in (("stackTrace", "stack trace"), ("log", "the log")):
        value = str(node.get(field) or "").strip()
        lines = [] if _in_one_line(value) in _in_one_line(str(node.get("message") or "")) else text.paragraphs(value)
        if len(lines) > _TRACE_LINES:
            yield Text(
                f"{indent}{page.glyphs.ellipsis} {len(lines) - _TRACE_LINES} lines of {what} before", style="dim"
            )
        for line in lines[-_TRACE_LINES:]:
            yield Text(indent + page.shorten(line, page.width - len(indent)), style="dim")
        if lines:
            return


def _in_one_line(value: str) -> str:
    return " ".join(value.split())
