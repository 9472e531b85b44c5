"""JSON as a tree on a page: what is large is folded away, what is too much is left out and said to be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stepwell.admin.report.markup import escaped, shortened
from stepwell.admin.transfer.redaction import REMOVED

_BRIEF = 100  # characters that are shown without folding


class Tree:
    """Draws values. Of all long texts together it shows so many characters; after that, only how they begin."""

    def __init__(self, characters: int) -> None:
        self._room, self._left = characters, 0

    def html(self, value: Any, most: int) -> str:
        """A value. Of those in it so many are drawn; then it is only said that there are more."""
        self._left = most
        return "".join(self._drawn(value))

    def _drawn(self, value: Any) -> Iterator[str]:
        if self._left <= 0:
            yield '<i class="soft">… left out: there is too much to show</i>'
            return
        self._left -= 1
        text = brief(value, _BRIEF + 1)
        if value == REMOVED:
            yield '<i class="soft">removed when it was exported</i>'
        elif isinstance(value, str) and len(text) > _BRIEF:
            yield from self._long(value)
        elif len(text) <= _BRIEF or not isinstance(value, (dict, list)):
            yield f"<code>{escaped(text)}</code>"
        else:
            yield from self._folded(value)

    def _long(self, text: str) -> Iterator[str]:
        shown = text[: max(self._room, 0)]
        self._room -= len(shown)
        cut = len(text) - len(shown)
        yield f"<details><summary>text of {len(text):,} characters: <code>{escaped(text[:60])}…</code></summary>"
        yield f"<pre>{escaped(shown)}</pre>{_more(cut, 'characters')}</details>"

    def _folded(self, value: dict[str, Any] | list[Any]) -> Iterator[str]:
        kind, inner = "", value
        if isinstance(value, dict) and isinstance(value.get("$"), str) and isinstance(value.get("v"), (dict, list)):
            kind, inner = value["$"].rpartition(":")[2] + ", ", value["v"]
        pairs = list(inner.items()) if isinstance(inner, dict) else list(enumerate(inner))
        named = f"{shortened(kind, _BRIEF)}{_counted(inner)}"
        yield f'<details><summary><span class="soft">{escaped(named)}</span></summary><ul>'
        for n, (key, item) in enumerate(pairs):
            if self._left <= 0:
                yield f"<li>{_more(len(pairs) - n, 'items')}</li>"
                break
            yield f"<li><b>{escaped(shortened(str(key), _BRIEF))}</b>: "
            yield from self._drawn(item)
            yield "</li>"
        yield "</ul></details>"


def brief(value: Any, longest: int) -> str:
    """A value as JSON on one line, cut off if it is long."""
    text = _start(value, longest) if isinstance(value, (dict, list)) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _start(value: dict[str, Any] | list[Any], longest: int) -> str:
    """The beginning of the JSON of a large value: no more of it is written than is shown."""
    made: list[str] = []
    size = 0
    for part in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        made.append(part)
        size += len(part)
        if size > longest:
            break
    return "".join(made)


def _counted(value: dict[str, Any] | list[Any]) -> str:
    word = "name" if isinstance(value, dict) else "item"
    return f"{len(value):,} {word}{'' if len(value) == 1 else 's'}"


def _more(count: int, what: str) -> str:
    return f'<i class="soft">… and {count:,} {what} more, left out</i>' if count > 0 else ""
