"""Rules for the docs that no example can check: what must be there, for whom, and how long a sentence may be."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from stepwell.cli.app import COMMANDS
from tests.surfaces.prose import count_words, paragraphs, sentences
from tools.site.pages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "DESIGN.md")]
START = DOCS / "index.md"  # for everybody
LONGEST_SENTENCE = 35
READERS = "agents|authors|developers|everybody|operators|people|teams"
WHO = re.compile(rf"\b[Ff]or (?:coding )?(?:{READERS})\b")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s#]+)[^)]*\)")
LISTS_ALL = {"api.md", "errors.md"}  # a name that only these mention has no page that shows it


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [*DOCUMENTS, *PAGES], ids=name_of)
def test_no_sentence_has_more_than_35_words(page: Path) -> None:
    assert [sentence for sentence in sentences(page) if count_words(sentence) > LONGEST_SENTENCE] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page != START], ids=name_of)
def test_the_first_paragraph_says_who_needs_the_page(page: Path) -> None:
    first = next(paragraphs(page))
    assert WHO.search(first), f"{name_of(page)} starts without a sentence such as 'For developers who ...': {first}"


def test_every_page_is_linked_from_another_page() -> None:
    linked = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in LINK.findall(page.read_text())
        if "://" not in target and (page.parent / target).resolve() != page
    }
    assert [name_of(page) for page in PAGES if page != START and page not in linked] == []


def test_every_command_has_an_example_that_is_executed() -> None:
    without = [name for name in COMMANDS if not _calls(DOCS / "cli" / f"{name}.md", name)]
    assert without == []


def _calls(page: Path, command: str) -> bool:
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return any(re.search(rf"^(?:[\w=]+ )*stepwell (?:\S+ )*?{command}\b", block, re.MULTILINE) for block in blocks)


@pytest.mark.process  # a library that a package loads asks for the kind of machine
def test_every_public_name_stands_on_a_page_that_shows_what_it_is_for() -> None:
    text = "\n".join(page.read_text() for page in PAGES if page.name not in LISTS_ALL)
    words = set(re.findall(r"\w+", text))
    names = {name for package in PACKAGES for name in import_module(package).__all__}
    assert sorted(names - words) == []
