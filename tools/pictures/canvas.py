"""A sheet to draw on: boxes, lines and words, in one of two sets of colours, as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', sans-serif"
CODE_FONT = "ui-monospace, 'SF Mono', 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True)
class Colours:
    paper: str
    ink: str
    faint: str
    good: str
    good_fill: str
    bad: str
    bad_fill: str
    store: str
    store_fill: str


LIGHT = Colours("#ffffff", "#1f2933", "#5f6c7b", "#00796b", "#d9f2ee", "#b3261e", "#fbe3e1", "#4b5fa8", "#e4e8f8")
DARK = Colours("#1e2129", "#e4e7ec", "#a3adbb", "#4fd1bd", "#17403c", "#ff8a80", "#4a2223", "#a5b4fc", "#2b3157")


class Canvas:
    """Collects elements. Coordinates are pixels of a sheet of `width` by `height`."""

    def __init__(self, width: int, height: int, title: str, colours: Colours) -> None:
        self.colours, self._size, self._title = colours, (width, height), title
        self._elements: list[str] = []

    def box(
        self, x: int, y: int, width: int, height: int, words: str, *, kind: str = "ink", dashed: bool = False
    ) -> None:
        stroke = getattr(self.colours, kind)
        fill = getattr(self.colours, f"{kind}_fill", self.colours.paper)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._elements.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{stroke}"'
            f' stroke-width="1.5"{dash}/>'
        )
        lines = words.split("\n")
        for number, line in enumerate(lines):
            middle = y + height / 2 + 5 + (number - (len(lines) - 1) / 2) * 17
            self.text(x + width / 2, middle, line, anchor="middle")

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        kind: str = "ink",
        anchor: str = "start",
        size: int = 14,
        code: bool = False,
    ) -> None:
        font = f' font-family="{CODE_FONT}"' if code else ""
        self._elements.append(
            f'<text x="{x:g}" y="{y:g}" fill="{getattr(self.colours, kind)}" text-anchor="{anchor}"'
            f' font-size="{size}"{font}>{escape(words)}</text>'
        )

    def line(self, *points: tuple[int, int], kind: str = "ink", arrow: bool = True, dashed: bool = False) -> None:
        places = " ".join(f"{x},{y}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        head = f' marker-end="url(#{kind})"' if arrow else ""
        self._elements.append(
            f'<polyline points="{places}" fill="none" stroke="{getattr(self.colours, kind)}" stroke-width="1.5"'
            f"{dash}{head}/>"
        )

    def cross(self, x: int, y: int) -> None:
        for points in (((x - 8, y - 8), (x + 8, y + 8)), ((x - 8, y + 8), (x + 8, y - 8))):
            self.line(*points, kind="bad", arrow=False)

    def svg(self) -> str:
        width, height = self._size
        heads = "".join(
            f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path d="M0 0 8 4 0 8z" fill="{getattr(self.colours, kind)}"/></marker>'
            for kind in ("ink", "faint", "good", "bad", "store")
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
                f' height="{height}" font-family="{FONT}" role="img">',
                f"<title>{escape(self._title)}</title>",
                f"<defs>{heads}</defs>",
                f'<rect width="{width}" height="{height}" rx="8" fill="{self.colours.paper}"/>',
                *self._elements,
                "</svg>",
                "",
            ]
        )
