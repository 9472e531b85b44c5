"""Draws a workflow as a self-contained SVG, with the progress of each executor of a run."""

from __future__ import annotations

from collections.abc import Iterator

from stepwell.viz.diagram import Diagram
from stepwell.viz.layout import Rectangle
from stepwell.viz.markup import escape, shorten
from stepwell.viz.palette import PALETTE
from stepwell.viz.placed_diagram import ICON, LINE, SMALL_LINE, PlacedArrow, PlacedDiagram, PlacedNode, curve, place
from stepwell.viz.progress import Progress
from stepwell.viz.workflow_diagram import Graph, diagram_of

_SYMBOLS = {"failed": "✕", "waiting": "?", "working": "…", "next": "▸", "ran": "✓", "skipped": "-", "idle": "·"}

# The class names are prefixed: the style of one SVG applies to the whole page that contains it.
_STYLE = (
    PALETTE.replace(":root", ".sw")
    + """
.sw{font:500 12.5px/1.3 ui-sans-serif,system-ui,sans-serif;background:var(--paper)}
.sw text{fill:var(--ink);text-anchor:middle}.sw .left text:not(.sign){text-anchor:start}
.sw .small{font-size:11px;font-weight:400;fill:var(--soft)}.sw .name{font-weight:600}
.sw .box{fill:var(--panel);stroke:var(--edge)}.sw .icon{fill:var(--back)}.sw .sign{fill:var(--soft)}
.sw .ran>.box{stroke:var(--ok)}.sw .ran>.icon{fill:var(--ok-back)}.sw .ran>.sign{fill:var(--ok)}
.sw .next>.box{stroke:var(--run);fill:var(--run-back)}.sw .next>.icon{fill:var(--panel)}.sw .next>.sign{fill:var(--run)}
.sw .working>.box{stroke:var(--run);fill:var(--run-back);stroke-width:2}.sw .working>.icon{fill:var(--panel)}
.sw .working>.sign{fill:var(--run)}
.sw .failed>.box{stroke:var(--bad);fill:var(--bad-back);stroke-width:2}.sw .failed>.icon{fill:var(--panel)}
.sw .failed>.sign{fill:var(--bad)}.sw .waiting>.box{stroke:var(--wait);fill:var(--wait-back);stroke-width:2}
.sw .waiting>.icon{fill:var(--panel)}.sw .waiting>.sign{fill:var(--wait)}
.sw .idle>.box,.sw .skipped>.box{stroke-dasharray:3 3}.sw .idle>text.name,.sw .skipped>text.name{fill:var(--soft)}
.sw .asks>.box{stroke-dasharray:7 4}.sw .inside{fill:none;stroke:var(--edge);stroke-dasharray:5 4}
.sw .way{fill:none;stroke:var(--arrow);stroke-width:1.5}.sw .way.dotted{stroke-dasharray:5 4}.sw .tip{fill:var(--arrow)}
.sw .label{fill:var(--paper)}.sw .badge{fill:var(--panel);stroke:var(--edge)}
""".replace("\n", "")
)


def draw(graph: Graph, *, progress: Progress | None = None, title: str = "Workflow", name: str = "sw") -> str:
    """Return a workflow, or a stored graph signature, as one SVG element.

    It needs no script, no font and no network, follows the reader's choice of light or dark, and
    repeats in text what its colours say. Give each drawing on a page its own `name`.
    """
    diagram = diagram_of(graph)
    placed, marker = place(diagram, progress), escape(name)
    width, height = round(placed.width), round(placed.height)
    # The title and the description are what a screen reader reads.
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sw" role="img" aria-labelledby="{marker}-t {marker}-d" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f'<title id="{marker}-t">{escape(title)}</title>'
        f'<desc id="{marker}-d">{escape(shorten(_describe(diagram, progress), 20_000))}</desc>'
        f"<style>{_STYLE}</style>"
        f'<defs><marker id="{marker}-m" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    return head + "".join(_draw_diagram(placed, marker)) + "</svg>"


