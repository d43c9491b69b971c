"""Lays out the steps of a run. Pure.

Steps are below the steps that they need; the branches, items, and failure handlers of a step are inside its box.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from perdure.api.json_values import Json, mapping, mappings
from perdure.view.runs.steps import StepView

WIDTH: Final = 240
HEIGHT: Final = 58
GAP: Final = 28
PADDING: Final = 12
ACROSS: Final = 4
"""Maximum boxes in a row; more start another row."""
MAX_BOXES: Final = 300
"""Maximum boxes in a graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A step, with the place and the size of its box."""

    step: StepView
    x: float
    y: float
    width: float
    height: float
    group: bool = False
    """Whether the box contains other steps."""
    hidden: int = 0
    """Number of steps in the box that are not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line from a step to a step that needs it: straight down past its row, then to the other step."""

    x1: float
    y1: float
    bend: float
    x2: float
    y2: float


Shape: TypeAlias = Box | Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The steps of a run."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    """The shapes; later ones cover earlier ones."""
    hidden: int
    """Number of steps that are not drawn."""

    @property
    def boxes(self) -> list[Box]:
        """The boxes, outer ones first."""
        return [shape for shape in self.shapes if isinstance(shape, Box)]

    @property
    def lines(self) -> list[Line]:
        """The lines between the boxes."""
        return [shape for shape in self.shapes if isinstance(shape, Line)]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A drawing with its upper left corner at 0, 0."""

    width: float = 0
    height: float = 0
    shapes: tuple[Shape, ...] = ()


def lay_out(steps: Sequence[StepView], definition: Mapping[str, Any]) -> Graph:
    """Lay out the steps of a run.

    Args:
        steps: The steps.
        definition: The definition of the run; empty if it is not known.

    Returns:
        The graph.
    """
    placer = _Layout(definition)
    piece = placer.frame(steps, mappings(definition.get("steps")))
    return Graph(width=piece.width, height=piece.height, shapes=piece.shapes, hidden=placer.hidden)


class _Layout:
    def __init__(self, definition: Mapping[str, Any]) -> None:
        self._blocks = {
            str(block.get("name")): mappings(block.get("steps")) for block in mappings(definition.get("blocks"))
        }
        self._left = MAX_BOXES
        self.hidden = 0

    def frame(self, steps: Sequence[StepView], definition: Sequence[Json]) -> _Piece:
        """Place the steps of a block in rows, by their needs."""
        shown = self._first(steps)
        needs = needs_of([step.name for step in shown], definition)
        rows = [row for rank in ranks(needs) for row in _chunks(rank, ACROSS)]
        pieces = {step.name: self.node(step) for step in shown}
        return _stacked([[(name, pieces[name]) for name in row] for row in rows], needs)

    def node(self, step: StepView) -> _Piece:
        """Place a step and its contents."""
        inside = self._inside(step) if step.steps else _Piece()
        drawn = sum(isinstance(shape, Box) for shape in inside.shapes)
        hidden = sum(1 for _ in step.walk()) - 1 - drawn
        if not drawn:
            return _Piece(WIDTH, HEIGHT, (Box(step=step, x=0, y=0, width=WIDTH, height=HEIGHT, hidden=hidden),))
        width, height = max(inside.width, WIDTH) + 2 * PADDING, HEIGHT + inside.height + PADDING
        moved = _moved(inside, (width - inside.width) / 2, HEIGHT)
        group = Box(step=step, x=0, y=0, width=width, height=height, group=True, hidden=hidden)
        return _Piece(width, height, (group, *moved))

    def _inside(self, step: StepView) -> _Piece:
        of_block = [
            inner for inner in step.steps if inner.name[:1] != "[" and inner.name not in {"catch", "compensate"}
        ]
        side_by_side = [inner for inner in step.steps if inner not in of_block]
        pieces = []
        if step.kind == "parallel":
            side_by_side = [*of_block, *side_by_side]
        elif of_block:
            pieces.append(self.frame(of_block, self._blocks.get(step.target, [])))
        rows = [[(inner.path, self.node(inner)) for inner in row] for row in _chunks(self._first(side_by_side), ACROSS)]
        if rows:
            pieces.append(_stacked(rows, {}))
        return _stacked([[(str(number), piece)] for number, piece in enumerate(pieces)], {})

    def _first(self, steps: Sequence[StepView]) -> Sequence[StepView]:
        """The steps that still fit into the graph."""
        shown = steps[: max(self._left, 0)]
        self._left -= len(shown)
        self.hidden += sum(1 for step in steps[len(shown) :] for _ in step.walk())
        return shown


def needs_of(names: Sequence[str], definition: Sequence[Json]) -> dict[str, tuple[str, ...]]:
    """Return the needs of each step of a block.

    Args:
        names: The steps.
        definition: The steps in the definition.

    Returns:
        The needs by name. A step without `needs`, or one that is not in the definition, needs the previous one.
    """
    known = {str(step.get("name")): step for step in definition}
    found: dict[str, tuple[str, ...]] = {}
    before: tuple[str, ...] = ()
    for name in names:
        needs = mapping(known.get(name)).get("needs")
        found[name] = tuple(each for each in needs if each in names) if isinstance(needs, list) else before
        before = (name,)
    return found


def ranks(needs: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Sort steps into rows: each step is below its needs. Steps in a cycle are last."""
    rows: list[list[str]] = []
    left, done = dict(needs), set[str]()
    while left:
        row = [name for name, of in left.items() if done.issuperset(of)] or list(left)
        rows.append(row)
        done.update(row)
        for name in row:
            del left[name]
    return rows


def _stacked(rows: Sequence[Sequence[tuple[str, _Piece]]], needs: Mapping[str, Sequence[str]]) -> _Piece:
    """Stack centered rows, with lines from each piece to the pieces that need it."""
    widths = [sum(piece.width for _, piece in row) + GAP * (len(row) - 1) for row in rows]
    width = max(widths, default=0)
    shapes, heads, y = list[Shape](), dict[str, tuple[Box, float]](), 0.0
    for row, used in zip(rows, widths, strict=True):
        x, height = (width - used) / 2, max(piece.height for _, piece in row)
        for name, piece in row:
            moved = _moved(piece, x, y)
            if moved and isinstance(moved[0], Box):
                heads[name] = moved[0], y + height
            shapes += moved
            x += piece.width + GAP
        y += height + GAP
    known = {name: [each for each in of if each in heads] for name, of in needs.items() if name in heads}
    lines = [_line(*heads[each], heads[name][0]) for name, of in known.items() for each in of]
    return _Piece(width, max(y - GAP, 0), (*lines, *shapes))


def _line(above: Box, bend: float, below: Box) -> Line:
    return Line(
        x1=above.x + above.width / 2, y1=above.y + above.height, bend=bend, x2=below.x + below.width / 2, y2=below.y
    )


def _moved(piece: _Piece, x: float, y: float) -> list[Shape]:
    return [
        replace(shape, x=shape.x + x, y=shape.y + y)
        if isinstance(shape, Box)
        else replace(shape, x1=shape.x1 + x, y1=shape.y1 + y, bend=shape.bend + y, x2=shape.x2 + x, y2=shape.y2 + y)
        for shape in piece.shapes
    ]


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
