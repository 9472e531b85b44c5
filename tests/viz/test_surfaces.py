"""Where drawings appear: files, notebooks, coordinates; named agents are drawn by their own nodes."""

from __future__ import annotations

import json
import stat
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    HandlerFailed,
    InMemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowViz,
    executor,
)
from stepwell.admin import report_run
from stepwell.agents import ScriptedAgent
from stepwell.declarative import AgentWorkflow, AgentWorkflowInstance, starts_with

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def chain() -> Workflow[str]:
    @executor(id="first")
    async def first(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    @executor(id="last")
    async def last(text: str, ctx: WorkflowContext[None, str]) -> None:
        if text == "bad":
            raise ValueError("bad")
        await ctx.yield_output(f"<{text}>")

    return WorkflowBuilder(name="chain", start_executor=first).add_edge(first, last).build()


def team(**options: Any) -> AgentWorkflowInstance:
    builder = AgentWorkflow.create().with_name("team")
    builder.add_agent("write", ScriptedAgent("write", ["a text"])).add_agent("check", ScriptedAgent("check", ["3"]))
    builder.add_agent("ship", ScriptedAgent("ship", ["shipped"]))
    builder.from_("write").to("check")
    builder.from_("check").to("ship", when=options.get("when", starts_with("check", "3")))
    builder.from_("check").otherwise("write")
    return builder.build()


def test_a_file_is_written_in_every_text_format(tmp_path: Path) -> None:
    viz = WorkflowViz(chain())
    written = {"svg": viz.to_svg(), "dot": viz.to_digraph(), "mermaid": viz.to_mermaid(), "text": viz.to_text()}
    for format, text in written.items():
        path = viz.export(format, tmp_path / f"drawing.{format}")  # type: ignore[arg-type]
        assert Path(path).read_text(encoding="utf-8") == text
    temporary = Path(viz.export())
    assert (temporary.suffix, temporary.read_text(encoding="utf-8")) == (".svg", viz.to_svg())
    temporary.unlink()
    with pytest.raises(ValueError, match="format must be one of svg, png, pdf, dot, mermaid, text, not 'gif'"):
        viz.export("gif")  # type: ignore[arg-type]


@pytest.mark.process
def test_png_and_pdf_are_drawn_by_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"drawing a PNG needs Graphviz, and its program `dot` is not on the PATH"):
        WorkflowViz(chain()).export("png", tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()
    dot = tmp_path / "dot"
    dot.write_text(
        '#!/bin/sh\nread -r line\nif [ "$1" = -Tpng ]; then echo "png of $line"; else echo no >&2; exit 1; fi\n'
    )
    dot.chmod(dot.stat().st_mode | stat.S_IXUSR)
    path = WorkflowViz(chain()).export("png", tmp_path / "x.png")
    assert Path(path).read_text() == "png of digraph workflow {\n"
    with pytest.raises(RuntimeError, match="Graphviz could not draw the workflow: no"):
        WorkflowViz(chain()).export("pdf", tmp_path / "x.pdf")


def test_a_layout_is_plain_data_for_a_page() -> None:
    layout = WorkflowViz(team()).to_layout()
    assert json.loads(json.dumps(layout)) == layout
    nodes = {node["id"]: node for node in layout["nodes"]}
    assert nodes["write"]["kind"] == "executor"
    assert nodes["write"]["y"] < nodes["check"]["y"] < nodes["ship"]["y"]
    (when,) = [edge for edge in layout["edges"] if edge["label"] == 'check starts with "3"']
    assert (when["source"], when["target"], when["dotted"]) == ("check", "ship", False)
    assert len(when["points"]) >= 2
    assert {"x", "y", "width", "height"} == set(when["label_box"])


def test_a_notebook_shows_a_workflow_as_its_drawing() -> None:
    assert texts(chain()._repr_svg_()) == ["first", "start", "last"]
    assert "Workflow chain" in chain()._repr_svg_()
    assert set(texts(team()._repr_svg_())) == {
        "start",
        "write",
        "check",
        "ship",
        "end",
        'check starts with "3"',
        "otherwise",
    }
    assert texts(WorkflowViz(chain())._repr_svg_()) == ["first", "start", "last"]


async def test_a_notebook_shows_a_result_with_its_outputs_and_the_progress_of_the_run() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = chain()
    result = await workflow.run("tea", run_id="r 1", checkpoint_storage=storage)
    html = result._repr_html_()
    assert html.startswith("<p><b>completed</b> · run <code>r 1</code></p><pre>&#x27;&lt;tea&gt;&#x27;</pre><div><svg")
    assert "first: ran once" in html
    stored = await workflow.attach("r 1", checkpoint_storage=storage, drive=True).result()
    assert "last: ran once" in stored._repr_html_()
    with pytest.raises(HandlerFailed):
        await workflow.run("bad", run_id="r 2", checkpoint_storage=storage)


async def test_named_agents_are_drawn_by_their_own_nodes_in_every_format() -> None:
    built = team()
    for drawn in (built, built.workflow):  # what a program holds, and what the engine runs
        viz = WorkflowViz(drawn)
        assert viz.to_text().splitlines() == [
            "start: write",
            "write -> check",
            'check -> ship if check starts with "3"',
            "check -> write otherwise",
        ]
        assert viz.to_mermaid() == built.to_mermaid()
        for text in (viz.to_mermaid(), viz.to_digraph(), viz.to_svg()):
            assert "conductor" not in text
    outer = WorkflowBuilder(start_executor=WorkflowExecutor(built.workflow, "inner", allow_direct_output=True)).build()
    assert 'check -> ship if check starts with "3"' in WorkflowViz(outer).to_text()


async def test_a_report_draws_named_agents_by_their_own_nodes() -> None:
    storage = InMemoryCheckpointStorage()
    built = team()
    message = built.make_start_message("go", "s")
    await built.workflow.run(message, run_id="r", checkpoint_storage=storage)
    for number in (0, None):
        page = await report_run(storage, "r", number=number)
        graph = page[page.index("<svg") : page.index("</svg>")]
        assert "check starts with" in graph
        assert "conductor" not in graph
    # A condition that is a function cannot be stored, so the definition is not: the routes still are.
    other = team(when=lambda values: True)
    await other.workflow.run(other.make_start_message("go", "s"), run_id="q", checkpoint_storage=storage)
    page = await report_run(storage, "q")
    graph = page[page.index("<svg") : page.index("</svg>")]
    assert "check leads to ship" in graph
    assert "conductor" not in graph
