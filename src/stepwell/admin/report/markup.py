"""Stored text in a page or a picture: whatever it says, it is shown, and never obeyed."""

from __future__ import annotations

import html

from stepwell.model.visible_text import JOINERS, visible


def escape(text: object) -> str:
    """Text for HTML and XML, also inside the quotes of an attribute."""
    return html.escape(visible(str(text), keep=f"\t\n\r\xa0{JOINERS}"), quote=True)


def shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
