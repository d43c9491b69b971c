"""The tree of steps as lines: one for each step, with notes below about its attempts, its wait, or its failure."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from rich.cells import cell_len
from rich.text import Text

from perdure.api.json_values import mapping
from perdure.language.step_tree import OPEN
from perdure.view import text
from perdure.view.page import Page, elapsed, style_of
from perdure.view.runs.failure import summary, titled
from perdure.view.runs.open_work import OpenActivity, OpenChild, OpenOperation
from perdure.view.runs.run import RunView
from perdure.view.runs.steps import StepView

_GAP = "  "
_NARROWEST_STEP = 10
_NARROWEST_TARGET = 8
_MAX_PODS = 3
_HEADINGS = ("STEP", "STATUS", "KIND", "TRIES", "START", "TIME")
_MAX_ITEMS = 6
"""Maximum items of a loop to show completely; of a longer one, only the first, the last, and notable items are shown."""
_FIRST_ITEMS, _LAST_ITEMS, _NOTABLE_ITEMS = 2, 1, 3
_SCREEN = 30
"""The most steps that a brief page shows completely."""
_MAX_SIBLINGS = 8
"""Maximum steps next to each other on a brief page; of more, only the first, the last, and notable ones are shown."""
_QUIET = frozenset({"Pending", "NotReached", "Skipped"})
_FAILED = frozenset({"Failed", "BackingOff"})
_STYLES = {"Failed": "red", "BackingOff": "yellow"}


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A step on the screen: its line and notes, or the number of omitted items."""

    lines: list[Text]
    reached: bool
    """Whether the step has started."""


@dataclass(frozen=True, slots=True)
class _Placement:
    """Position of a step in the drawing; without a step, `omitted` is the number of omitted steps."""

    step: StepView | None
    branch: str
    stem: str
    omitted: str = ""


def tree(run: RunView, page: Page, *, pods: bool = True) -> list[Text]:
    """Show the steps of a run.

    Args:
        run: The run.
        page: The page for the output.
        pods: Whether the pods of the attempts are named, or the workers that do them.

    Returns:
        Lines; the first one is the heading.
    """
    heading, blocks = rows(run, page, pods=pods)
    return [heading, *(line for block in blocks for line in block.lines)]


def rows(run: RunView, page: Page, *, pods: bool = True) -> tuple[Text, list[TreeEntry]]:
    """Show the steps of a run one by one.

    Args:
        run: The run.
        page: The page for the output.
        pods: Whether the pods of the attempts are named, or the workers that do them.

    Returns:
        The heading, and the entries of the steps.
    """
    places = list(_places(run.steps, "", page, _Room() if page.brief and _is_long(run) else None))
    cells = [_cells(place.step, run, page) for place in places if place.step is not None]
    names = [place.branch + _name(place.step) for place in places if place.step is not None]
    widths = _widths([(name, *row[1:]) for name, row in zip(names, cells, strict=True)], page)
    rest = iter(cells)
    blocks = []
    for place in places:
        if place.step is None:
            line = Text(place.branch + page.shorten(place.omitted, page.width - cell_len(place.branch)), style="dim")
            blocks.append(TreeEntry([line], reached=True))
        else:
            lines = [_row(place, next(rest), widths, page), *_notes(place, run, page, pods=pods)]
            blocks.append(TreeEntry(lines, reached=place.step.state not in {"Pending", "NotReached"}))
    return Text(_line(_HEADINGS, widths).rstrip(), style="dim"), blocks


@dataclass(slots=True)
class _Room:
    """The lines that are left on a brief page."""

    left: int = _SCREEN


def is_shortened(run: RunView, page: Page) -> bool:
    """Whether the page does not show all steps of a run."""
    return page.brief and _is_long(run)


def _is_long(run: RunView) -> bool:
    return next(islice(run.every_step(), _SCREEN, None), None) is not None


def _is_notable(step: StepView) -> bool:
    """Whether a step, or a step inside it, has failed or is open."""
    return any(each.state in _FAILED or each.state in OPEN for each in step.walk())


