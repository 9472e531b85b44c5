"""The page of a run: everything is on it, nothing on it is obeyed, and it has an end."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    CheckpointMissing,
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    LatestOnly,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)
from stepwell.admin.report.markup import Tree
from stepwell.admin.report.page import report_run, report_to
from stepwell.admin.transfer.exporter import export_run
from stepwell.admin.transfer.importer import import_run
from tests.support.golden_workflow import GIVEN, build
from tests.support.nesting import Asker, Book

VOID = {"meta", "br", "path", "rect"}
HARMLESS = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "section", "aside"),
    *("h1", "h2", "h3", "p", "b", "i", "dl", "dt", "dd", "div"),
    *("span", "code", "pre", "ul", "li", "details", "summary"),
    *("svg", "desc", "defs", "marker", "path", "g", "rect", "text"),
}


class Reading(HTMLParser):
    """A page as it is read: every element that is opened is closed, and text is text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


async def page(storage: Any, run_id: str, **how: Any) -> Reading:
    text = await report_run(storage, run_id, **how)
    read = Reading(text)
    assert read.tags <= HARMLESS
    assert not {name for name in read.attributes if name.startswith("on") or name in ("href", "src")}
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    return read


async def test_a_page_tells_what_became_of_a_run(storage: Any) -> None:
    with pytest.raises(HandlerFailed):
        await build(storage, broken=True).run(GIVEN, run_id="r", tags={"who": "ada"})
    words = (await page(storage, "r")).words
    for said in (
        *(
            "golden / r",
            "Run r of golden failed in right: ValueError: right is broken",
            "failed",
            "Tag who",
            "ada",
            "counter",
            "✕",
            "✓",
            "ValueError: right is broken",
        ),
        *("In progress", "left finished"),
        *("Traceback", "+ state.parcel", "is_negative", "Messages in flight", "Input", "superstep 1"),
    ):
        assert said in words, said
    first = (await page(storage, "r", number=0)).words
    assert "shown as of commit 0, 20" in first
    assert "✕" not in first
    with pytest.raises(CheckpointMissing, match="commit 9 of run 'r' does not exist"):
        await report_run(storage, "r", number=9)
    with pytest.raises(CheckpointMissing, match="run 'x' is not in this store"):
        await report_run(storage, "x")
    await storage.close()


async def test_open_questions_are_on_it(tmp_path: Path) -> None:
    storage = InMemoryCheckpointStorage()
    asking = Asker(Book(), request_id="q 1")
    await WorkflowBuilder(name="asking", start_executor=asking, checkpoint_storage=storage).build().run("x", run_id="r")
    words = (await page(storage, "r")).words
    assert "Open requests" in words
    assert "needs an answer" in words
    await report_to(tmp_path / "r.html", storage, "r")
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == await report_run(storage, "r")


EVIL = "</code></td><script>alert('x')</script><img src=x onerror=y>\"'&\x00\u202e"


class Evil(Executor):
    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, Any]) -> None:
        ctx.set_state(EVIL, {EVIL: [EVIL] * 30, "long": EVIL * 300})
        await ctx.yield_output({EVIL: EVIL})
        await ctx.request_info(EVIL, str, request_id="</h3><script>")

    @response_handler
    async def hear(self, question: str, answer: str, ctx: WorkflowContext) -> None:
        raise ValueError(EVIL)


async def test_what_is_stored_is_shown_and_never_obeyed() -> None:
    storage = InMemoryCheckpointStorage()
    flow = WorkflowBuilder(name="<script>", start_executor=Evil("<b>&quot;'"), checkpoint_storage=storage).build()
    await flow.run(EVIL, run_id="<i>r</i>", tags={"<u>": "</dd>"})
    asked = await page(storage, "<i>r</i>")
    with pytest.raises(HandlerFailed):
        await flow.run(run_id="<i>r</i>", responses={"</h3><script>": EVIL})
    for read in (asked, await page(storage, "<i>r</i>")):
        assert "alert('x')" in read.words
        assert "\u202e" not in read.words
    assert "<script> / <i>r</i>" in asked.words
    assert "</h3><script>" in asked.words


