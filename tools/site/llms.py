"""The site for programs: a Markdown twin of every page, and `llms.txt`, the list of all of them."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath

SUMMARY = """# Stepwell

> Agent workflows that do not lose their place: a Python library. After every superstep the whole run is
> committed, so a crash or a deploy costs nothing that was already done.

Coding agents find a short introduction in the installed package: `stepwell/.agents/skills/stepwell/SKILL.md`.
"""
UNLISTED = "More"  # pages that the navigation does not list
_DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
_HEADING = re.compile(r"^# .*\n+", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True)
class Twin:
    """The Markdown of a page of the site."""

    address: str  # below the site, such as `cli/show.md`
    title: str
    section: str  # of the navigation
    text: str

    @property
    def purpose(self) -> str:
        """The first two sentences after the title, in one line: who needs the page, and what it is about."""
        paragraph = " ".join(_LINK.sub(r"\1", _HEADING.sub("", self.text, count=1)).split("\n\n")[0].split())
        return " ".join(re.split(r"(?<=\.)\s", paragraph, maxsplit=2)[:2])


def write_twins(site: Path, twins: list[Twin]) -> None:
    """Write `llms.txt` and every twin into the folder of the site, beside the page it is the twin of."""
    for twin in twins:
        file = site / PurePosixPath(twin.address)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_DIRECTIVE.sub(lambda found: describe_name(found[1]), twin.text), encoding="utf-8")
    (site / "llms.txt").write_text(make_list(twins), encoding="utf-8")


def make_list(twins: list[Twin]) -> str:
    """Return `llms.txt`: every page by the sections of the navigation, with what it is about."""
    sections: dict[str, list[str]] = {}
    for twin in twins:
        line = f"- [{twin.title}]({twin.address}): {twin.purpose}"
        sections.setdefault(twin.section, []).append(line)
    return "\n".join([SUMMARY, *("\n".join([f"## {name}", "", *lines, ""]) for name, lines in sections.items())])


def describe_name(path: str) -> str:
    """Return a public name with its signature and its docstring, in Markdown."""
    package, _, name = path.rpartition(".")
    value = getattr(import_module(package), name)
    text = inspect.getdoc(value) if inspect.isclass(value) or inspect.isroutine(value) else None
    parts = [f"## {name}"]
    try:
        parts.append(f"```python\n{name}{inspect.signature(value)}\n```")
    except (TypeError, ValueError):  # a constant, or a class without a signature
        parts.append(f"`{path}`")
    parts += [text] if text else []
    if inspect.isclass(value):
        methods = ((method, inspect.getdoc(call)) for method, call in vars(value).items() if inspect.isroutine(call))
        listed = [
            f"- `{method}`: {about.splitlines()[0]}"
            for method, about in methods
            if about and not method.startswith("_")
        ]
        parts += ["\n".join(listed)] if listed else []
    return "\n\n".join(parts)
