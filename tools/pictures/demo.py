"""Records `make demo` as an SVG that plays: `python -m tools.pictures.demo` writes docs/pictures/demo*.svg.

The demo runs on a real terminal, a pty, and each line appears in the picture when it appeared there, faster by `SPEED`.
"""

from __future__ import annotations

import os
import pty
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tools.pictures.__main__ import FOLDER
from tools.pictures.canvas import CODE_FONT, DARK, LIGHT, Colours

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "demo.py"
COLUMNS, ROW, MARGIN = 104, 17, 16
SPEED = 2.0
PAUSE = 6.0  # seconds at the end, before it plays again
QUESTION = "Publish the guide?"
LAST = "Nothing that had finished ran again."  # what `stepwell show` prints after it would make the picture long
ESCAPE = re.compile(r"\x1b\[([\d;]*)m")


@dataclass(frozen=True)
class Line:
    text: str
    style: str  # of its first word: "1" is bold, "2" is faint
    at: float  # seconds since the start


def record() -> list[Line]:
    """Run the demo on a terminal, answer its question with yes, and return what it printed, and when."""
    with tempfile.TemporaryDirectory() as folder:
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(folder)
            os.environ.update(TERM="xterm", COLUMNS=str(COLUMNS))
            os.execv(sys.executable, [sys.executable, str(PROGRAM)])
        try:
            return _read_lines(terminal)
        finally:
            os.close(terminal)
            os.waitpid(child, 0)


def _read_lines(terminal: int) -> list[Line]:
    start, pending, answered = time.monotonic(), "", False
    lines: list[Line] = []
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # how Linux says that the other end is closed
            piece = b""
        if not piece:
            return lines
        pending += piece.decode()
        if QUESTION in pending and not answered:
            os.write(terminal, b"y\n")
            answered = True
        *complete, pending = pending.split("\n")
        lines += [read_line(text, time.monotonic() - start) for text in complete]


def read_line(text: str, at: float) -> Line:
    styles = [style for found in ESCAPE.findall(text) for style in found.split(";")]
    plain = ESCAPE.sub("", text).rstrip("\r")
    style = next((style for style in styles if style in ("1", "2")), "")
    return Line(plain[:COLUMNS], style, at)


def draw(lines: list[Line], colours: Colours) -> str:
    """Return a picture in which each line appears at its time."""
    width, height = 2 * MARGIN + int(COLUMNS * 7.9), 2 * MARGIN + len(lines) * ROW
    length = lines[-1].at / SPEED + PAUSE
    kinds = {"1": colours.good, "2": colours.faint, "": colours.ink}
    rows = []
    for number, line in enumerate(lines):
        begin = line.at / SPEED / length
        rows.append(
            f'<text x="{MARGIN}" y="{MARGIN + 12 + number * ROW}" fill="{kinds[line.style]}" xml:space="preserve">'
            f'<animate attributeName="opacity" dur="{length:.1f}s" repeatCount="indefinite" calcMode="discrete"'
            f' keyTimes="0;{begin:.4f}" values="0;1"/>{escape(line.text)}</text>'
        )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            f' font-family="{CODE_FONT}" font-size="13" role="img">',
            "<title>The demo in a terminal: two kills, and nothing that had finished runs again</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{colours.paper}" stroke="{colours.faint}"/>',
            *rows,
            "</svg>",
            "",
        ]
    )


def main() -> None:
    lines = record()
    lines = lines[: 1 + next(number for number, line in enumerate(lines) if LAST in line.text)]
    (FOLDER / "demo.svg").write_text(draw(lines, LIGHT))
    (FOLDER / "demo-dark.svg").write_text(draw(lines, DARK))


if __name__ == "__main__":
    main()