@pytest.mark.long
async def test_long_histories_are_cut_in_the_middle_and_large_values_at_the_end() -> None:
    storage = InMemoryCheckpointStorage()

    @executor(id="count")
    async def count(number: int, ctx: WorkflowContext[int, str]) -> None:
        ctx.set_state("large", [{"text": "y" * 1000, "n": number}] * 3000)
        ctx.set_state("text", "z" * 1_500_000)
        if number < 243:
            await ctx.send_message(number + 1)

    builder = WorkflowBuilder(name="counting", start_executor=count, checkpoint_storage=storage, max_iterations=500)
    flow = builder.add_edge(count, count).build()
    await flow.run(240, run_id="r")
    text = await report_run(storage, "r")
    assert "more items left out" in text
    assert "more characters left out" in text
    small = InMemoryCheckpointStorage()

    @executor(id="step")
    async def step(number: int, ctx: WorkflowContext[int, str]) -> None:
        ctx.set_state("n", number)
        if number < 300:
            await ctx.send_message(number + 1)

    builder = WorkflowBuilder(name="stepping", start_executor=step, checkpoint_storage=small, max_iterations=500)
    await builder.add_edge(step, step).build().run(1, run_id="r")
    read = await page(small, "r")
    assert "… 101 commits left out …" in read.words
    assert "ran 300 times" in read.words
    assert len(text) < 5_000_000


async def test_a_run_that_keeps_only_its_latest_is_told_as_far_as_it_is_kept() -> None:
    storage = InMemoryCheckpointStorage(retention=LatestOnly)
    await build(storage, broken=False).run(GIVEN, run_id="r")
    read = await page(storage, "r")
    assert "left was here" in read.words


async def test_a_redacted_run_can_be_looked_at() -> None:
    storage, there = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    await build(storage, broken=False).run(GIVEN, run_id="r")
    await import_run(there, await export_run(storage, "r", without=["state.parcel"]), inspect_only=True)
    read = await page(there, "r")
    assert "Private values were removed" in read.words
    assert "removed when it was exported" in read.words


def test_a_tree_has_an_end() -> None:
    deep: Any = "x"
    for _ in range(190):
        deep = [deep, "y" * 120]
    assert Tree(100).html(deep, 50).count("<details>") <= 51
    assert "too much" in Tree(10).html(1, 0)


def test_values_are_shown_without_the_tags_of_the_format() -> None:
    order = {"$": "shop:Order", "v": {"id": 7, "at": {"$": "datetime", "v": "2026-11-18T10:00:00"}, "note": "x" * 90}}
    assert Tree(100).html(order, 50) == (
        '<span class="kind">Order</span> <dl class="fields"><dt>id</dt><dd><code>7</code></dd>'
        '<dt>at</dt><dd><span class="text">2026-11-18T10:00:00</span></dd>'
        f'<dt>note</dt><dd><span class="text">{"x" * 90}</span></dd></dl>'
    )
    assert Tree(100).html({"$": "shop:Tag", "v": [1, 2]}, 9) == '<span class="kind">Tag</span> <code>[1,2]</code>'
    long = Tree(10_000).html([order] * 9, 500)
    assert long.startswith('<details><summary><span class="soft">9 items</span></summary>')


def said(role: str, text: str, author: str | None = None) -> dict[str, Any]:
    return {"$": "stepwell:Message", "v": {"role": role, "text": text, "author_name": author, "data": None}}


def test_a_list_of_messages_is_a_conversation() -> None:
    html = Tree(1000).html([said("user", "hello"), said("assistant", "good day", "clerk")], 50)
    assert html == (
        '<div class="talk"><div class="says user"><b>user</b><span class="text">hello</span></div>'
        '<div class="says assistant"><b>clerk</b><span class="text">good day</span></div></div>'
    )
    # A role is data, too: it never becomes a class of the page.
    assert 'class="says user"' in Tree(1000).html([said('x" onload="y', "hello")], 50)
