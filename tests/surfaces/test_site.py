"""The site that `make docs` builds: offline, with no broken link, and found by search in the folder itself."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from functools import cache
from html import unescape
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Page, Request, async_playwright, expect

from stepwell.admin import retry
from tests.support.browser import FLAGS, find_chromium
from tools.site.hook import lead_inside
from tools.site.llms import UNLISTED, Twin, describe_name, make_list
from tools.site.pages import PACKAGES, link_names

ROOT = Path(__file__).resolve().parents[2]
SCHEMES: tuple[tuple[Literal["light", "dark"], str], ...] = (("light", "default"), ("dark", "slate"))
DEAD_END = "http://127.0.0.1:9"  # nothing answers here
REFERENCE = re.compile(r"<(a|link|script|img|iframe|source)\b[^>]*?\s(?:href|src)=\"?([^\"\s>]+)")
IDENTIFIER = re.compile(r"\s(?:id|name)=\"?([^\"\s>]+)")


@cache
def identifiers(page: Path) -> frozenset[str]:
    return frozenset(unescape(name) for name in IDENTIFIER.findall(page.read_text()))


def build_site(folder: Path) -> None:
    """As `make docs` does, where nothing can be fetched."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "http_proxy": DEAD_END, "https_proxy": DEAD_END}
    command = [str(Path(sys.executable).parent / "mkdocs"), "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", done.stderr


def read_text(page: Path) -> str:
    """What a reader of the page sees, with single spaces, and none inside a parenthesis."""
    words = " ".join(unescape(re.sub(r"<[^>]+>", "", page.read_text())).split())
    return re.sub(r"\( ", "(", words)


def find_broken_links(folder: Path) -> list[str]:
    """Everything that a page refers to and that is not there, and everything it would fetch from elsewhere."""
    broken = []
    for page in folder.rglob("*.html"):
        if page.name == "404.html":  # its links begin at the root of a server
            continue
        for element, written in REFERENCE.findall(page.read_text()):
            address, _, anchor = unquote(unescape(written)).partition("#")
            where = f"{page.relative_to(folder)} -> {written}"
            if re.match(r"\w+:", address):
                if element != "a" and not address.startswith("data:"):
                    broken.append(f"fetches from elsewhere: {where}")
                continue
            target = (page.parent / address).resolve() if address else page
            if not target.is_file():
                broken.append(f"no such file: {where}")
            elif anchor and target.suffix == ".html" and anchor not in identifiers(target):
                broken.append(f"no such heading: {where}")
    return broken


def find_missing_twins(folder: Path) -> list[str]:
    """Every page without a Markdown twin, or whose twin `llms.txt` does not list."""
    listed = set(re.findall(r"^- \[.+?\]\((\S+)\): \S", (folder / "llms.txt").read_text(), re.MULTILINE))
    pages = [page.relative_to(folder).with_suffix(".md") for page in folder.rglob("*.html") if page.name != "404.html"]
    return [str(twin) for twin in pages if not (folder / twin).is_file() or twin.as_posix() not in listed]


async def search(page: Page, words: str, title: str) -> None:
    """Search as a reader does, and open the result."""
    box = page.get_by_role("textbox", name="Search")
    await page.keyboard.press("/")
    await box.press_sequentially(words)  # as a person types: the page listens to keys
    await page.locator(".md-search-result__item").get_by_role("heading", name=title, exact=True).first.click()
    await expect(page.locator("h1")).to_contain_text(title)


async def find_faint_words(page: Page) -> list[str]:
    """The elements whose words differ too little from their ground, by the rules of WCAG."""
    found = await Axe().run(page, options={"runOnly": ["color-contrast", "link-in-text-block"]})
    return [node["html"] for rule in found.response["violations"] for node in rule["nodes"]]


@pytest.mark.process
async def test_the_site_is_complete_and_works_from_its_folder(tmp_path: Path) -> None:
    build_site(tmp_path)
    assert find_broken_links(tmp_path) == []
    assert find_missing_twins(tmp_path) == []
    reference = read_text(tmp_path / "reference" / "stepwell.html")
    assert "WorkflowBuilder(max_iterations: int" in reference, "a class without its parameters and their types"
    schemes: set[str] = set()

    def note(request: Request) -> None:
        schemes.add(request.url.partition(":")[0])

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        page = await browser.new_page()
        page.on("request", note)
        await page.goto((tmp_path / "index.html").as_uri())
        await search(page, "tombstone", "Writing a store")
        await search(page, "delete old runs", "Pruning: deleting old runs")
        await page.goto((tmp_path / "cli" / "show.html").as_uri())
        await search(page, "prometheus", "In production")
        for preferred, scheme in SCHEMES:  # a page for each: colours that change fade slowly
            page = await browser.new_page(color_scheme=preferred)
            await page.goto((tmp_path / "first-agent.html").as_uri())
            await expect(page.locator("body")).to_have_attribute("data-md-color-scheme", scheme)
            assert await find_faint_words(page) == [], preferred
        await browser.close()
    assert schemes == {"file"}, "a page asks other servers"


def test_a_broken_link_and_a_missing_twin_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="#top">.</a><a href="b.html">.</a><a href="a.html#gone">.</a>'
        '<script src="https://example.org/x.js"></script><a href="https://example.org">.</a>'
    )
    (tmp_path / "llms.txt").write_text("- [B](b.md): About B.\n")
    assert [line.partition(":")[0] for line in find_broken_links(tmp_path)] == [
        "no such file",
        "no such heading",
        "fetches from elsewhere",
    ]
    assert find_missing_twins(tmp_path) == ["a.md"]


def test_a_link_out_of_the_docs_leads_to_the_page_that_shows_its_target() -> None:
    assert lead_inside("../examples/retry.py", "") == "examples/retry.md"
    assert lead_inside("../../examples", "cli") == "../examples/index.md"
    assert lead_inside("../DESIGN.md", "") == "design.md"
    assert lead_inside("../running.md", "cli") == "../running.md"
    assert lead_inside("https://example.org/../x", "") == "https://example.org/../x"


def test_the_twin_of_a_reference_says_what_the_docstrings_say() -> None:
    described = describe_name("stepwell.admin.retry")
    assert described.startswith("## retry\n\n```python\nretry(storage: ")
    assert str(inspect.getdoc(retry)) in described
    assert "- `run`: " in describe_name("stepwell.Workflow")


def test_the_list_of_pages_says_who_needs_each() -> None:
    twin = Twin("a.md", "A page", "Learn", "# A\n\nFor people [who](b.md)\nask. It answers. More.\n\nNext.\n")
    listed = make_list([twin, Twin("b.md", "Another", UNLISTED, "# B\n\nFor nobody.\n")])
    assert "\n## Learn\n\n- [A page](a.md): For people who ask. It answers.\n\n## More\n" in listed
    assert listed.endswith("- [Another](b.md): For nobody.\n")


def test_the_list_of_names_leads_to_the_reference() -> None:
    linked = link_names((ROOT / "docs" / "api.md").read_text())
    assert "| [`Executor`][stepwell.Executor] |" in linked
    assert "| [`Worker`][stepwell.worker.Worker] |" in linked
    assert re.findall(r"^## (\S+):", linked, re.MULTILINE) == list(PACKAGES)
    assert not re.findall(r"^\| `", linked, re.MULTILINE)
