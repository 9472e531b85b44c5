"""Text from outside made visible: what a terminal, a browser or an editor would obey, or not show, is written out.

That is control characters, those that turn the direction of the text around them, line and paragraph separators, and
whatever else has no shape of its own.
"""

from __future__ import annotations

JOINERS = "\u200c\u200d"  # give letters their shape in some scripts and emoji; they move and hide nothing


def visible(text: str, *, keep: str = "") -> str:
    """The text with every character written out, as in `\\u202e`, that cannot be printed. Those in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def visible_json(text: str) -> str:
    """JSON text with such characters escaped. A program that parses it reads the same data."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t\r" else _escape(c) for c in text)


def _escape(c: str) -> str:
    units = c.encode("utf-16-be", "surrogatepass")  # JSON writes a character beyond U+FFFF as two
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))
