"""Turns stored values into HTML that shows them and never interprets them.

What a value is, `stepwell.admin.values` decides; here it gets its looks. Large values are folded, and
very large ones cut with a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepwell.admin.phrases import pluralise
from stepwell.admin.transfer.redaction import REMOVED
from stepwell.admin.values import describe_usage, is_message, main_part, open_value, to_line
from stepwell.viz.markup import escape, shorten

_BRIEF = 100  # characters of a value on one line
_SHORT_TEXT, _SHORT_VALUE = 400, 500  # characters that are shown without folding
_ROLES = ("system", "user", "assistant", "tool")


def note_rest(count: int, what: str) -> str:
    """Return a note that so many more are left out; empty if none are."""
    return f'<p class="soft">… {count:,} more {what} left out</p>' if count > 0 else ""


class Tree:
    """Renders values.

    All long strings together get `characters` characters, after that only their beginnings.
    """

    def __init__(self, characters: int) -> None:
        # Both limits bound the size of the page: one for characters of all values, one for nodes of
        # each.
        self._room, self._left = characters, 0

    def html(self, value: Any, most: int, *, is_open: bool = False) -> str:
        """Return a stored value as HTML; at most so many parts of it, then a note that there are more.

        With `is_open`, or if it is short, its first level is not folded.
        """
        self._left = most
        part = main_part(value)
        # One character more than fits distinguishes a value that was cut from one that just fits.
        is_short = len(to_line(part, longest=_SHORT_VALUE + 1)) <= _SHORT_VALUE
        return "".join(self._draw(part, is_open or is_short))

    def _draw(self, value: Any, is_open: bool = False) -> Iterator[str]:
        if self._left <= 0:
            yield '<i class="soft">… left out: too much to show</i>'
            return
        self._left -= 1
        if (usage := describe_usage(value)) is not None:
            yield escape(usage)
            return
        if value == REMOVED:
            yield '<i class="soft">removed when it was exported</i>'
            return
        opened = open_value(value)
        if isinstance(opened.content, str):
            yield from self._draw_text(opened.content, is_open)
        elif isinstance(opened.content, (dict, list)) and opened.content:
            yield from self._draw_parts(value, opened.content, opened.class_name, is_open)
        else:
            yield f"<code>{escape(to_line(value, longest=_BRIEF))}</code>"

    def _draw_text(self, text: str, is_open: bool) -> Iterator[str]:
        if len(text) <= _SHORT_TEXT:
            yield f'<span class="text">{escape(text)}</span>' if text else '<i class="soft">empty text</i>'
            return
        shown = text[: max(self._room, 0)]
        self._room -= len(shown)
        rest = note_rest(len(text) - len(shown), "characters")
        if is_open:
            yield f'<div class="text">{escape(shown)}</div>{rest}'
            return
        title = f'{escape(text[:60])}… <span class="soft">{len(text):,} characters</span>'
        yield f'<details><summary>{title}</summary><div class="text">{escape(shown)}</div>{rest}</details>'

    def _draw_parts(self, value: Any, content: Any, class_name: str, is_open: bool) -> Iterator[str]:
        kind = f'<span class="kind">{escape(shorten(class_name, _BRIEF))}</span> ' if class_name else ""
        if is_conversation(content):
            yield from self._draw_conversation(content)
            return
        brief = to_line(value, longest=_BRIEF + 1)
        if len(brief) <= _BRIEF:
            yield f"{kind}<code>{escape(brief)}</code>"
            return
        pairs = list(content.items()) if isinstance(content, dict) else list(enumerate(content))
        count = pluralise(len(pairs), "field" if isinstance(content, dict) else "item")
        parts = "".join(self._draw_items(pairs))
        if is_open:
            yield f"{kind}{parts}"
        else:
            yield f'<details><summary>{kind}<span class="soft">{count}</span></summary>{parts}</details>'

    def _draw_items(self, pairs: list[tuple[Any, Any]]) -> Iterator[str]:
        yield '<dl class="fields">'
        for n, (key, item) in enumerate(pairs):
            if self._left <= 0:
                yield f"<dt>…</dt><dd>{note_rest(len(pairs) - n, 'items')}</dd>"
                break
            yield f"<dt>{escape(shorten(str(key), _BRIEF))}</dt><dd>"
            yield from self._draw(main_part(item))
            yield "</dd>"
        yield "</dl>"

    def _draw_conversation(self, messages: list[Any]) -> Iterator[str]:
        yield '<div class="talk">'
        for n, message in enumerate(messages):
            if self._left <= 0:
                yield note_rest(len(messages) - n, "messages")
                break
            self._left -= 1
            yield self.message(message)
        yield "</div>"

    def message(self, message: Mapping[str, Any]) -> str:
        """Return a message of a conversation as a bubble."""
        fields: Mapping[str, Any] = message["v"]
        role, author = fields.get("role"), fields.get("author_name")
        look = role if role in _ROLES else "user"
        html = f'<div class="says {look}"><b>{escape(shorten(str(author or role), _BRIEF))}</b>'
        if fields.get("text"):
            html += "".join(self._draw_text(str(fields["text"]), is_open=True))
        if fields.get("data") is not None:
            html += "".join(self._draw(fields["data"]))
        return html + "</div>"


def is_conversation(content: Any) -> bool:
    """Return whether the parts of a value are messages of a conversation."""
    return isinstance(content, list) and all(map(is_message, content))
