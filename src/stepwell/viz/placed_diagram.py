"""A diagram with a place for everything: `place` measures the texts and lays the boxes out.

Everything that draws takes it from here: the SVG, and `to_data` for a page that draws by itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepwell.model.visible_text import JOINERS, visible
from stepwell.viz.diagram import Arrow, Diagram, DiagramNode
from stepwell.viz.layout import Box, Connector, Point, Rectangle, lay_out
from stepwell.viz.markup import shorten
from stepwell.viz.progress import Progress, State
from stepwell.viz.traffic import ArrowState, Traffic

LINE, SMALL_LINE = 16.0, 14.0  # height of a line of text, normal and small
ICON = 26.0
# Approximate widths of a character: the fonts of the reader are unknown, so boxes have some room to
# spare.
_LETTER, _SMALL_LETTER = 7.9, 6.3
_LONGEST, _MOST_LINES = 24, 3  # characters per line, and lines, of a name or a label

_SPACES = str.maketrans("\n\r\t", "   ")
_WORD = re.compile(rf"[^ _./:-]{{0,{_LONGEST - 1}}}[ _./:-]|[^ _./:-]{{1,{_LONGEST}}}")


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node, where it is, and the lines in it."""

    node: DiagramNode
    box: Rectangle
    lines: tuple[str, ...]
    captions: tuple[str, ...] = ()  # small lines below
    state: State | None = None  # None: no run is shown
    count: int = 0  # how often it has run
    inner: PlacedDiagram | None = None
    run: str | None = None  # the id of the run that it called as a sub-workflow
    ran_in: str | None = None  # the id of the run in which it ran, before the one that is shown was forked


@dataclass(frozen=True, slots=True)
class CalledRun:
    """A run that a node called as a sub-workflow, and its graph if that is drawn as well."""

    run_id: str
    graph: PlacedDiagram | None = None


@dataclass(frozen=True, slots=True)
class PlacedArrow:
    """An arrow, the points it goes through, and its label."""

    arrow: Arrow
    route: tuple[Point, ...]
    label: Rectangle | None
    lines: tuple[str, ...]
    state: ArrowState | None = None  # None: not taken, as far as is known


