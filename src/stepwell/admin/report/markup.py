"""Stored text in a page or a picture: whatever it says, it is shown, and never obeyed."""

from __future__ import annotations

from html import escape

from stepwell.model.visible_text import JOINERS, visible


def escaped(text: object) -> str:
    """Text for HTML and XML, also inside the quotes of an attribute."""
    return escape(visible(str(text), keep=f"\t\n\r\xa0{JOINERS}"), quote=True)


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
