"""The picture of a workflow: everything is in it, it is XML, and nothing in it is obeyed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import InMemoryCheckpointStorage, WorkflowBuilder, WorkflowExecutor, WorkflowViz
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import HandlerFailed
from stepwell.graph.edges import Direct, Edge, FanIn, FanOut, Select, Switch
from stepwell.storage.store_archive import StoreArchive
from stepwell.viz.diagram import Arrow
from stepwell.viz.durations import format_seconds
from stepwell.viz.progress import Progress, progress_of
from stepwell.viz.stored_graph import stored_diagram
from stepwell.viz.svg import draw
from tests.support.golden_workflow import GIVEN, build
from tests.viz.test_formats import Step

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
    shape = stored_diagram({"start": "s", "executors": ["s"], "edges": texts})
    found = {
        (a.source.partition(" ")[0].replace("\0", ""), a.target.partition(" ")[0].replace("\0", ""))
        for a in shape.arrows
    }
    wanted = {pair for text in texts for pair in expected(by_text[text])}
    shortened = {(a.partition(" ")[0].replace("\0", ""), b.partition(" ")[0].replace("\0", "")) for a, b in wanted}
    assert found == shortened
    joins = [node for node in shape.nodes if node.kind == "fan-in"]
    assert len(joins) == sum(isinstance(by_text[text], FanIn) for text in texts)


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
    assert stored_diagram(signature).arrows == (
        Arrow("a", "b", "if is_big", dotted=True),
        Arrow("a", "c", "if <lambda>", dotted=True),
        Arrow("a", "a", "otherwise", dotted=True),
        Arrow("b", "c", "if late", dotted=True),
        Arrow("c", "a", "chosen by f", dotted=True),
        Arrow("c", "b", "chosen by f", dotted=True),
    )


def test_an_edge_that_is_not_understood_is_kept_in_words() -> None:
    diagram = stored_diagram({"start": "a", "executors": ["a"], "edges": ["a ~> b some day"]})
    assert diagram.arrows == ()
    assert "a ~&gt; b some day." in draw(diagram)


@pytest.mark.long
@given(st.lists(edges(), max_size=6), st.text(max_size=20))
def test_a_picture_is_xml_with_every_box_and_arrow(given_edges: list[Edge], title: str) -> None:
    signature = {"start": "s", "executors": ["s"], "edges": sorted({edge.describe() for edge in given_edges})}
    shape = stored_diagram(signature)
    picture = draw(signature, progress=Progress({"s": 2}), title=title)
    root = ElementTree.fromstring(picture)
    assert draw(signature, progress=Progress({"s": 2}), title=title) == picture
    boxes = [one for one in root.iter(f"{SVG}rect") if one.get("class") == "box"]
    assert len(boxes) == len(shape.nodes)
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
    assert [progress.state(id) for id in ("counter", "left", "right", "last")] == ["ran", "next", "failed", "idle"]
    assert [progress.caption(id) for id in ("left", "right", "last")] == ["next", "failed", "not run"]
    assert re.fullmatch(r"ran once, [\d.]+ m?s", progress.describe("counter"))
    assert re.fullmatch(r"[\d.]+ m?s", progress.caption("counter"))
    picture = draw(workflow, progress=progress, title="golden")
    root = ElementTree.fromstring(picture)
    looks = {
        title.text: (group.get("class") or "").split()[0]
        for group in root.iter(f"{SVG}g")
        if group.get("class") and (title := group.find(f"{SVG}title")) is not None
    }
    assert (looks["right"], looks["counter"]) == ("failed", "ran")
    signs = [text.text for text in root.iter(f"{SVG}text") if "sign" in (text.get("class") or "")]
    assert {"✓", "✕", "▸"} <= set(signs)
    description = root.find(f"{SVG}desc")
    assert description is not None
    assert description.text is not None
    assert "right: failed." in description.text
    titles = 1 + len(workflow.executors) + len(stored_diagram(workflow.graph_signature).arrows)
    assert picture.count("<title") == titles


def test_how_often_and_how_long_an_executor_ran_is_shown() -> None:
    signature = {"start": "a", "executors": ["a", "b"], "edges": ["a -> b"]}
    picture = draw(signature, progress=Progress({"a": 3, "b": 1}, seconds={"a": 200.0, "b": 0.25}))
    texts = [text.text for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert texts.count("\u00d73") == 1
    assert "\u00d71" not in texts
    assert {"start · 3 min 20 s", "250 ms"} <= set(texts)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *(
            (0, "0 ms"),
            (0.0123, "12 ms"),
            (0.9994, "999 ms"),
            (0.9996, "1.0 s"),
            (59.94, "59.9 s"),
        ),
        *((59.96, "1 min"), (200, "3 min 20 s"), (3600, "1 h"), (7500, "2 h 5 min"), (273_600, "3 d 4 h")),
    ],
)
def test_durations_are_read_by_people(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words


def test_the_size_of_a_drawing_includes_the_workflows_inside() -> None:
    inner = WorkflowBuilder(start_executor=Step("deep inside")).build()
    outer = WorkflowBuilder(start_executor=WorkflowExecutor(inner, "frame")).build()
    root = ElementTree.fromstring(draw(outer))
    assert "deep inside" in [text.text for text in root.iter(f"{SVG}text")]
    assert [group.get("transform") for group in root.iter(f"{SVG}g") if group.get("transform")]
    layout = WorkflowViz(outer).to_layout()
    (frame,) = layout["nodes"]
    assert frame["inner"]["width"] <= frame["width"] <= layout["width"]
    assert frame["inner"]["height"] < frame["height"] <= layout["height"]
