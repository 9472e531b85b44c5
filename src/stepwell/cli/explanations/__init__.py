"""The explanation of each error id, from the pages of the docs that the package contains."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files

PAGES = ("errors-runs.md", "errors-storage.md", "errors-outside.md", "errors-commands.md")
_HEADING = re.compile(r"^## (SW\d{3}) (\w+)\n", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")


@dataclass(frozen=True)
class Explanation:
    """The section about one error: what happened, why, and what to do."""

    id: str
    name: str
    happened: str
    why: str
    do: str


def read_page(name: str) -> str:
    """Return one of the pages, in Markdown."""
    return files(__package__).joinpath(name).read_text("utf-8")


def read_explanations() -> dict[str, Explanation]:
    """Return the sections of all pages, by their ids."""
    explanations: dict[str, Explanation] = {}
    for page in PAGES:
        _, *parts = _HEADING.split(read_page(page))
        for id, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            # A terminal shows a link as the page and its heading.
            happened, why, do = _LINK.sub(r"\1 (\2)", body).strip().split("\n\n")
            explanations[id] = Explanation(id, name, happened, _without(why, "**Why:** "), _without(do, "**Do:** "))
    return explanations


def _without(paragraph: str, label: str) -> str:
    if not paragraph.startswith(label):
        raise ValueError(f"a paragraph of an explanation does not start with {label!r}: {paragraph!r}")
    return paragraph.removeprefix(label)
