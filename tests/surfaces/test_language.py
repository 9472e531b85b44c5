"""The words of the house: no private dialect where people read, and names that can be found once.

Read here: every docs page, the README and its siblings, and every string of the package that is longer
than a word, which takes in errors, warnings, help texts, prompts and docstrings.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NOT_A_NOUN = "one|longer|other|more|less|need|reason|way|such|different|sooner|later|use"
PHRASES = (  # patterns that nothing people read may contain
    r"(is|are|was|were) told",
    r"(go|goes|going) on with",
    rf"(?<!there )is no (?!(?:{NOT_A_NOUN})\b)[a-z]+",  # write "is not a"
    r"begins? so",
    r"taken in",
    r"also if",
    r"whoever",
    r"said by",
    r"one too many",
    r"in vain",
    r"was to be",
)
DIALECT = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)
LONGEST_PAGE = 400
LONGEST_LINE = 100
UNWRAPPED = ("|", "```", "    ", "#", "![")  # tables, code, headings and pictures are not prose


PLANTED = (  # for each of the phrases, in its order
    "the caller is told",
    "it goes on with the next",
    "this is no workflow",
    "a name that begins so",
    "it is taken in",
    "also if it fails",
    "whoever drives it",
    "said by its name",
    "one too many",
    "it waits in vain",
    "it was to be done",
)


@cache
def nodes(source: Path) -> list[ast.AST]:
    """Every node of a module."""
    return list(ast.walk(ast.parse(source.read_text())))


def strings(source: Path) -> Iterator[tuple[int, str]]:
    """Every string of a module, f-strings with their fields left out."""
    for node in nodes(source):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def without_code(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page that are outside fenced blocks."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_each_phrase_is_found() -> None:
    for phrase, sentence in zip(PHRASES, PLANTED, strict=True):
        assert re.search(rf"\b({phrase})\b", sentence), phrase
        assert DIALECT.search(sentence), phrase
    assert not DIALECT.search("There is no workflow; it is no longer needed, and there is no need.")


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_a_page_is_written_in_plain_english(page: Path) -> None:
    text = " ".join(page.read_text().split())
    assert [hit[0] for hit in DIALECT.finditer(text)] == []


def test_what_the_package_says_is_plain_english() -> None:
    hits = [
        f"{names(source)}:{line}: {hit[0]}"
        for source in SOURCES
        for line, text in strings(source)
        for hit in DIALECT.finditer(" ".join(text.split()))
    ]
    assert hits == []


def test_comments_are_plain_english() -> None:
    comment = re.compile(r"#.*")
    hits = [
        f"{names(source)}:{number}: {hit[0]}"
        for source in SOURCES
        for number, line in enumerate(source.read_text().splitlines(), 1)
        for text in comment.findall(line)
        for hit in DIALECT.finditer(text)
    ]
    assert hits == []


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_a_page_has_at_most_400_lines_and_its_prose_at_most_100_columns(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= LONGEST_PAGE
    wide = [
        f"{number}: {line[:60]}…"
        for number, line in without_code(page)
        if len(line) > LONGEST_LINE and not line.startswith(UNWRAPPED)
    ]
    assert wide == []


def test_a_class_name_is_defined_once_in_the_package() -> None:
    homes = defaultdict(set)
    # The door to another framework has that framework's names.
    for source in (source for source in SOURCES if "compat" not in source.parts):
        for node in nodes(source):
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(names(source))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


LISTS = ("_LOG.", "check_searches")  # called with a list of any length


def test_no_call_has_seven_positional_arguments() -> None:
    riddles = [
        f"{names(source)}:{node.lineno}: {ast.unparse(node.func)}"
        for source in SOURCES
        for node in nodes(source)
        if isinstance(node, ast.Call) and len(node.args) >= 7 and not ast.unparse(node.func).startswith(LISTS)
    ]
    assert riddles == []


def test_an_import_inside_a_function_says_why_it_is_there() -> None:
    functions, imports = (ast.FunctionDef, ast.AsyncFunctionDef), (ast.Import, ast.ImportFrom)
    unmarked = []
    for source in SOURCES:
        text = source.read_text()
        inside = [node for node in nodes(source) if isinstance(node, functions)]
        found = {line.lineno for node in inside for line in ast.walk(node) if isinstance(line, imports)}
        lines = text.splitlines()
        unmarked += [f"{names(source)}:{number}" for number in sorted(found) if " lazy: " not in lines[number - 1]]
    assert unmarked == []
