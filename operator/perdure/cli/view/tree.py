"""The tree of steps: a line for each step, and what is to know about it below."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from perdure.cli.view import text
from perdure.cli.view.facts import OpenActivity, Run, Step
from perdure.cli.view.failure import summary
from perdure.cli.view.page import Page, elapsed, style_of

_GAP = "  "
_NARROWEST_STEP = 10
_NARROWEST_TARGET = 8
_MAX_PODS = 3
_HEADINGS = ("STEP", "STATUS", "KIND", "TRIES", "START", "TIME")


def tree(run: Run, page: Page, *, pods: bool = True) -> list[Text]:
    """Show the steps of a run.

    Args:
        run: The run.
        page: What they are shown on.
        pods: Whether the pods of the attempts are named.

    Returns:
        Lines; the first one is the heading.
    """
    heading, blocks = rows(run, page, pods=pods)
    return [heading, *(line for block in blocks for line in block)]


def rows(run: Run, page: Page, *, pods: bool = True) -> tuple[Text, list[list[Text]]]:
    """Show the steps of a run, each for itself.

    Args:
        run: The run.
        page: What they are shown on.
        pods: Whether the pods of the attempts are named.

    Returns:
        The heading, and the lines of each step.
    """
    cells = [_cells(step, run, page) for step in run.steps]
    widths = _widths(cells, page)
    blocks = []
    for index, step in enumerate(run.steps):
        is_last = index == len(run.steps) - 1
        block = [_row(step, cells[index], widths, page, is_last=is_last)]
        stem = " " * cell_len(page.glyphs.pipe) if is_last else page.glyphs.pipe
        for sentence, style in _notes(step, run, page, pods=pods):
            line = Text(f"{stem}  ", style="")
            line.stylize("dim")
            block.append(line.append(page.shorten(sentence, page.width - cell_len(line.plain)), style=style))
        blocks.append(block)
    return Text(_line(_HEADINGS, widths).rstrip(), style="dim"), blocks


def _cells(step: Step, run: Run, page: Page) -> tuple[str, ...]:
    start = "" if step.start is None else page.since(step.start, run.start)
    length = elapsed(step.start, step.end, page.now)
    tries = "" if step.attempt is None else str(step.attempt)
    if step.maximum_attempts > 1 and step.attempt is not None:
        tries += f"/{step.maximum_attempts}"
    return (
        text.one_line(step.name),
        f"{page.glyphs.icons.get(step.state, '?')} {text.one_line(step.state)}",
        text.one_line(f"{step.kind} {step.target}".strip()),
        tries,
        start,
        "" if length is None else text.duration(length),
    )


def _widths(table: Sequence[Sequence[str]], page: Page) -> list[int]:
    """Natural widths; where that is too wide, what a step is about gives way first, then its name."""
    stem = cell_len(page.glyphs.branch)
    widths = [max(cell_len(row[i]) for row in (_HEADINGS, *table)) for i in range(len(_HEADINGS))]
    widths[0] += stem
    too_wide = sum(widths) + len(_GAP) * (len(widths) - 1) - page.width
    for column, narrowest in ((2, _NARROWEST_TARGET), (0, _NARROWEST_STEP + stem)):
        given = min(max(too_wide, 0), max(widths[column] - narrowest, 0))
        widths[column] -= given
        too_wide -= given
    return widths


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(text.pad(cell, width) for cell, width in zip(cells, widths, strict=True))


def _row(step: Step, cells: Sequence[str], widths: Sequence[int], page: Page, *, is_last: bool) -> Text:
    stem = page.glyphs.last if is_last else page.glyphs.branch
    name, state, target, *rest = cells
    quiet = "dim" if step.state in {"Pending", "NotReached", "Skipped"} else ""
    row = Text(stem, style="")
    row.stylize("dim")
    row.append(
        text.pad(page.shorten(name, widths[0] - cell_len(stem)), widths[0] - cell_len(stem)), style=quiet or "bold"
    )
    row.append(_GAP)
    row.append(text.pad(state, widths[1]), style=style_of(step.state))
    row.append(_GAP)
    row.append(_line([page.shorten(target, widths[2]), *rest], widths[2:]), style=quiet)
    row.rstrip()
    return row


def _notes(step: Step, run: Run, page: Page, *, pods: bool) -> Iterator[tuple[str, str]]:
    sentence = note(step, run, page)
    if sentence:
        yield sentence, {"Failed": "red", "BackingOff": "yellow"}.get(step.state, "")
    if pods and step.pods:
        yield _pods(step.pods, page), "dim"


def _pods(names: Sequence[str], page: Page) -> str:
    if len(names) > _MAX_PODS:
        return f"pods {names[0]} {page.glyphs.ellipsis} {names[-1]}"
    return f"pod{'s' if len(names) > 1 else ''} {', '.join(names)}"


def note(step: Step, run: Run, page: Page) -> str:
    """What is to know about a step, beside what its line says.

    Args:
        step: The step.
        run: Its run.
        page: What it is shown on.

    Returns:
        One line; empty where there is nothing to know.
    """
    match step.state:
        case "Succeeded":
            told = (
                f"attempt {(step.attempt or 2) - 1} failed: {summary(step.last_failure)}" if step.last_failure else ""
            )
        case "Failed":
            failure = step.failure or run.failure
            told = text.join((summary(failure) if failure else "", step.retry_state))
        case "Stopped":
            told = f"cut off when the run ended {run.phase}"
        case "Waiting" if step.timer is not None:
            due = step.timer.fires <= page.now
            told = "is due" if due else f"fires {page.near(step.timer.fires)}"
        case _ if step.open is not None:
            told = _open_note(step.open, page)
        case _:
            told = ""
    return text.one_line(told)


def _open_note(activity: OpenActivity, page: Page) -> str:
    attempt = f"attempt {activity.attempt}"
    failed = f"attempt {activity.attempt - 1} failed: {summary(activity.last_failure)}" if activity.last_failure else ""
    if activity.next_attempt is not None:
        return text.join((f"{attempt} {page.near(activity.next_attempt)}", failed))
    if activity.state == "Scheduled":
        return text.join(
            (f"{attempt}: {activity.waits_for}" if activity.waits_for else f"{attempt} waits for its pod", failed)
        )
    return text.join((heartbeat(activity, page), failed))


def heartbeat(activity: OpenActivity, page: Page) -> str:
    """When an attempt sent its last heartbeat, and what it said.

    Args:
        activity: The open activity.
        page: What it is shown on.

    Returns:
        One line; empty where there was none.
    """
    details = "" if activity.details is None else text.value(activity.details)
    if activity.heartbeat is None:
        return f"last heartbeat said {details}" if details else ""
    return text.join((f"heartbeat {page.near(activity.heartbeat)}", details), ": ")
