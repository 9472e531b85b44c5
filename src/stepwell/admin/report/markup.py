"""Escapes stored text for pages and drawings, so that it is shown and never interpreted."""

from __future__ import annotations

import html

from stepwell.model.visible_text import JOINERS, visible


def escape(text: object) -> str:
    """Return text escaped for HTML and XML, including quoted attributes."""
    # Control and direction characters are written out: some are invalid in XML, others would
    # reorder the page.
    return html.escape(visible(str(text), keep=f"\t\n\r\xa0{JOINERS}"), quote=True)


def shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def plural(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