def _places(steps: Sequence[StepView], before: str, page: Page, room: _Room | None) -> Iterator[_Placement]:
    are_items = bool(steps) and steps[0].name.startswith("[")
    limit = _MAX_ITEMS if are_items else _MAX_SIBLINGS if room is not None else len(steps)
    notable = _is_notable if room is not None else lambda step: step.state == "Failed" or step.state in OPEN
    shown = _shown(steps, notable) if len(steps) > limit else [*steps]
    if room is not None:
        room.left -= len(shown)
    for number, entry in enumerate(shown):
        is_last = number == len(shown) - 1
        branch = before + (page.glyphs.last if is_last else page.glyphs.branch)
        stem = before + (" " * cell_len(page.glyphs.pipe) if is_last else page.glyphs.pipe)
        if isinstance(entry, StepView):
            yield _Placement(entry, branch, stem)
            if room is None or (room.left > 0 and _is_notable(entry)):
                yield from _places(entry.steps, stem, page, room)
            elif entry.steps and not (
                are_items or entry.steps[0].name.startswith("[")
            ):  # a loop has a note with counts
                last = stem + page.glyphs.last
                omitted = f"{page.glyphs.ellipsis} {counts(entry.steps, noun='step')}"
                yield _Placement(None, last, stem, omitted)
        else:
            noun = "item" if are_items else "step"
            yield _Placement(None, branch, stem, f"{page.glyphs.ellipsis} {counts(entry, noun=noun)}")


def _shown(steps: Sequence[StepView], notable: Callable[[StepView], bool]) -> list[StepView | list[StepView]]:
    """Return the shown steps, with the omitted ones between them."""
    chosen = islice((i for i, step in enumerate(steps) if notable(step)), _NOTABLE_ITEMS)
    kept = {*range(_FIRST_ITEMS), *chosen, *range(len(steps) - _LAST_ITEMS, len(steps))}
    shown: list[StepView | list[StepView]] = []
    for i, step in enumerate(steps):
        if i in kept:
            shown.append(step)
        elif shown and isinstance(shown[-1], list):
            shown[-1].append(step)
        else:
            shown.append([step])
    return shown


def counts(items: Sequence[StepView], count: int | None = None, *, rest: str = "to come", noun: str = "item") -> str:
    """Count the items by state.

    Args:
        items: The items with a known state.
        count: The number of items; None if it is not known.
        rest: The state of the other items.
        noun: What they are.

    Returns:
        For instance `12 items: 8 Succeeded, 2 Running, 2 to come`.
    """
    number = max(count or 0, len(items))
    states = Counter(item.state for item in items)
    states[rest] += number - len(items)
    counted = [f"{n} {state}" for state, n in states.items() if n]
    return f"{number} {noun}{'s' if number != 1 else ''}: {', '.join(counted)}"


def attempt_count(attempt: int, maximum: int, losses: int) -> str:
    """Describe the number of attempts. Attempts lost to the infrastructure do not count, and are shown separately.

    Args:
        attempt: Number of the attempt, including lost ones.
        maximum: Maximum number of attempts; 0: no limit.
        losses: Number of lost attempts.

    Returns:
        For instance `2`, `2/5`, `1/1 +2 lost`.
    """
    limit = f"/{maximum}" if maximum > 1 or (maximum and losses) else ""
    return f"{attempt - losses}{limit}" + (f" +{losses} lost" if losses else "")


def _name(step: StepView) -> str:
    return text.one_line(f"{step.name} {step.label}".rstrip())


def _cells(step: StepView, run: RunView, page: Page) -> tuple[str, ...]:
    start = "" if step.start is None else page.since(step.start, run.start)
    if step.earlier_run and not page.iso:
        start = "earlier"
    length = elapsed(step.start, step.end, page.now)
    return (
        _name(step),
        f"{page.glyphs.icons.get(step.state, '?')} {text.one_line(step.state)}",
        text.one_line(f"{step.kind} {step.target}{_source(step, run)}".strip()),
        "" if step.attempt is None else attempt_count(step.attempt, step.maximum_attempts, step.losses),
        start,
        "" if length is None else text.duration(length),
    )


