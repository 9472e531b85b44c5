"""What the docs say is true: every block of code runs, every output is the one shown, every link leads somewhere.

A page's ```python blocks run in order in one namespace, in an empty directory, with `await` allowed at the
top. What they print is compared with their `# -> ...` comments or with the ```text or ```mermaid block that follows.
A block of python or yaml that begins with `# file: NAME` is also written to that file, for other blocks of the page.
"""

import ast
import asyncio
import inspect
import io
import logging
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from urllib.parse import urlencode

import pytest
from opentelemetry import trace
from psycopg.conninfo import conninfo_to_dict

from stepwell.cli.app import COMMANDS
from tests.support.postgres_server import fresh_database
from tests.surfaces import api_page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
SKILL = ROOT / "src" / "stepwell" / ".agents" / "skills" / "stepwell" / "SKILL.md"  # for coding agents, in the package
COMMAND_LINE = DOCS / "cli.md"
OF_COMMANDS = sorted((DOCS / "cli").glob("*.md"))  # they go on from what the program of the first leaves behind
PAGES = [*sorted(DOCS.glob("*.md")), *OF_COMMANDS]
TO_THE_LETTER = {COMMAND_LINE, *OF_COMMANDS}  # their ```sh blocks print what is shown, but for times, ages and ids
STARTING = [DOCS / f"{name}.md" for name in ("getting-started", "first-agent", "first-approval", "first-worker")]
WITH_COMMANDS = {README, *STARTING, *TO_THE_LETTER}  # their ```sh blocks run
DATABASE = "runs.db"  # what ```sql blocks are asked of; made by the page's own python blocks

SHOWING = ("text", "mermaid")  # what stands in such a block is what the one before it prints

FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ARROW = re.compile(r"#\s*->\s?(.*)$")
IMAGE = re.compile(r"!\[([^\]\n]*)\]\(([^)\s]+)\)")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    page: Path
    language: str
    body: str
    line: int  # of its first line in the page

    @property
    def arrows(self) -> list[str]:
        return [found[1] for line in self.body.splitlines() if (found := ARROW.search(line))]

    @property
    def where(self) -> str:
        return f"{named(self.page)}:{self.line}"


def named(page: Path) -> str:
    return page.relative_to(DOCS).as_posix() if page.is_relative_to(DOCS) else page.name


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(page, found[1].strip(), found[2], text.count("\n", 0, found.start()) + 2)
        for found in FENCE.finditer(text)
    ]


class Reader:
    """Does what a reader of a page would do, and compares what comes of it with what the page shows."""

    def __init__(self, module: types.ModuleType, loop: asyncio.Runner) -> None:
        self._names, self._loop = vars(module), loop

    def read(self, block: Block) -> list[str] | None:
        """The lines a block printed; None if it is not of a kind that runs."""
        match block.language:
            case "python":
                return self._python(block)
            case "yaml":
                _filed(block)
            case "sql":
                return _asked(block)
            case "sh" if block.page in WITH_COMMANDS or "\nstepwell " in block.body:
                return _commanded(block)
        return None

    def _python(self, block: Block) -> list[str]:
        _filed(block)
        source = "\n" * (block.line - 1) + block.body  # so that tracebacks name the line of the page
        code = compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with redirect_stdout(printed):
            if code.co_flags & inspect.CO_COROUTINE:
                self._loop.run(_awaited(code, self._names))
            else:
                exec(code, self._names)
        return printed.getvalue().splitlines()


def _filed(block: Block) -> None:
    named = re.match(r"# file: (\S+)\n", block.body)
    if named:
        Path(named[1]).write_text(block.body)


async def _awaited(code: types.CodeType, names: dict[str, object]) -> None:
    await eval(code, names)


def _asked(block: Block) -> list[str]:
    database = sqlite3.connect(f"file:{DATABASE}?mode=ro", uri=True)
    try:
        rows = database.execute(block.body).fetchall()
    finally:
        database.close()
    assert rows, f"{block.where}: the query finds nothing"
    return ["|".join("" if value is None else str(value) for value in row) for row in rows]


def _commanded(block: Block) -> list[str]:
    commands = "\n".join(line for line in block.body.splitlines() if not line.startswith("pip "))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", commands], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr, f"{block.where}: {done.stderr}"
    assert "stepwell: " not in done.stderr, f"{block.where}: {done.stderr}"
    return done.stdout.splitlines()


@contextmanager
def reader_of(page: Path) -> Iterator[Reader]:
    module = types.ModuleType(f"page_{page.stem.replace('-', '_').lower()}")
    sys.modules[module.__name__] = module  # where the classes of the page are found again
    try:
        with asyncio.Runner() as loop:
            yield Reader(module, loop)
    finally:
        del sys.modules[module.__name__]


