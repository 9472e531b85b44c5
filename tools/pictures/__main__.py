"""Writes the pictures that code draws; `python -m tools.pictures.studio`, `.demo` and `.report` make the others."""

from pathlib import Path

from tools.pictures.canvas import DARK, LIGHT
from tools.pictures.drawings import DRAWINGS

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"


def draw_all() -> dict[str, str]:
    """Return the text of each picture by its file name."""
    sheets = {
        f"{name}{suffix}.svg": draw(colours)
        for name, draw in DRAWINGS.items()
        for suffix, colours in (("", LIGHT), ("-dark", DARK))
    }
    return {name: sheet.svg() for name, sheet in sheets.items()}


if __name__ == "__main__":
    for name, text in draw_all().items():
        (FOLDER / name).write_text(text)