def _source(step: StepView, run: RunView) -> str:
    """Name the Workflow from which the activity or block of a step was copied."""
    key = {"activity": "activities", "call": "blocks"}.get(step.kind, "")
    workflow = next((source.get("workflow") for source in run.sources if step.target in mapping(source.get(key))), "")
    return f" (of {workflow})" if workflow else ""


def _widths(table: Sequence[Sequence[str]], page: Page) -> list[int]:
    """Return the widths of the columns. If they are too wide, shorten the target of a step first, then its name."""
    widths = [max(cell_len(row[i]) for row in (_HEADINGS, *table)) for i in range(len(_HEADINGS))]
    too_wide = sum(widths) + len(_GAP) * (len(widths) - 1) - page.width
    for column, narrowest in ((2, _NARROWEST_TARGET), (0, _NARROWEST_STEP + cell_len(page.glyphs.branch))):
        cut = min(max(too_wide, 0), max(widths[column] - narrowest, 0))
        widths[column] -= cut
        too_wide -= cut
    return widths


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(text.pad(cell, width) for cell, width in zip(cells, widths, strict=True))


def _row(place: _Placement, cells: Sequence[str], widths: Sequence[int], page: Page) -> Text:
    assert place.step is not None
    name, state, target, *rest = cells
    quiet = "dim" if place.step.state in _QUIET else ""
    room = max(widths[0] - cell_len(place.branch), 1)
    row = Text(place.branch, style="")
    row.stylize("dim")
    row.append(text.pad(page.shorten(name, room), room), style=quiet or "bold")
    row.append(_GAP)
    row.append(text.pad(state, widths[1]), style=style_of(place.step.state))
    row.append(_GAP)
    row.append(_line([page.shorten(target, widths[2]), *rest], widths[2:]), style=quiet)
    row.rstrip()
    return row


def _notes(place: _Placement, run: RunView, page: Page, *, pods: bool) -> Iterator[Text]:
    step = place.step
    assert step is not None
    lines = []
    if step.count is not None or (step.steps and step.steps[0].name.startswith("[")):
        lines.append((counts(step.steps, step.count, rest=_rest(step)), ""))
    sentence = note(step, run, page)
    if sentence:
        lines.append((sentence, _STYLES.get(step.state, "")))
    if pods and (step.pods or step.task_queue) and not (is_shortened(run, page) and not _is_notable(step)):
        lines.append((_pods(step, run, page) if step.pods else _worker(step), "dim"))
    # The stem continues if there are lines below.
    stem = place.stem + (page.glyphs.pipe.rstrip() if step.steps else "")
    for line, style in lines:
        prefix = Text(text.pad(stem, cell_len(place.stem) + len(_GAP)), style="")
        prefix.stylize("dim")
        yield prefix.append(page.shorten(line, max(page.width - cell_len(prefix.plain), 20)), style=style)


def _rest(loop: StepView) -> str:
    """Return the state of the items of a loop that left no trace or have not started."""
    if loop.state in OPEN or loop.state == "Pending":
        return "to come"
    return "Succeeded" if loop.state in {"Succeeded", "Compensated"} else "not reached"


def _worker(step: StepView) -> str:
    return text.one_line(f"task queue {step.task_queue}" + (f", worker {step.worker}" if step.worker else ""))


def _pods(step: StepView, run: RunView, page: Page) -> str:
    """Format the pods of a step; if it failed, also whether the last pod, which has the log, still exists."""
    names = step.pods
    gone = step.state in _FAILED and run.live is not None and names[-1] not in run.live.pods
    after = " (deleted)" if gone else ""
    if len(names) > _MAX_PODS:
        return f"pods {names[0]} {page.glyphs.ellipsis} {names[-1]}{after}"
    return f"pod{'s' if len(names) > 1 else ''} {', '.join(names)}{after}"


# Notes about a step


