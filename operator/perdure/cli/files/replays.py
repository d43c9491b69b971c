"""Replays a recorded history with a definition, and shows the first difference. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pydantic
import yaml
from rich.text import Text

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.api.models import mistakes
from perdure.api.reasons import ConditionReason
from perdure.cli.files import histories
from perdure.client.errors import CliError
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.commands import Decider, UndecidableError
from perdure.engine.events import AnyEvent
from perdure.language.compiler import compile_program
from perdure.language.interpreter import Interpreter, Refuser, RunScope
from perdure.language.keys import limit_keys
from perdure.language.program import InvalidWorkflowError, Program
from perdure.language.reuse import compose_all, in_namespace
from perdure.runtime import status_encoding
from perdure.schedule.run_manifests import schedule_scope
from perdure.view import text
from perdure.view.page import Page
from perdure.view.runs.events import readable


def read_history(content: str, source: str) -> tuple[AnyEvent, ...]:
    """Read a history.

    Args:
        content: JSON, as from `history -o json`, or a file of the archive.
        source: The source of the history, for messages.

    Returns:
        At least one event.

    Raises:
        CliError: The text is not a history.
    """
    remedy = "write it with `history --output json`"
    try:
        events = history.decode_events(histories.events_in(content, source))
    except (ValueError, msgspec.ValidationError) as error:
        raise CliError(f"{source} is not a valid history ({error}); {remedy}") from error
    if not events:
        raise CliError(f"{source} is a history without events; {remedy} once the run has started")
    return events


def workflow_type(events: Sequence[AnyEvent]) -> str:
    """Return the workflow type of a history; empty if the history does not have it."""
    first = events[0]
    return first.workflow_type if isinstance(first, ev.WorkflowExecutionStarted) else ""


def read_manifest(content: str, source: str, wanted: str) -> dict[str, Any]:
    """Find the definition in a manifest.

    Args:
        content: YAML with one or more documents.
        source: The source of the manifest, for messages.
        wanted: The workflow type of the history, which is preferred if there are several definitions.

    Returns:
        A Workflow, or a WorkflowRun that contains its definition, with the parts that it copies from other Workflows in the text.

    Raises:
        CliError: The manifest has no definition, or another Workflow is missing.
    """
    try:
        documents = [
            status_encoding.decode(document) for document in yaml.safe_load_all(content) if isinstance(document, dict)
        ]
    except yaml.YAMLError as error:
        raise CliError(f"{source} is not valid YAML: {error}") from error
    found = [document for document in documents if definition_of(document) is not None]
    if not found:
        raise CliError(
            f"{source} has neither a Workflow, nor a WorkflowRevision, nor a WorkflowRun with its definition; use a manifest of "
            "one of them"
        )
    chosen = next((document for document in found if _name(document) == wanted), found[0])
    return _composed(chosen, found, source)


def _composed(manifest: dict[str, Any], documents: Sequence[dict[str, Any]], source: str) -> dict[str, Any]:
    """Return a manifest whose definition contains what it copies from the Workflows in some documents."""
    definition = definition_of(manifest)
    workflows = [document for document in documents if document.get("kind") == "Workflow"]
    namespace = _namespace(manifest)
    libraries = in_namespace(((_namespace(each), _name(each), each["spec"]) for each in workflows), namespace)
    composed = compose_all(definition or {}, libraries, namespace)
    for missing in composed.missing:
        raise CliError(f"{source}: {missing.path}: has no Workflow `{missing.workflow}`; add its manifest to the file")
    if composed.findings:
        raise CliError(f"{source}: {'; '.join(map(str, composed.findings))}")
    if not composed.libraries:
        return manifest
    where = {"inline": composed.definition} if manifest["kind"] == "WorkflowRun" else composed.definition
    return {**manifest, "spec": where}


def definition_of(manifest: dict[str, Any]) -> dict[str, Any] | None:
    """Return the definition in a Workflow, WorkflowRevision, or WorkflowRun; None if a manifest has none."""
    spec = manifest.get("spec")
    if not isinstance(spec, dict):
        return None
    if manifest.get("kind") == "Workflow":
        return spec
    if manifest.get("kind") == "WorkflowRevision":
        return spec.get("definition")
    if manifest.get("kind") == "WorkflowRun":
        pinned = (manifest.get("status") or {}).get("definition")
        return pinned or spec.get("inline")
    return None


@dataclass(frozen=True, slots=True)
class Difference:
    """The first event that differs from the decisions of the definition."""

    number: int
    """ID of the event; if the history ends too early, the ID after the last event."""
    event: Any
    """The event; None if the history has ended."""
    command: Any
    """The command from the definition instead; None if there is none."""


def replay(
    events: Sequence[AnyEvent], manifest: dict[str, Any], *, name: str | None, namespace: str | None
) -> Difference | str | None:
    """Replay a history.

    Args:
        events: The history.
        manifest: A Workflow or WorkflowRun.
        name: Name of the run; None for the name of the WorkflowRun, or the workflow ID.
        namespace: Namespace of the run; None for the namespace of the manifest.

    Returns:
        None if the history replays; otherwise the first difference, or a sentence with the problem.
    """
    program = _compile(definition_of(manifest))
    if isinstance(program, str):
        return program
    first = events[0]
    if not isinstance(first, ev.WorkflowExecutionStarted):
        return f"a history must begin with WorkflowExecutionStarted, not with {type(first).__name__}"
    metadata = manifest.get("metadata") or {}
    is_run = manifest.get("kind") == "WorkflowRun"
    scope = RunScope(
        name=name or (_name(manifest) if is_run else "") or first.workflow_id,
        namespace=namespace or metadata.get("namespace") or "default",
        workflow_id=first.workflow_id,
        run_id=first.original_execution_run_id,
        attempt=first.attempt,
        schedule=schedule_scope(manifest) if is_run else {},
    )
    decider: Decider = _refused(program, scope, events) or Interpreter(
        program, scope, input=first.input, start_time=first.event_time
    )
    try:
        history.replay(events, decider)
    except history.NondeterminismError as error:
        return Difference(error.number, error.event, error.command)
    except UndecidableError as error:
        return str(error)
    except ValueError as error:
        return f"the history is incomplete or out of order: {error}"
    return None


def _refused(program: Program, scope: RunScope, events: Sequence[AnyEvent]) -> Refuser | None:
    """The decider of a run that the operator refused when it started; None if the definition decides.

    Only the history says whether it was refused because of other runs.
    """
    first, last = events[0], events[-1]
    assert isinstance(first, ev.WorkflowExecutionStarted)
    if wrong := program.check_input(first.input):
        return Refuser("; ".join(map(str, wrong)), ConditionReason.INVALID_INPUT.value)
    try:
        list(limit_keys(program, first.input, scope.schedule))
    except InvalidWorkflowError as error:
        return Refuser(str(error), error.type)
    failure = last.failure if len(events) == 2 and isinstance(last, ev.WorkflowExecutionFailed) else None  # noqa: PLR2004
    return Refuser(failure.message, failure.type) if failure is not None and failure.type in _BY_OTHERS else None


_BY_OTHERS: Final = frozenset(
    {ConditionReason.LIMIT_REACHED.value, ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED.value}
)
"""Types of the failures of runs that were refused because of other runs."""


def _compile(definition: dict[str, Any] | None) -> Program | str:
    try:
        return compile_program(WorkflowSpec.parse(definition))
    except pydantic.ValidationError as error:
        return f"the definition cannot be run: {'; '.join(mistakes(error))}"
    except InvalidWorkflowError as error:
        return f"the definition cannot be run: {error}"


def _namespace(manifest: dict[str, Any]) -> str:
    return str((manifest.get("metadata") or {}).get("namespace") or "")


def _name(manifest: dict[str, Any]) -> str:
    return str((manifest.get("metadata") or {}).get("name") or "")


# The first difference


_NAMES = ("activity_id", "activity_type", "timer_id", "child_id", "signal_id", "workflow_id", "signal_name")
"""Attributes that identify the step, which are always shown."""
_ALWAYS = (*_NAMES, "start_to_fire_timeout", "input", "result", "failure")
_EXCLUDED = {"event_id", "event_time", "event_type", "successor", "new_run_backoff"}
"""Attributes that do not depend on the definition."""


def show(difference: Difference, page: Page) -> Iterator[Text]:
    """Show a difference.

    Args:
        difference: The difference.
        page: The page for the output.

    Yields:
        Lines.
    """
    yield Text(f"does not replay: event {difference.number} differs", style="bold red")
    for name, side, other, nothing in (
        ("history", difference.event, difference.command, "has ended"),
        ("definition", difference.command, difference.event, "does nothing"),
    ):
        label = f"  {text.pad(f'{name}:', 12)}"
        yield Text(f"{label}{type(side).__name__ if side is not None else nothing}")
        for key, value, differs in _attributes(side, other, page.width - 40):
            line = Text(f"{' ' * 14}{key}: ", style="yellow" if differs else "")
            yield line.append(page.shorten(readable(key, value), max(page.width - len(line.plain), 30)))


def _attributes(side: Any, other: Any, width: int) -> Iterator[tuple[str, Any, bool]]:
    """Yield attributes of one side: name, value, and whether the other side has another value."""
    if side is None:
        return
    rest = (key for key in _fields(side) if key not in _ALWAYS and key in _fields(other) and key not in _EXCLUDED)
    for key in (*_ALWAYS, *rest):
        shown, against = _plain(side, key), _plain(other, key)
        differs = shown != against
        if differs and isinstance(shown, dict) and isinstance(against, dict) and len(text.value(shown)) > width:
            for path, value in _parts(_camel(key), shown, against):
                yield path, value, True
        elif (key in _ALWAYS and (shown, against) != (None, None)) or differs:
            yield _camel(key), shown, differs


def _parts(path: str, shown: dict[str, Any], against: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the differing parts of two long objects."""
    for key in sorted(shown.keys() | against.keys()):
        here, there = shown.get(key), against.get(key)
        if here == there:
            continue
        if isinstance(here, dict) and isinstance(there, dict):
            yield from _parts(f"{path}.{key}", here, there)
        else:
            yield f"{path}.{key}", here


def _fields(side: Any) -> tuple[str, ...]:
    """Return the names of the attributes of an event or a command."""
    found: tuple[str, ...] = getattr(side, "__struct_fields__", ())
    return found or tuple(getattr(side, "__dataclass_fields__", ()))


def _plain(side: Any, key: str) -> Any:
    return None if side is None else msgspec.to_builtins(getattr(side, key, None))


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))
