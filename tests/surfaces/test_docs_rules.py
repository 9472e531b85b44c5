"""Rules for the docs that no example can check: what must be there, for whom, and how long a sentence may be.

Each rule is a function that returns what breaks it. One test per rule reads the docs, and one breaks it on purpose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

from stepwell.cli.app import COMMANDS
from stepwell.model.event import WorkflowEventType
from stepwell.server.api.routes import OPERATIONS
from tests.surfaces.prose import count_words, paragraphs, sentences
from tools.site.pages import PACKAGES, make_pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
README = ROOT / "README.md"
DOCUMENTS = [README, ROOT / "examples/README.md", *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING"))]
DOCUMENTS += [ROOT / "DESIGN.md", ROOT / "src/stepwell/.agents/skills/stepwell/SKILL.md"]
START = DOCS / "index.md"  # for everybody
LONGEST_SENTENCE = 35
LONGEST_README = 150
READERS = "agents|authors|developers|everybody|operators|people|teams"
WHO = re.compile(rf"\b[Ff]or (?:coding )?(?:{READERS})\b")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s#]+)[^)]*\)")
LISTS_ALL = {"api.md", "errors.md"}  # a name that only these mention has no page that shows it


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def find_long_sentences(page: Path) -> list[str]:
    return [sentence for sentence in sentences(page) if count_words(sentence) > LONGEST_SENTENCE]


def says_who_needs_it(page: Path) -> bool:
    return WHO.search(next(paragraphs(page))) is not None


def find_lost_headings(page: Path) -> list[str]:
    """Headings that stand inside a paragraph, where they are words."""
    return [paragraph for paragraph in paragraphs(page) if re.search(r"\s#{2,} ", paragraph)]


def find_broken_lists(page: Path) -> list[str]:
    """What continues an item after a blank line with fewer than four blanks: the site ends the list there."""
    return re.findall(
        r"\n\n {1,3}(\S.*)", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    )


def find_unlinked(pages: Iterable[Path], start: Path) -> list[Path]:
    pages = list(pages)
    linked = {
        (page.parent / target).resolve()
        for page in pages
        for target in LINK.findall(page.read_text())
        if "://" not in target and (page.parent / target).resolve() != page
    }
    return [page for page in pages if page != start and page not in linked]


def find_commands_without_example(folder: Path, commands: Iterable[str]) -> list[str]:
    return [name for name in commands if not _calls(folder / f"{name}.md", name)]


def _calls(page: Path, command: str) -> bool:
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return any(re.search(rf"^(?:[\w=]+ )*stepwell (?:\S+ )*?{command}\b", block, re.MULTILINE) for block in blocks)


def find_names_without_page(pages: Iterable[Path], names: Iterable[str]) -> list[str]:
    text = "\n".join(page.read_text() for page in pages if page.name not in LISTS_ALL)
    return sorted(set(names) - set(re.findall(r"\w+", text)))


@pytest.mark.parametrize("page", [*DOCUMENTS, *PAGES], ids=name_of)
def test_no_sentence_has_more_than_35_words(page: Path) -> None:
    assert find_long_sentences(page) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page != START], ids=name_of)
def test_the_first_paragraph_says_who_needs_the_page(page: Path) -> None:
    assert says_who_needs_it(page), f"{name_of(page)} starts without a sentence such as 'For developers who ...'"


@pytest.mark.process  # a library that a package loads asks for the kind of machine
def test_the_pages_made_from_code_say_who_needs_them(tmp_path: Path) -> None:
    page, silent = tmp_path / "page.md", []
    for address, text in make_pages().items():
        page.write_text(text)
        silent += [] if says_who_needs_it(page) else [address]
    assert silent == []


def test_no_heading_and_no_part_of_a_list_is_lost_on_the_site() -> None:
    pages = [*DOCUMENTS, *PAGES]
    assert {name_of(page): lost for page in pages if (lost := find_lost_headings(page) + find_broken_lists(page))} == {}


def test_every_page_is_linked_from_another_page() -> None:
    assert find_unlinked(PAGES, START) == []


def test_every_command_has_an_example_that_is_executed() -> None:
    assert find_commands_without_example(DOCS / "cli", COMMANDS) == []


@pytest.mark.process  # a library that a package loads asks for the kind of machine
def test_every_public_name_stands_on_a_page_that_shows_what_it_is_for() -> None:
    names = {name for package in PACKAGES for name in import_module(package).__all__}
    assert find_names_without_page(PAGES, names) == []


def test_every_variable_of_the_environment_is_among_the_settings() -> None:
    read = {
        name for source in (ROOT / "src").rglob("*.py") for name in re.findall(r"STEPWELL_[A-Z_]+", source.read_text())
    }
    assert {name for name in read if f"`{name}`" not in (DOCS / "settings.md").read_text()} == set()


def test_every_event_operation_and_key_of_a_definition_is_described() -> None:
    described = {page: (DOCS / page).read_text() for page in ("events.md", "http-api.md", "agents-by-name-files.md")}
    schema = (DOCS / "agent-workflow.schema.json").read_text()
    keys = {key for properties in _find_all(json.loads(schema), "properties") for key in properties} - {"$schema"}
    assert {event for event in get_args(WorkflowEventType) if f"`{event}`" not in described["events.md"]} == set()
    assert {key for key in keys if not re.search(rf"\b{key}\b", described["agents-by-name-files.md"])} == set()
    paths = {f"/{operation.path.rpartition('/')[2]}" for operation in OPERATIONS}  # such as /cancel
    assert {path for path in paths if not re.search(rf"{re.escape(path)}(?![\w-])", described["http-api.md"])} == set()


def _find_all(document: object, key: str) -> Iterator[Any]:
    """Return what any object inside a document has under this key."""
    values = list(document.values()) if isinstance(document, dict) else document if isinstance(document, list) else []
    if isinstance(document, dict) and key in document:
        yield document[key]
    for value in values:
        yield from _find_all(value, key)


def test_each_rule_finds_what_breaks_it(tmp_path: Path) -> None:
    start, lonely = tmp_path / "index.md", tmp_path / "show.md"
    long = " ".join(["word"] * (LONGEST_SENTENCE + 1))
    start.write_text(f"# All\n\nFor people who plan. ## Plans\n\n- A list, and\n  {long}.\n\n  More.\n")
    lonely.write_text(f"# One\n\nIt shows.\n\n```sh\nstepwell list\n```\n\n{long[5:]}. [It](show.md) is `Workflow`.\n")
    assert [len(find_long_sentences(page)) for page in (start, lonely)] == [1, 0]
    assert [says_who_needs_it(page) for page in (start, lonely)] == [True, False]
    assert [len(find_lost_headings(page)) for page in (start, lonely)] == [1, 0]
    assert [find_broken_lists(page) for page in (start, lonely)] == [["More."], []]
    assert find_unlinked([start, lonely], start) == [lonely]
    assert find_commands_without_example(tmp_path, ["show"]) == ["show"]
    assert find_names_without_page([start, lonely], ["Workflow", "Worker"]) == ["Worker"]


def test_the_readme_is_short_and_has_six_links() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= LONGEST_README
    assert len(LINK.findall(text)) == 6
    program = re.search(r"^## Twenty-five lines\n\n```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert program is not None
    assert len(program[1].splitlines()) <= 25


def test_the_comparison_says_of_every_cell_how_it_was_checked() -> None:
    """The table of the README is that of the page, and each cell about another system was looked at in some way."""
    readme, page = _read_tables(README.read_text()), _read_tables((DOCS / "comparison.md").read_text())
    compared, checks = (table for table in page if table[0][0] == "")
    assert compared[1:] == next(table for table in readme if table[0][0] == "" and len(table) > 4)[1:]
    assert [row[0] for row in checks] == [row[0] for row in compared]
    assert checks[0][1:] == compared[0][2:]
    assert {cell for row in checks[1:] for cell in row[1:]} == {"run", "source", "docs"}


def _read_tables(text: str) -> list[list[list[str]]]:
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|---" not in line]
        for table in tables
    ]