def note(step: StepView, run: RunView, page: Page) -> str:
    """Return the note about a step, with information that its line does not contain.

    Args:
        step: The step.
        run: Its run.
        page: The page for the output.

    Returns:
        One line; empty if there is no note.
    """
    match step.state:
        case "Succeeded" | "Compensated":
            cached = f"cached result {step.cached}" if step.cached else ""
            note = text.join((cached, _before(step), step.remark))
        case "Failed" | "TimedOut" | "Terminated":
            note = _failed(step, run)
        case "Skipped":
            note = "its `when` was false"
        case "Stopped":
            note = f"interrupted when the run ended {run.phase}"
        case "Running" if run.closed:
            note = f"keeps running after the run ended {run.phase}"
        case _:
            note = _pending(step, page)
    if step.earlier_run and step.kind in {"activity", "childWorkflow", "child"} and not step.steps:
        note = text.join((f"ran in the earlier run {step.earlier_run}", note))
    if step.limit is not None and not run.closed:
        note = text.join((note, f"times out {page.relative(step.limit.fires)}"))
    return text.one_line(titled(note, run.titles))


def _pending(step: StepView, page: Page) -> str:
    """Return the state of an open step and the reason of its wait."""
    if step.open is not None and step.kind == "limits":
        return step.open.waits_for or "waits for its WorkflowLimits"
    if step.open is not None and step.kind == "service":
        return (step.open.waits_for or "is not ready yet") if step.state == "Waiting" else "ready"
    if step.open is not None:
        return _attempt(step.open, page)
    if step.child is not None:
        return _child(step.child)
    if step.operation is not None:
        return _operation(step.operation, page)
    return _waiting(step, page) if step.state == "Waiting" else ""


def _before(step: StepView) -> str:
    """Return the failures before the step succeeded."""
    if step.failure:  # its `catch` has handled it
        return f"caught: {summary(step.failure)}"
    return f"attempt {(step.attempt or 2) - 1} failed: {summary(step.last_failure)}" if step.last_failure else ""


def _failed(step: StepView, run: RunView) -> str:
    """Return why a step failed, if no step inside it shows the failure."""
    if any(inner.state == "Failed" for inner in step.steps):
        return ""
    # The failure of a run of steps is that of one of them.
    of_run = run.code is None and "/" not in step.path and not step.path.startswith(":")
    failure = step.failure or (run.failure if of_run else None)
    return text.join((summary(failure) if failure else "", step.retry_state))


def _waiting(step: StepView, page: Page) -> str:
    if step.timer is None:
        return step.note
    verb = "times out" if step.kind in {"waitForSignal", "waitUntil"} else "fires"
    return text.join(
        (step.note, "is due" if step.timer.fires <= page.now else f"{verb} {page.relative(step.timer.fires)}")
    )


def _child(child: OpenChild) -> str:
    where = f"run {child.workflow_run}" if child.workflow_run else f"workflow ID {child.workflow_id}"
    return text.join((where, text.join((child.phase, child.progress), " "), child.waits_for))


def _operation(operation: OpenOperation, page: Page) -> str:
    cancellation = "cancellation requested" if operation.cancellation else None
    if operation.started is not None:
        return text.join((f"started in namespace {operation.handler_namespace}", cancellation))
    due = page.relative(operation.next_attempt) if operation.next_attempt else "waits for its handler"
    before = operation.last_failure
    failed = f"attempt {operation.attempt - 1} failed: {summary(before)}" if before else None
    return text.join((f"attempt {operation.attempt} {due}", failed, cancellation))


def _attempt(activity: OpenActivity, page: Page) -> str:
    attempt = f"attempt {activity.attempt}"
    failed = f"attempt {activity.attempt - 1} failed: {summary(activity.last_failure)}" if activity.last_failure else ""
    if activity.next_attempt is not None:
        return text.join((f"{attempt} {page.relative(activity.next_attempt)}", failed))
    if activity.state == "Scheduled":
        whom = "a worker" if activity.task_queue else "its pod"
        return text.join(
            (f"{attempt}: {activity.waits_for}" if activity.waits_for else f"{attempt} waits for {whom}", failed)
        )
    return text.join((heartbeat(activity, page), failed))


def heartbeat(activity: OpenActivity, page: Page) -> str:
    """Describe the last heartbeat of an attempt: its time and details.

    Args:
        activity: The open activity.
        page: The page for the output.

    Returns:
        One line; empty if there was none.
    """
    details = "" if activity.details is None else text.value(activity.details)
    if activity.heartbeat is None:
        return f"last heartbeat: {details}" if details else ""
    return text.join((f"heartbeat {page.relative(activity.heartbeat)}", details), ": ")
