"""The pages of the site that are made from code.

They are the documents at the root of the repository, a page for each example, and the reference: one page for each
package, with an entry for every public name. None of them is a file in `docs`.
"""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md")
PACKAGES = {
    "stepwell": "what most programs need",
    "stepwell.workflows": "what surrounds a workflow: handles, sub-workflows, workflows as agents",
    "stepwell.functional": "durable functions",
    "stepwell.storage": "what storages return",
    "stepwell.agents": "agents in workflows",
    "stepwell.orchestrations": "teams of agents",
    "stepwell.declarative": "workflows of named agents",
    "stepwell.admin": "runs seen and changed from outside",
    "stepwell.worker": "processes that drive whatever is ready",
    "stepwell.server": "runs over HTTP",
    "stepwell.webhooks": "messages to other programs",
    "stepwell.viz": "pictures",
    "stepwell.testing": "tests of your own workflows and stores",
}

FOR_WHOM = "For people who look for a program to start from."

_ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
_SECTION = re.compile(r"^## (stepwell[.\w]*)", re.MULTILINE)


def make_pages() -> dict[str, str]:
    """Return the text of each page by its address in the site."""
    documents = {name.lower(): _move_into_docs((ROOT / name).read_text()) for name in DOCUMENTS}
    reference = {f"reference/{package}.md": _describe_package(package) for package in PACKAGES}
    return documents | reference | _make_examples()


def link_names(markdown: str) -> str:
    """Lead from each name in the list of public names to what the reference says of it."""
    opening, *sections = _SECTION.split(markdown)
    linked = [
        f"## {package}" + _ROW.sub(rf"| [`\1`][{package}.\1] |", text)
        for package, text in zip(sections[::2], sections[1::2], strict=True)
    ]
    return "".join([opening, *linked])


def _move_into_docs(text: str) -> str:
    """Rewrite the links of a document at the root: in the site it stands beside the pages of `docs`."""
    text = re.sub(r"\]\(docs/", "](", text)
    return re.sub(rf"\]\(({'|'.join(DOCUMENTS)})", lambda found: found[0].lower(), text)


def _describe_package(package: str) -> str:
    names = sorted(import_module(package).__all__, key=str.lower)
    about = f"This page is for people who write code with `{package}`: {PACKAGES[package]}."
    how = "It shows the signature and the docstring of every public name."
    return "\n\n".join([f"# {package}", f"{about} {how}", *(f"::: {package}.{name}" for name in names), ""])


def _make_examples() -> dict[str, str]:
    pages = {}
    for program in sorted((ROOT / "examples").glob("*.py")):
        source = program.read_text()
        purpose = " ".join((ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].split())
        listing = f'```python title="examples/{program.name}"\n{source}```'
        pages[f"examples/{program.stem}.md"] = f"# Example: {program.stem}\n\n{purpose} {FOR_WHOM}\n\n{listing}\n"
    pages["examples/index.md"] = re.sub(r"\.py\)", ".md)", (ROOT / "examples" / "README.md").read_text())
    return pages