def _describe(diagram: Diagram, progress: Progress | None) -> str:
    """Return a diagram as sentences."""
    sentences = [f"It starts at {', '.join(diagram.first_nodes)}."]
    sentences += [f"{line}." for line in diagram.lines or [arrow.describe() for arrow in diagram.arrows]]
    if progress:
        sentences += [f"{node.id}: {progress.describe(node.id)}." for node in diagram.nodes if node.runs]
    return " ".join(sentences)


def _draw_diagram(placed: PlacedDiagram, marker: str) -> Iterator[str]:
    # Arrows first, so that boxes cover their ends.
    for arrow in placed.arrows:
        yield from _draw_arrow(arrow, marker)
    for node in placed.nodes:
        if node.inner is not None:
            yield from _draw_inner(node, node.inner, marker)
        elif node.node.runs:
            yield from _draw_node(node)
        else:
            text = _text(node.box.x, node.box.y + 4, node.lines[0], "small")
            yield f'<g class="join"><rect class="box" rx="13" {_attributes(node.box)}/>{text}</g>'


def _draw_node(placed: PlacedNode) -> Iterator[str]:
    box, looks = placed.box, [placed.state or "plain", *(["asks"] if placed.node.asks else [])]
    radius = 20 if placed.node.kind == "router" else 8
    left = box.x - box.width / 2
    x = box.x
    if placed.state:
        looks.append("left")
        x = left + 10 + ICON + 9
    yield f'<g class="{" ".join(looks)}"><title>{escape(placed.node.label)}</title>'
    yield f'<rect class="box" rx="{radius}" {_attributes(box)}/>'
    if placed.state:
        icon = Rectangle(left + 10 + ICON / 2, box.y, ICON, ICON)
        yield f'<rect class="icon" rx="7" {_attributes(icon)}/>'
        yield _text(icon.x, icon.y + 4.5, _SYMBOLS[placed.state], "sign")
    y = box.y - (len(placed.lines) * LINE + len(placed.captions) * SMALL_LINE) / 2 + 12
    for line in placed.lines:
        yield _text(x, y, line, "name")
        y += LINE
    for caption in placed.captions:
        yield _text(x, y - 1, caption, "small")
        y += SMALL_LINE
    if placed.count > 1:
        text = f"\u00d7{placed.count}"
        badge = Rectangle(box.x + box.width / 2 - 8, box.y - box.height / 2, 14.0 + 6.2 * len(text), 17.0)
        yield f'<rect class="badge" rx="8.5" {_attributes(badge)}/>' + _text(badge.x, badge.y + 4, text, "small sign")
    yield "</g>"


def _draw_inner(placed: PlacedNode, inner: PlacedDiagram, marker: str) -> Iterator[str]:
    """Draw a sub-workflow: a frame with its name, and the diagram of it inside."""
    box = placed.box
    top = box.y - box.height / 2
    yield f'<g class="{placed.state or "plain"}"><title>{escape(placed.node.label)}</title>'
    yield f'<rect class="box inside" rx="10" {_attributes(box)}/>'
    for number, line in enumerate((*placed.lines, *placed.captions)):
        yield _text(box.x, top + 19 + number * LINE, line, "name" if number < len(placed.lines) else "small")
    x, y = box.x - inner.width / 2, box.y + box.height / 2 - inner.height
    yield f'<g transform="translate({x:.1f} {y:.1f})">{"".join(_draw_diagram(inner, marker))}</g></g>'


def _draw_arrow(placed: PlacedArrow, marker: str) -> Iterator[str]:
    dotted = " dotted" if placed.arrow.dotted else ""
    yield (
        f"<g><title>{escape(placed.arrow.describe())}</title>"
        f'<path class="way{dotted}" marker-end="url(#{marker}-m)" d="{curve(placed.route)}"/>'
    )
    if placed.label is not None:
        yield f'<rect class="label" {_attributes(placed.label)}/>'
        top = placed.label.y - placed.label.height / 2 + 12
        lines = enumerate(placed.lines)
        yield from (_text(placed.label.x, top + n * SMALL_LINE, line, "small") for n, line in lines)
    yield "</g>"


def _attributes(box: Rectangle) -> str:
    left, top = box.x - box.width / 2, box.y - box.height / 2
    return f'x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'


def _text(x: float, y: float, text: str, look: str) -> str:
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
