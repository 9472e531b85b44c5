"""Turns stored text and values into HTML that shows them and never interprets them.

Text is escaped. A JSON value is a tree: large values are folded, and very large ones cut with a note.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stepwell.admin.transfer.redaction import REMOVED
from stepwell.viz.markup import escape, shorten

_BRIEF = 100  # characters that are shown without folding


def plural(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


class Tree:
    """Renders values.

    All long strings together get `characters` characters, after that only their beginnings.
    """

    def __init__(self, characters: int) -> None:
        # Both limits bound the size of the page: one for characters of all values, one for nodes of
        # each.
        self._room, self._left = characters, 0

    def html(self, value: Any, most: int) -> str:
        """Return a value as HTML; at most so many nodes of it, then a note that there are more."""
        self._left = most
        return "".join(self._draw(value))

    def _draw(self, value: Any) -> Iterator[str]:
        if self._left <= 0:
            yield '<i class="soft">… left out: too much to show</i>'
            return
        self._left -= 1
        # One character more than fits distinguishes a value that was cut from one that just fits.
        text = format_brief(value, _BRIEF + 1)
        if value == REMOVED:
            yield '<i class="soft">removed when it was exported</i>'
        elif isinstance(value, str) and len(text) > _BRIEF:
            yield from self._draw_text(value)
        elif len(text) <= _BRIEF or not isinstance(value, (dict, list)):
            yield f"<code>{escape(text)}</code>"
        else:
            yield from self._draw_items(value)

    def _draw_text(self, text: str) -> Iterator[str]:
        shown = text[: max(self._room, 0)]
        self._room -= len(shown)
        yield (
            f"<details><summary>string of {len(text):,} characters: <code>{escape(text[:60])}…</code></summary>"
            f"<pre>{escape(shown)}</pre>{_note_rest(len(text) - len(shown), 'characters')}</details>"
        )

    def _draw_items(self, value: dict[str, Any] | list[Any]) -> Iterator[str]:
        kind, inner = "", value
        # A tagged value shows the name of its class, without its module, instead of `$` and `v`.
        if isinstance(value, dict) and isinstance(value.get("$"), str) and isinstance(value.get("v"), (dict, list)):
            kind, inner = value["$"].rpartition(":")[2] + ", ", value["v"]
        pairs = list(inner.items()) if isinstance(inner, dict) else list(enumerate(inner))
        title = shorten(kind, _BRIEF) + plural(len(inner), "key" if isinstance(inner, dict) else "item")
        yield f'<details><summary><span class="soft">{escape(title)}</span></summary><ul>'
        for n, (key, item) in enumerate(pairs):
            if self._left <= 0:
                yield f"<li>{_note_rest(len(pairs) - n, 'items')}</li>"
                break
            yield f"<li><b>{escape(shorten(str(key), _BRIEF))}</b>: "
            yield from self._draw(item)
            yield "</li>"
        yield "</ul></details>"


def format_brief(value: Any, longest: int) -> str:
    """Return a value as JSON on one line, shortened if it is long."""
    text = ""
    # Piece by piece: of a large value only the beginning is encoded.
    for piece in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        text += piece
        if len(text) > longest:
            break
    return shorten(text, longest)


def _note_rest(count: int, what: str) -> str:
    return f'<i class="soft">… {count:,} more {what} left out</i>' if count > 0 else ""
