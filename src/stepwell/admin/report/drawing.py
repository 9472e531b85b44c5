"""Draws a workflow as a self-contained SVG, with the progress of each executor of a run."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from stepwell.admin.report.layout import Box, Connector, Layout, Rectangle, lay_out
from stepwell.admin.report.markup import escape, shorten
from stepwell.admin.report.stored_graph import Arrow, Shape, shape_of
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit
from stepwell.model.event import WorkflowRunState
from stepwell.model.visible_text import JOINERS, visible

_LINE, _SMALL = 17.0, 14.0  # height of a line of text, normal and small
# Approximate widths of a character: the fonts of the reader are unknown, so boxes have some room to
# spare.
_LETTER, _SMALL_LETTER = 7.6, 6.4
_LONGEST, _MOST_LINES = 24, 3  # characters per line, and lines, of a name or a label

_SPACES = str.maketrans("\n\r\t", "   ")
_WORD = re.compile(rf"[^ _./:-]{{0,{_LONGEST - 1}}}[ _./:-]|[^ _./:-]{{1,{_LONGEST}}}")

# The class names are prefixed: the style of one SVG applies to the whole page that contains it.
_STYLE = """
.hf{--ink:#1b1f24;--soft:#57606a;--paper:#fff;--idle:#f6f8fa;--ran:#dafbe1;--bad:#ffebe9;--wait:#fff8c5;--next:#ddf4ff;
font-family:system-ui,sans-serif;font-size:13px;background:var(--paper)}
@media (prefers-color-scheme:dark){.hf{--ink:#e6edf3;--soft:#9aa4ae;--paper:#0d1117;--idle:#21262d;--ran:#12361f;
--bad:#4c1a1a;--wait:#3d3200;--next:#0c2d4d}}
.hf text{fill:var(--ink);text-anchor:middle}.hf .small{font-size:11px;fill:var(--soft)}
.hf .box{fill:var(--idle);stroke:var(--soft)}.hf .idle .box{stroke-dasharray:2 3}
.hf .ran .box{fill:var(--ran);stroke:var(--ink)}.hf .next .box{fill:var(--next);stroke:var(--ink)}
.hf .failed .box{fill:var(--bad);stroke:var(--ink);stroke-width:3}
.hf .waiting .box{fill:var(--wait);stroke:var(--ink);stroke-width:2;stroke-dasharray:7 4}
.hf .way{fill:none;stroke:var(--soft);stroke-width:1.3}.hf .way.when{stroke-dasharray:5 3}.hf .tip{fill:var(--soft)}
.hf .label{fill:var(--paper)}
""".replace("\n", "")


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the executors of a run."""

    ran: Mapping[str, int] = field(default_factory=dict)  # how often each has completed
    failed: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()  # for an answer
    following: frozenset[str] = frozenset()  # messages are on their way to them

    def state(self, executor: str) -> str:
        """Return the first that applies of failed, waiting, next, ran, idle."""
        for name, members in (("failed", self.failed), ("waiting", self.waiting), ("next", self.following)):
            if executor in members:
                return name
        return "ran" if self.ran.get(executor) else "idle"

    def describe(self, executor: str) -> str:
        """Return the progress of an executor as a caption. Symbols repeat what the colours say."""
        times = self.ran.get(executor, 0)
        ran = "" if not times else "✓ ran once" if times == 1 else f"✓ ran {times} times"
        captions = {"failed": "✕ failed", "waiting": "? waiting for an answer", "next": "▸ next"}
        return ", ".join(part for part in (captions.get(self.state(executor)), ran) if part) or "not run"


def progress_of(checkpoint: Checkpoint, commits: Iterable[Commit]) -> Progress:
    """Return the progress of a run at a checkpoint, given the commits that led there."""
    ran: dict[str, int] = {}
    failed: frozenset[str] = frozenset()
    for commit in commits:
        for done in commit.done:
            ran[done.executor] = ran.get(done.executor, 0) + 1
        # Overwritten by each commit: a failure counts only while the run has not moved on.
        failed = frozenset(failure.executor_id for failure in commit.failures if failure.executor_id)
    following = frozenset(taker for message in checkpoint.messages for taker in message.takers)
    waiting = frozenset(request.executor for request in checkpoint.requests.values())
    return Progress(ran, failed if checkpoint.status is WorkflowRunState.FAILED else frozenset(), waiting, following)


class HasGraph(Protocol):
    """Anything that can be drawn: a workflow."""

    @property
    def graph_signature(self) -> Mapping[str, Any]: ...


def draw(
    graph: Mapping[str, Any] | HasGraph, *, progress: Progress | None = None, title: str = "Workflow", name: str = "hf"
) -> str:
    """Return a workflow as one SVG element, from a Workflow or from a stored graph signature.

    It needs no script, no font and no network, follows the reader's choice of light or dark, and
    repeats in text what its colours say. Give each drawing on a page its own `name`.
    """
    signature = graph if isinstance(graph, Mapping) else graph.graph_signature
    return "".join(_Picture(shape_of(signature), progress, title, escape(name)).draw())


class _Picture:
    def __init__(self, shape: Shape, progress: Progress | None, title: str, name: str) -> None:
        self._shape, self._progress, self._title, self._name = shape, progress, title, name
        self._lines = {id: _wrap(id) for id in shape.executors}
        self._small = {id: self._caption(id) for id in shape.executors}
        self._arrows = _merge_loops(shape.arrows)
        self._labels = [_wrap(arrow.label) if arrow.label else [] for arrow in self._arrows]
        boxes = [Box(id, *self._measure(id)) for id in shape.executors] + [Box(id, 58.0, 26.0) for id in shape.joins]
        links = [
            Connector(a.source, a.target, *_label_size(lines))
            for a, lines in zip(self._arrows, self._labels, strict=True)
        ]
        self._layout: Layout = lay_out(boxes, links)

    def draw(self) -> Iterator[str]:
        layout, name = self._layout, self._name
        width, height = round(layout.width), round(layout.height)
        # The title and the description are what a screen reader reads.
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="hf" role="img" aria-labelledby="{name}-t {name}-d" '
            f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
            f'<title id="{name}-t">{escape(self._title)}</title><desc id="{name}-d">{escape(self._describe())}</desc>'
            f"<style>{_STYLE}</style>"
            f'<defs><marker id="{name}-m" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
        )
        # Arrows first, so that boxes cover their ends.
        for number, arrow in enumerate(self._arrows):
            yield from self._draw_arrow(number, arrow)
        for id in self._shape.executors:
            yield from self._draw_executor(id, layout.boxes[id])
        for id in self._shape.joins:
            box = layout.boxes[id]
            text = _text(box.x, box.y + 4, "fan-in", small=True)
            yield f'<g class="join"><rect class="box" rx="13" {_attributes(box)}/>{text}</g>'
        yield "</svg>"

    def _measure(self, id: str) -> tuple[float, float]:
        widest = max(
            [_text_width(line, _LETTER) for line in self._lines[id]] + [_text_width(self._small[id], _SMALL_LETTER)]
        )
        return widest + 28, len(self._lines[id]) * _LINE + (_SMALL if self._small[id] else 0) + 18

    def _caption(self, id: str) -> str:
        parts = ["start"] if id == self._shape.start else []
        return " · ".join([*parts, *([self._progress.describe(id)] if self._progress else [])])

    def _draw_executor(self, id: str, box: Rectangle) -> Iterator[str]:
        state = self._progress.state(id) if self._progress else "plain"
        yield f'<g class="{state}"><title>{escape(id)}</title><rect class="box" rx="6" {_attributes(box)}/>'
        top = box.y - box.height / 2 + 9 + 13
        yield from (_text(box.x, top + n * _LINE, line) for n, line in enumerate(self._lines[id]))
        if self._small[id]:
            yield _text(box.x, top + len(self._lines[id]) * _LINE - 2, self._small[id], small=True)
        yield "</g>"

    def _draw_arrow(self, number: int, arrow: Arrow) -> Iterator[str]:
        when = " when" if arrow.label else ""
        yield (
            f"<g><title>{escape(_describe_arrow(arrow))}</title>"
            f'<path class="way{when}" marker-end="url(#{self._name}-m)" d="{_curve(self._layout.routes[number])}"/>'
        )
        box = self._layout.labels[number]
        if box is not None:
            yield f'<rect class="label" {_attributes(box)}/>'
            top = box.y - box.height / 2 + 11
            lines = enumerate(self._labels[number])
            yield from (_text(box.x, top + n * _SMALL, line, small=True) for n, line in lines)
        yield "</g>"

    def _describe(self) -> str:
        """Return the drawing as sentences."""
        sentences = [f"It starts at {self._shape.start}."]
        sentences += [f"{_describe_arrow(arrow)}." for arrow in self._shape.arrows]
        sentences += [f"{text}." for text in self._shape.unread]
        if self._progress:
            sentences += [f"{id}: {self._progress.describe(id)}." for id in self._shape.executors]
        return shorten(" ".join(sentences), 20_000)


def _merge_loops(arrows: Iterable[Arrow]) -> list[Arrow]:
    """Return the arrows, with all loops of an executor merged: a box has room for one."""
    merged: dict[object, Arrow] = {}
    for arrow in arrows:
        key = arrow.source if arrow.source == arrow.target else arrow
        before = merged.get(key)
        labels = [candidate.label for candidate in (before, arrow) if candidate is not None and candidate.label]
        merged[key] = Arrow(arrow.source, arrow.target, ", or ".join(labels))
    return list(merged.values())


def _describe_arrow(arrow: Arrow) -> str:
    # Names of fan-ins start with a NUL, so that no executor can have the same.
    ends = [end.strip("\0") for end in (arrow.source, arrow.target)]
    return f"{ends[0]} leads to {ends[1]}" + (f" {arrow.label}" if arrow.label else "")


def _attributes(box: Rectangle) -> str:
    left, top = box.x - box.width / 2, box.y - box.height / 2
    return f'x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'


def _text(x: float, y: float, text: str, *, small: bool = False) -> str:
    look = ' class="small"' if small else ""
    return f'<text{look} x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _curve(route: tuple[tuple[float, float], ...]) -> str:
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


def _label_size(lines: list[str]) -> tuple[float, float]:
    if not lines:
        return 0.0, 0.0
    return max(_text_width(line, _SMALL_LETTER) for line in lines) + 8, len(lines) * _SMALL + 4


def _text_width(text: str, letter: float) -> float:
    """Return the approximate width of a string; wide East Asian characters count about double."""
    return sum(letter * (1.9 if unicodedata.east_asian_width(c) in "WF" else 1.0) for c in text)


def _wrap(text: str) -> list[str]:
    """Return a string as a few lines, broken after the separators that names use.

    The rest is cut off.
    """
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
    return shown if len(lines) <= _MOST_LINES else [*shown[:-1], shorten(shown[-1] + "…", _LONGEST)]
