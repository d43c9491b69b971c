"""A run as HTML for notebooks: its state, the graph of its steps, and its failure. Without scripts, and with its own style."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from perdure.view import text
from perdure.view.page import UNICODE, style_of
from perdure.view.runs.failure import summary
from perdure.view.runs.graph import Box, Graph, lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from perdure.view.runs.run import RunView

_COLORS: Final = {
    "green": "#2e7d32",
    "bold red": "#c62828",
    "magenta": "#8e24aa",
    "cyan": "#00838f",
    "blue": "#1565c0",
    "yellow": "#b26a00",
}
"""Colors on light and on dark backgrounds, by the style of a status in a terminal."""
_QUIET: Final = "#777"
_LONGEST_VALUE: Final = 200
_LONGEST_NAME: Final = 28
_MARGIN: Final = 4


def as_html(run: RunView, definition: Mapping[str, Any], now: datetime) -> str:
    """Return a run as HTML.

    Args:
        run: The run.
        definition: Its definition; empty for a run of code.
        now: The time.

    Returns:
        One element.
    """
    parts = [_heading(run, now), *_values(run)]
    if run.steps:
        parts.append(_drawing(lay_out(run.steps, definition)))
    if run.failure:
        parts.append(f'<p style="color:{_color("Failed")}">{_escaped(summary(run.failure, run.titles))}</p>')
    return f'<div class="perdure-run" style="overflow-x:auto">{"".join(parts)}</div>'


def _heading(run: RunView, now: datetime) -> str:
    length = run.duration(now)
    workflow = run.workflow or run.activity or run.operation or ""
    rest = text.join((workflow, run.progress, "" if length is None else text.duration(length)), " · ")
    return (
        f'<p><strong>{_escaped(run.name)}</strong> <span style="color:{_color(run.phase)}">{_state(run.phase)}</span> '
        f"{_escaped(rest)}</p>"
    )


def _values(run: RunView) -> Iterator[str]:
    """Yield the input, the output, and why an open run waits."""
    shown = [("Input", run.input), ("Output", run.output)]
    lines = [(label, text.value(value)) for label, value in shown if value is not None]
    if not run.closed and run.message:
        lines.append((run.reason or "Status", run.message))
    for label, value in lines:
        yield f"<p>{_escaped(label)}: <code>{_escaped(text.shorten(value, _LONGEST_VALUE, '…'))}</code></p>"


def _drawing(graph: Graph) -> str:
    width, height = graph.width + 2 * _MARGIN, graph.height + 2 * _MARGIN
    lines = "".join(
        f'<path fill="none" stroke="{_QUIET}" d="M{line.x1} {line.y1}V{line.bend}'
        f'C{line.x1} {line.bend + 16} {line.x2} {line.y2 - 18} {line.x2} {line.y2}"/>'
        for line in graph.lines
    )
    boxes = "".join(map(_box, graph.boxes))
    hidden = f"<p>{graph.hidden} more steps are not drawn</p>" if graph.hidden else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="Steps" width="{width}" height="{height}" '
        f'viewBox="-{_MARGIN} -{_MARGIN} {width} {height}" font-family="sans-serif" font-size="13" fill="currentColor">'
        f"{lines}{boxes}</svg>{hidden}"
    )


def _box(box: Box) -> str:
    step, color = box.step, _color(box.step.state)
    if step.cached:
        rest = "cached"
    elif step.attempt and step.attempt > 1:
        rest = f"attempt {step.attempt}"
    elif step.count:
        rest = f"{step.count} items"
    else:
        rest = f"{box.hidden} inside" if box.hidden else ""
    state = f'<tspan fill="{color}">{_state(step.state)}</tspan>'
    name = text.shorten(text.one_line(step.name), _LONGEST_NAME, "…")
    return (
        f"<g><title>{_escaped(step.path)}: {_escaped(step.state)}</title>"
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" stroke="{color}" fill="{color}" '
        f'fill-opacity="{0.04 if box.group else 0.1}"/>'
        f'<text x="{box.x + 12}" y="{box.y + 23}" font-weight="600">{_escaped(name)}</text>'
        f'<text x="{box.x + 12}" y="{box.y + 43}">{state}{_escaped(f" · {rest}" if rest else "")}</text></g>'
    )


def _state(word: str) -> str:
    return _escaped(f"{UNICODE.icons.get(word, '?')} {word}")


def _color(word: str) -> str:
    return _COLORS.get(style_of(word), _QUIET)


def _escaped(value: str) -> str:
    return escape(text.one_line(value))
