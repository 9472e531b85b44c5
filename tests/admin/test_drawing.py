"""The picture of a workflow: everything is in it, it is XML, and nothing in it is obeyed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import InMemoryCheckpointStorage
from stepwell.admin.report.drawing import Progress, draw, progress_of
from stepwell.admin.report.stored_graph import Arrow, shape_of
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import HandlerFailed
from stepwell.graph.edges import Direct, Edge, FanIn, FanOut, Select, Switch
from stepwell.storage.store_archive import StoreArchive
from tests.support.golden_workflow import GIVEN, build

SVG = "{http://www.w3.org/2000/svg}"
ids = st.text(min_size=1, max_size=12) | st.sampled_from(
    ["each", "all", "first", "a.b:c/d-e", "x of y", "'", '"', "->"]
)


def named(name: str) -> Any:
    def function(*_: object) -> bool:
        return True

    function.__name__ = name
    return function


conditions = st.builds(named, st.sampled_from(["is_good", "<lambda>", "_private", "Odd, but if"]))


@st.composite
def edges(draw_one: st.DrawFn) -> Edge:
    source, targets = draw_one(ids), tuple(draw_one(st.lists(ids, min_size=2, max_size=3, unique=True)))
    kind = draw_one(st.sampled_from([Direct, FanOut, Switch, Select, FanIn]))
    if kind is Direct:
        return Direct(source, targets[0], draw_one(st.none() | conditions))
    if kind is FanOut:
        return FanOut(source, targets)
    if kind is Switch:
        return Switch(source, tuple((draw_one(conditions), target) for target in targets[1:]), targets[0])
    if kind is Select:
        return Select(source, targets, draw_one(conditions))
    return FanIn(targets, source)


def expected(edge: Edge) -> list[tuple[str, str]]:
    if isinstance(edge, FanIn):
        return [*((source, "fan-in") for source in edge.sources), ("fan-in", edge.target)]
    if isinstance(edge, Switch):
        return [*((edge.source, target) for _, target in edge.cases), (edge.source, edge.default)]
    return [(edge.source, target) for target in edge.targets]


@pytest.mark.long
@given(st.lists(edges(), max_size=6))
def test_every_edge_is_read_from_the_words_it_is_stored_in(given_edges: list[Edge]) -> None:
    texts = sorted({edge.describe() for edge in given_edges})
    by_text = {edge.describe(): edge for edge in given_edges}
    shape = shape_of({"start": "s", "executors": ["s"], "edges": texts})
    assert shape.unread == ()
    found = {
        (a.source.partition(" ")[0].replace("\0", ""), a.target.partition(" ")[0].replace("\0", ""))
        for a in shape.arrows
    }
    wanted = {pair for text in texts for pair in expected(by_text[text])}
    shortened = {(a.partition(" ")[0].replace("\0", ""), b.partition(" ")[0].replace("\0", "")) for a, b in wanted}
    assert found == shortened
    assert len(shape.joins) == sum(isinstance(by_text[text], FanIn) for text in texts)


def test_labels_say_when_an_arrow_is_taken() -> None:
    signature = {
        "start": "a",
        "executors": ["a", "b", "c"],
        "edges": [
            "a -> first of b if is_big, c if <lambda>, a otherwise",
            "b -> c if late",
            "c -> those of a, b chosen by f",
        ],
    }
    assert shape_of(signature).arrows == (
        Arrow("a", "b", "if is_big"),
        Arrow("a", "c", "if <lambda>"),
        Arrow("a", "a", "otherwise"),
        Arrow("b", "c", "if late"),
        Arrow("c", "a", "chosen by f"),
        Arrow("c", "b", "chosen by f"),
    )


@pytest.mark.long
@given(st.lists(edges(), max_size=6), st.text(max_size=20))
def test_a_picture_is_xml_with_every_box_and_arrow(given_edges: list[Edge], title: str) -> None:
    signature = {"start": "s", "executors": ["s"], "edges": sorted({edge.describe() for edge in given_edges})}
    shape = shape_of(signature)
    picture = draw(signature, progress=Progress({"s": 2}), title=title)
    root = ElementTree.fromstring(picture)
    assert draw(signature, progress=Progress({"s": 2}), title=title) == picture
    boxes = [one for one in root.iter(f"{SVG}rect") if one.get("class") == "box"]
    assert len(boxes) == len(shape.executors) + len(shape.joins)
    loops = {arrow.source for arrow in shape.arrows if arrow.source == arrow.target}
    ways = [one for one in root.iter(f"{SVG}path") if (one.get("class") or "").startswith("way")]
    assert len(ways) == len(loops) + sum(arrow.source != arrow.target for arrow in shape.arrows)
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= {
        *("svg", "title", "desc", "style", "defs", "marker", "path", "g", "rect", "text")
    }


def test_what_is_written_in_names_is_shown_and_not_obeyed() -> None:
    evil = "</title><script>alert(1)</script>\x00\u202e"
    picture = draw({"start": evil, "executors": [evil], "edges": [f"{evil!r} -> {evil!r} if <b onload=x>"]}, title=evil)
    root = ElementTree.fromstring(picture)
    assert not [one for one in root.iter() if one.tag.endswith(("script", "}b"))]
    assert "<script" not in picture
    assert "\u202e" not in picture
    assert not re.search(r"(href|src|url\((?!#))", picture)


async def test_progress_is_said_in_words_and_shapes() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = build(storage, broken=True)
    with pytest.raises(HandlerFailed):
        await workflow.run(GIVEN, run_id="r")
    archive = StoreArchive(storage._store, DEFAULT_CODEC)
    at = await archive.head("r")
    assert at is not None
    progress = progress_of(at, await archive.commits("r"))
    assert [progress.describe(id) for id in ("counter", "left", "right", "last")] == [
        "✓ ran once",
        "▸ next",
        "✕ failed",
        "not run",
    ]
    picture = draw(workflow, progress=progress, title="golden")
    root = ElementTree.fromstring(picture)
    classes = {one.find(f"{SVG}title").text: one.get("class") for one in root.iter(f"{SVG}g") if one.get("class") in  # type: ignore[union-attr]
               ("ran", "idle", "failed", "next", "waiting")}  # fmt: skip
    assert classes["right"] == "failed"
    assert classes["counter"] == "ran"
    assert "right: ✕ failed" in root.find(f"{SVG}desc").text  # type: ignore[union-attr, operator]
    assert picture.count("<title") == 1 + len(workflow.executors) + len(shape_of(workflow.graph_signature).arrows)