@dataclass(frozen=True, slots=True)
class PlacedDiagram:
    """A diagram with positions."""

    width: float
    height: float
    nodes: tuple[PlacedNode, ...]
    arrows: tuple[PlacedArrow, ...]

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON data; `x` and `y` of a box are its centre."""
        return {
            "width": _round(self.width),
            "height": _round(self.height),
            "nodes": [_node_data(placed) for placed in self.nodes],
            "edges": [_edge_data(placed) for placed in self.arrows],
        }


def place(
    diagram: Diagram,
    progress: Progress | None = None,
    called: Mapping[str, CalledRun] | None = None,
    traffic: Traffic | None = None,
) -> PlacedDiagram:
    """Lay a diagram out, with the progress and traffic of a run if there is one, and the runs that its nodes called."""
    runs = called or {}
    shown = {node.id: _compose(node, diagram, progress, runs.get(node.id)) for node in diagram.nodes}
    arrows = _merge_loops(diagram.arrows)
    states = {} if traffic is None else traffic.states(replace(diagram, arrows=tuple(arrows)), progress)
    labels = [wrap(arrow.label) if arrow.label else () for arrow in arrows]
    layout = lay_out(
        [Box(id, node.box.width, node.box.height) for id, node in shown.items()],
        [Connector(a.source, a.target, *_label_size(lines)) for a, lines in zip(arrows, labels, strict=True)],
    )
    return PlacedDiagram(
        layout.width,
        layout.height,
        tuple(replace(node, box=layout.boxes[id]) for id, node in shown.items()),
        tuple(
            PlacedArrow(arrow, route, label, lines, states.get(arrow))
            for arrow, route, label, lines in zip(arrows, layout.routes, layout.labels, labels, strict=True)
        ),
    )


def _compose(node: DiagramNode, diagram: Diagram, progress: Progress | None, called: CalledRun | None) -> PlacedNode:
    """Return what a node shows, with the size that it needs, and not placed yet."""
    if not node.runs:
        return PlacedNode(node, Rectangle(0, 0, 58.0, 26.0), (node.label,))
    state = progress.state(node.id) if progress else None
    lines = wrap(node.label)
    facts = [*(["start"] if node.id == diagram.start else []), *([progress.caption(node.id)] if progress else [])]
    captions = (*(wrap(node.note) if node.note else ()), *((" · ".join(facts),) if facts else ()))
    inner = place(node.inner) if node.inner is not None else None if called is None else called.graph
    icon = ICON + 9 if state else 0.0
    width = max(
        [_text_width(line, _LETTER) for line in lines] + [_text_width(caption, _SMALL_LETTER) for caption in captions]
    )
    width, height = width + icon + 26, max(len(lines) * LINE + len(captions) * SMALL_LINE + 16, 42.0 if icon else 34.0)
    if inner is not None:
        width, height = max(width, inner.width), height + inner.height
    count = progress.ran.get(node.id, 0) if progress else 0
    box = Rectangle(0, 0, width, height)
    run = None if called is None else called.run_id
    ran_in = progress.inherited.get(node.id) if progress and state == "ran" else None
    return PlacedNode(
        node, box, lines, captions=captions, state=state, count=count, inner=inner, run=run, ran_in=ran_in
    )


def _merge_loops(arrows: Iterable[Arrow]) -> list[Arrow]:
    """Return the arrows, with all loops of a node merged: a box has room for one."""
    merged: dict[object, Arrow] = {}
    for number, arrow in enumerate(arrows):
        key = arrow.source if arrow.source == arrow.target else number
        before = merged.get(key)
        labels = [loop.label for loop in (before, arrow) if loop is not None and loop.label]
        merged[key] = Arrow(arrow.source, arrow.target, ", or ".join(labels), arrow.dotted)
    return list(merged.values())


def _label_size(lines: Sequence[str]) -> tuple[float, float]:
    if not lines:
        return 0.0, 0.0
    return max(_text_width(line, _SMALL_LETTER) for line in lines) + 8, len(lines) * SMALL_LINE + 4


def _text_width(text: str, letter: float) -> float:
    """Return the approximate width of a string; wide East Asian characters count about double."""
    return sum(letter * (1.9 if unicodedata.east_asian_width(c) in "WF" else 1.0) for c in text)


def wrap(text: str) -> tuple[str, ...]:
    """Return a string as a few lines, broken after the separators that names use; the rest is cut off."""
    lines, line = [], ""
    # Invisible characters are written out before the boxes are measured, since that makes the text
    # longer.
    for word in _WORD.findall(visible(text, keep=f"\n\r\t\xa0{JOINERS}").translate(_SPACES)):
        if line and len(line) + len(word) > _LONGEST:
            lines.append(line)
            line = ""
        line += word
    lines.append(line)
    shown = [line.strip() or "·" for line in lines[:_MOST_LINES]]
    return tuple(shown if len(lines) <= _MOST_LINES else [*shown[:-1], shorten(shown[-1] + "…", _LONGEST)])


def _node_data(placed: PlacedNode) -> dict[str, Any]:
    return {
        "id": placed.node.id,
        "kind": placed.node.kind,
        "label": placed.node.label,
        "note": placed.node.note,
        "lines": list(placed.lines),
        "captions": list(placed.captions),
        **_box_data(placed.box),
        **({} if placed.state is None else {"state": placed.state, "count": placed.count}),
        **({} if placed.inner is None else {"inner": placed.inner.to_data()}),
        **({} if placed.run is None else {"run": placed.run}),
        **({} if placed.ran_in is None else {"ran_in": placed.ran_in}),
    }


def _edge_data(placed: PlacedArrow) -> dict[str, Any]:
    return {
        "source": placed.arrow.source,
        "target": placed.arrow.target,
        "label": placed.arrow.label,
        "dotted": placed.arrow.dotted,
        "points": [[_round(x), _round(y)] for x, y in placed.route],
        "path": curve(placed.route),  # as SVG writes it
        **({} if placed.state is None else {"state": placed.state}),
        **({} if placed.label is None else {"label_box": _box_data(placed.label)}),
    }


def curve(route: Sequence[Point]) -> str:
    """Return an SVG path through points that leaves and reaches each of them vertically."""
    (x, y), *more = route
    parts = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in more:
        # 0.05: coordinates are printed with one decimal, so nearer points are the same.
        if abs(to_x - x) < 0.05 and abs(to_y - y) < 0.05:
            continue
        if abs(to_x - x) < 0.05 or abs(to_y - y) < 0.05:
            parts.append(f"L{to_x:.1f} {to_y:.1f}")
        else:
            middle = (y + to_y) / 2
            parts.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return "".join(parts)


def _box_data(box: Rectangle) -> dict[str, float]:
    return {"x": _round(box.x), "y": _round(box.y), "width": _round(box.width), "height": _round(box.height)}


def _round(number: float) -> float:
    return round(number, 1)
