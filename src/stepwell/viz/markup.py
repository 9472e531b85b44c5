"""Text for XML and HTML: shown as it is, and never interpreted."""

from __future__ import annotations

import html

from stepwell.model.visible_text import JOINERS, visible


def escape(text: object) -> str:
    """Return text escaped for HTML and XML, including quoted attributes."""
    # Control and direction characters are written out: some are invalid in XML, others would
    # reorder the page.
    return html.escape(visible(str(text), keep=f"\t\n\r\xa0{JOINERS}"), quote=True)


def shorten(text: str, longest: int) -> str:
    """Return the text, cut to `longest` characters if it has more."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