@contextmanager
def database_for(page: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a reader has to bring along for the pages that say so."""
    if "DATABASE_URL" not in page.read_text():
        yield
        return
    with fresh_database() as dsn:
        parts = conninfo_to_dict(dsn)
        address = f"postgresql:///{parts.pop('dbname')}?{urlencode(parts)}"  # as a URL, which commands take too
        monkeypatch.setenv("DATABASE_URL", address)
        yield


@pytest.fixture(scope="module")
def opening(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the page of the command line leaves it after its program: there the pages of commands begin."""
    folder = tmp_path_factory.mktemp("opening")
    blocks = blocks_of(COMMAND_LINE)
    started = next(at for at, block in enumerate(blocks) if block.body.startswith("python "))
    with pytest.MonkeyPatch.context() as patch, reader_of(COMMAND_LINE) as reader:
        isolate(patch, folder)
        for block in blocks[: started + 1]:
            reader.read(block)
    return folder


def isolate(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Work in this folder, and with no settings but the default ones."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("STEPWELL_HOME", str(folder / "home"))
    monkeypatch.delenv("STEPWELL_STORE", raising=False)
    monkeypatch.setenv("TZ", "UTC")


def compare(block: Block, printed: list[str], following: Block | None) -> None:
    shown = following.body.splitlines() if following is not None and following.language in SHOWING else None
    if block.arrows:
        assert printed == block.arrows, block.where
    elif shown is not None and block.language == "sh" and block.page in TO_THE_LETTER:
        assert [_timeless(line) for line in printed] == [_timeless(line) for line in shown], block.where
    elif shown is not None and block.language == "sh":  # how far it came before it was killed, nobody can say
        assert shown[-1] in printed, block.where
    elif shown is not None:
        assert printed == shown, block.where
    elif block.language == "python" and block.page != README:
        assert printed == [], f"{block.where} prints something that the page does not show"


def _timeless(line: str) -> str:
    """What a command prints, whenever it is run."""
    line = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d", "TIME", line)
    line = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "CHECKPOINT", line)
    line = re.sub(r"\b[\d,]+ bytes\b", "SIZE", line)
    return re.sub(r"  +", "  ", re.sub(r"\b[\d.]+ (ms|s|min)\b", "AGE", line))


def keep_to_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page sets for the whole process, tracing and logging, must not reach other tests."""
    logger = logging.getLogger("stepwell")
    monkeypatch.setattr(logger, "handlers", list(logger.handlers))
    monkeypatch.setattr(logger, "level", logger.level)
    monkeypatch.setattr(logger, "_cache", {})
    set_provider = partial(_set_provider, monkeypatch)
    monkeypatch.setattr(trace, "set_tracer_provider", set_provider)


def _set_provider(monkeypatch: pytest.MonkeyPatch, provider: trace.TracerProvider) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)


@pytest.mark.process
@pytest.mark.parametrize("page", [*PAGES, README, SKILL], ids=named)
def test_every_block_of_a_page_runs_and_prints_what_is_shown(
    page: Path, opening: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page in OF_COMMANDS:
        shutil.copytree(opening, tmp_path, dirs_exist_ok=True)
    isolate(monkeypatch, tmp_path)
    keep_to_the_page(monkeypatch)
    blocks = blocks_of(page)
    with reader_of(page) as reader, database_for(page, monkeypatch):
        for block, following in zip_longest(blocks, blocks[1:]):
            printed = reader.read(block)
            if printed is not None:
                compare(block, printed, following)


@pytest.mark.parametrize("page", [*PAGES, README, SKILL], ids=named)
def test_no_block_of_a_page_is_kept_from_running(page: Path) -> None:
    known = {"python", "text", "sh", "sql", "json", "yaml", "ini", "mermaid", ""}
    assert {block.language for block in blocks_of(page)} <= known
    assert page.read_text().count("\n```") % 2 == 0, "a fence is not closed"


@pytest.mark.parametrize("page", [*PAGES, README], ids=named)
def test_every_link_to_a_file_or_a_heading_leads_there(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    for link in LINK.findall(text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in headings(target), f"{page.name} links to {link}"


def test_every_command_has_a_page() -> None:
    assert {page.stem for page in OF_COMMANDS} == set(COMMANDS)


def headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.process  # a library that a package loads asks for the kind of machine
def test_every_public_name_is_listed_with_what_its_docstring_says() -> None:
    assert api_page.PAGE.read_text() == api_page.page(), "python -m tests.surfaces.api_page writes the page anew"


def test_the_map_leads_to_every_page() -> None:
    linked = set(LINK.findall((DOCS / "index.md").read_text()))
    assert {named(page) for page in PAGES} - {"index.md", *map(named, OF_COMMANDS)} <= linked
    assert {named(page) for page in OF_COMMANDS} <= set(LINK.findall(COMMAND_LINE.read_text()))


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_every_picture_is_there_is_described_and_is_small(page: Path) -> None:
    for words, place in IMAGE.findall(page.read_text(encoding="utf-8")):
        assert words
        assert (page.parent / place).stat().st_size < 150_000
