"""Formats a whole run: header, steps, open work, failure, and next commands."""

from collections.abc import Iterator

from rich.text import Text

from perdure.view import failure, hints, stored_artifacts, text
from perdure.view.facts import OpenRequest, ShownRun
from perdure.view.page import Page
from perdure.view.pending import activity_card, child_lines, operation_cards, signal_lines, timer_lines
from perdure.view.tree import tree
from perdure.view.workflow_task import ShownCode, standing

_LABEL = 14


def describe(run: ShownRun, page: Page) -> list[Text]:
    """Show a run.

    Args:
        run: The run.
        page: The page for the output.

    Returns:
        Lines.
    """
    return [*header(run, page), *sections(run, page)]


def sections(run: ShownRun, page: Page) -> Iterator[Text]:
    """Show the part below the header: steps, open work, failure, and next commands.

    Args:
        run: The run.
        page: The page for the output.

    Yields:
        Lines; an empty one before each section.
    """
    for title, content in (
        (f"Steps {run.progress}".strip(), tree(run, page) if run.steps else []),
        ("Pending activities", [line for activity in run.activities for line in activity_card(activity, page)]),
        ("Pending timers", list(timer_lines(run, page))),
        ("Pending children", list(child_lines(run, page))),
        ("Pending Nexus operations", list(operation_cards(run, page))),
        ("Pending signals", list(signal_lines(run, page))),
        ("Artifacts", list(stored_artifacts.section(run.artifacts or {}, page))),
        ("Failure", list(failure.chain(run.failure, page)) if run.failure else []),
        ("What next", list(hints.show(hints.hints(run, page)))),
    ):
        if content:
            yield Text()
            yield Text(title, style="bold")
            yield from content


def _workers(run: ShownRun) -> Iterator[Text]:
    if run.task_queue:
        yield _field("Task queue", run.task_queue)
    if run.versioning:
        yield _field("Version", run.versioning)


def _id_label(run: ShownRun) -> str:
    if run.activity is not None:
        return "Activity ID"
    return "Workflow ID" if run.operation is None else "Operation ID"


def header(run: ShownRun, page: Page) -> Iterator[Text]:
    """Show a run and its phase.

    Args:
        run: The run.
        page: The page for the output.

    Yields:
        Lines.
    """
    yield _field("Name", run.name)
    yield _field("Namespace", run.namespace)
    if run.activity is not None:
        yield _field("Activity", f"{run.activity} (standalone)")
    elif run.operation is not None:
        yield _field("Operation", f"{run.operation} (standalone)")
        yield _field("Endpoint", run.endpoint)
    else:
        yield _field("Workflow", run.workflow or "inline")
    yield from _workers(run)
    if run.workflow_id != run.name:
        yield _field(_id_label(run), run.workflow_id)
    if run.uid:
        yield _field("Run ID", run.uid)
    yield from _chain(run)
    yield from _workspaces(run)
    yield from status(run, page)
    if run.start is not None:
        yield _field("Started", page.moment(run.start))
    if run.end is not None:
        yield _field("Ended", page.moment(run.end))
    length = run.duration(page.now)
    if length is not None:
        yield _field("Duration", text.duration(length))
    for label, data in (("Input", run.input), ("Output", run.output)):
        if data is not None:
            yield _field(label, page.shorten(text.value(data), page.width - _LABEL))


def _chain(run: ShownRun) -> Iterator[Text]:
    """Yield lines for the related runs."""
    chain = run.chain
    if chain.parent:
        yield _field("Parent", chain.parent)
    if chain.attempt > 1:
        yield _field("Attempt", str(chain.attempt))
    if chain.continues:
        yield _field("After", chain.continues)
    if chain.continued_as:
        yield _field("Continues as", chain.continued_as)


def _workspaces(run: ShownRun) -> Iterator[Text]:
    for workspace, claim in run.claims:
        yield _field("Workspace", f"{workspace} (PersistentVolumeClaim {claim})")


def status(run: ShownRun, page: Page) -> Iterator[Text]:
    """Show the status of a run and its reason.

    Args:
        run: The run.
        page: The page for the output.

    Yields:
        Lines.
    """
    line = _label("Status").append_text(page.status(run.phase))
    if run.reason and run.reason != run.phase:
        line.append(f" ({text.one_line(run.reason)})")
    if run.deleting:
        line.append(", being deleted", style="magenta")
    yield line
    if run.paused is not None:
        yield from _wrapped("Paused", _request(run.paused, page), page)
    elif run.message and not run.failure:
        yield from _wrapped("Message", run.message, page)
    if run.code is not None and not run.closed:
        yield from _task(run, run.code, page)
    if run.undecided and run.undecided.next_attempt is not None:
        yield _field("Next attempt", f"attempt {run.undecided.attempt + 1} {page.near(run.undecided.next_attempt)}")
    if run.cancel is not None:
        yield from _wrapped("Cancellation", _request(run.cancel, page), page)
    for condition in run.conditions:
        if condition.type not in {"Succeeded", "Paused", "CancelRequested"}:
            yield from _wrapped(
                condition.type, text.join((f"{condition.status} ({condition.reason})", condition.message), ": "), page
            )


def _task(run: ShownRun, code: ShownCode, page: Page) -> Iterator[Text]:
    """The signals that the run waits for."""
    if code.task is not None:
        yield from _wrapped("Task", standing(code.task, page), page)
    elif run.phase == "Running":
        waits = any(step.end is None for step in run.steps)
        yield _field("Task", f"none; the run waits for {'its pending work' if waits else 'a signal or an update'}")


def _request(request: OpenRequest, page: Page) -> str:
    """Format the time, the requester, and the reason of a request."""
    when = page.moment(request.time) if request.time else "yes"
    return text.join((when + (f" by {request.identity}" if request.identity else ""), request.reason), ": ")


def _label(name: str) -> Text:
    return Text(text.pad(f"{name}:", _LABEL - 1) + " ", style="").append("")


def _field(name: str, shown: str) -> Text:
    return _label(name).append(text.one_line(shown))


def _wrapped(name: str, shown: str, page: Page) -> Iterator[Text]:
    first, *rest = text.wrap(text.one_line(shown), page.width - _LABEL)
    yield _field(name, first)
    yield from (Text(" " * _LABEL + line) for line in rest)
