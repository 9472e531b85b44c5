"""The prose of a docs page: its paragraphs and sentences, without code, tables and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n)+")  # code, and what continues a list after a blank line
_ITEM = re.compile(r"\s*([-*]|\d+\.)\s+")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`")
_STOP = re.compile(r"(?<=[.!?])[)\"*_]*\s+(?=[\"*_(\[`]*[A-Z0-9`])")


def paragraphs(page: Path) -> Iterator[str]:
    """The paragraphs and the items of lists, each in one line."""
    lines: list[str] = []
    text = _INDENTED.sub("", _FENCE.sub("", page.read_text()))
    for line in [*text.splitlines(), ""]:
        is_prose = line.strip() != "" and not line.lstrip().startswith(("#", "|", "![", "<"))
        if lines and (not is_prose or _ITEM.match(line)):
            yield " ".join(lines)
            lines = []
        if is_prose:
            lines.append(_ITEM.sub("", line, count=1).strip())


def sentences(page: Path) -> Iterator[str]:
    """The sentences of all paragraphs, with the words of links."""
    for paragraph in paragraphs(page):
        yield from _STOP.split(_LINK.sub(r"\1", paragraph))


def count_words(sentence: str) -> int:
    """How many words a reader reads; a piece of code counts as one."""
    return len(_CODE.sub("code", sentence).split())
