"""Safe display of text from outside: characters that a terminal, browser or editor would obey or hide
are written as escapes.

These are control characters, those that change the direction of the text around them, line and
paragraph separators, and everything else without a visible shape.
"""

from __future__ import annotations

JOINERS = "\u200c\u200d"
"""Zero-width characters that shape letters in some scripts, and emoji; they move and hide nothing."""


def visible(text: str, *, keep: str = "") -> str:
    """Return the text with each unprintable character escaped, as in `\\u202e`, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def visible_json(text: str) -> str:
    """Return JSON text with unprintable characters escaped; a parser reads the same data from it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t\r" else _escape(c) for c in text)


def _escape(c: str) -> str:
    # JSON escapes a character beyond U+FFFF as two units
    units = c.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))
