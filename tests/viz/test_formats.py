"""A workflow as Mermaid, as DOT and as text."""

import re
from typing import Any

import pytest

from stepwell import (
    Case,
    Default,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowViz,
    handler,
)


class Step(Executor):
    @handler
    async def take(self, message: Any, ctx: WorkflowContext[Any]) -> None: ...


def is_big(message: Any) -> bool:
    return True


async def is_odd(message: Any) -> bool:
    return True


def pick(message: Any, targets: list[str]) -> list[str]:
    return targets


def every_kind() -> Workflow:
    return (
        WorkflowBuilder(start_executor=Step("start"))
        .add_edge("start", Step("checked"), condition=is_big)
        .add_fan_out_edges("checked", [Step("left"), Step("right")])
        .add_fan_in_edges(["left", "right"], Step("joined"))
        .add_switch_case_edge_group("joined", [Case(is_odd, Step("odd")), Default(Step("even"))])
        .add_multi_selection_edge_group("odd", [Step("mail"), "even"], pick)
        .add_edge("mail", "mail")
        .build()
    )


def test_mermaid_shows_every_kind_of_edge_and_marks_the_start() -> None:
    assert WorkflowViz(every_kind()).to_mermaid().splitlines() == [
        "flowchart TD",
        '  n0["start (Start)"];',
        '  n1["checked"];',
        '  n2["left"];',
        '  n3["right"];',
        '  n4["joined"];',
        '  n5["odd"];',
        '  n6["even"];',
        '  n7["mail"];',
        "  j0((fan-in));",
        '  n0 -. "is_big" .-> n1;',
        "  n1 --> n2;",
        "  n1 --> n3;",
        "  n2 --> j0;",
        "  n3 --> j0;",
        "  j0 --> n4;",
        '  n4 -. "is_odd" .-> n5;',
        '  n4 -. "default" .-> n6;',
        '  n5 -. "chosen by pick" .-> n7;',
        '  n5 -. "chosen by pick" .-> n6;',
        "  n7 --> n7;",
    ]


def test_dot_shows_every_kind_of_edge_and_marks_the_start() -> None:
    assert WorkflowViz(every_kind()).to_digraph().splitlines() == [
        "digraph workflow {",
        "  rankdir=TD;",
        "  node [shape=box, style=filled, fillcolor=lightblue];",
        '  n0 [label="start (Start)", fillcolor=lightgreen];',
        '  n1 [label="checked"];',
        '  n2 [label="left"];',
        '  n3 [label="right"];',
        '  n4 [label="joined"];',
        '  n5 [label="odd"];',
        '  n6 [label="even"];',
        '  n7 [label="mail"];',
        '  j0 [shape=ellipse, fillcolor=lightgrey, label="fan-in"];',
        '  n0 -> n1 [style=dashed, label="is_big"];',
        "  n1 -> n2;",
        "  n1 -> n3;",
        "  n2 -> j0;",
        "  n3 -> j0;",
        "  j0 -> n4;",
        '  n4 -> n5 [style=dashed, label="is_odd"];',
        '  n4 -> n6 [style=dashed, label="default"];',
        '  n5 -> n7 [style=dashed, label="chosen by pick"];',
        '  n5 -> n6 [style=dashed, label="chosen by pick"];',
        "  n7 -> n7;",
        "}",
    ]


def test_text_says_every_kind_of_edge_in_words_and_where_it_starts() -> None:
    assert WorkflowViz(every_kind()).to_text().splitlines() == [
        "start: start",
        "start -> checked if is_big",
        "checked -> each of left, right",
        "all of left, right -> joined",
        "joined -> first of odd if is_odd, even otherwise",
        "odd -> those of mail, even chosen by pick",
        "mail -> mail",
    ]


def test_a_workflow_of_one_executor_can_be_drawn() -> None:
    viz = WorkflowViz(WorkflowBuilder(start_executor=Step("alone")).build())
    assert viz.to_mermaid() == 'flowchart TD\n  n0["alone (Start)"];'
    assert 'n0 [label="alone (Start)", fillcolor=lightgreen];' in viz.to_digraph()
    assert viz.to_text() == "start: alone"


ODD = [
    *(
        'say "hi"',
        "it's",
        "zwei Wörter",
        "日本語",
        "🚀",
        "a -> b",
        "a;b",
        "back\\slash",
        "two\nlines",
        "[x](y)<b>&amp;",
        "`tick`",
    ),
    *("end", "graph", "subgraph", "digraph", "node", "click", "n0", "j0", "all of a, b -> c", "#35;", "{}|"),
]


def odd_workflow() -> Workflow:
    builder = WorkflowBuilder(start_executor=Step("first"))
    return builder.add_fan_out_edges("first", [Step(id) for id in ODD]).add_fan_in_edges(ODD, Step("last")).build()


def test_odd_ids_are_harmless_in_mermaid_and_can_be_read_back() -> None:
    rows = WorkflowViz(odd_workflow()).to_mermaid().splitlines()
    labels = {m[1]: m[2] for row in rows if (m := re.fullmatch(r'  (n\d+)\["([^"]*)"\];', row))}
    assert [_from_mermaid(label) for label in labels.values()] == ["first (Start)", *ODD, "last"]
    arrows = [m.groups() for row in rows if (m := re.fullmatch(r"  (\w+) --> (\w+);", row))]
    assert len(rows) == 1 + len(labels) + 1 + len(arrows)
    assert len(arrows) == 2 * len(ODD) + 1
    assert {name for arrow in arrows for name in arrow} == {*labels, "j0"}


def test_odd_ids_are_harmless_in_dot_and_can_be_read_back() -> None:
    rows = WorkflowViz(odd_workflow()).to_digraph().splitlines()
    found = [m[1] for row in rows if (m := re.fullmatch(r'  n\d+ \[label="((?:[^"\\]|\\.)*)"(?:, .*)?\];', row))]
    assert [_from_dot(label) for label in found] == ["first (Start)", *ODD, "last"]


def test_odd_ids_are_quoted_in_text() -> None:
    text = WorkflowViz(
        WorkflowBuilder(start_executor=Step("a -> b")).add_edge("a -> b", Step("日本語")).build()
    ).to_text()
    assert text.splitlines() == ["start: 'a -> b'", "'a -> b' -> 日本語"]


def test_an_executor_named_like_a_fan_in_is_not_taken_for_it() -> None:
    builder = WorkflowBuilder(start_executor=Step("a")).add_edge("a", Step("b"))
    builder.add_fan_in_edges(["a", "b"], Step("all of a, b -> c")).add_edge("b", Step("c"))
    rows = WorkflowViz(builder.build()).to_mermaid().splitlines()
    assert [row for row in rows if "j0" in row] == ["  j0((fan-in));", "  n0 --> j0;", "  n1 --> j0;", "  j0 --> n2;"]


@pytest.mark.parametrize("condition", [lambda message: True, type("Rule", (), {"__call__": lambda self, m: True})()])
def test_a_condition_without_a_name_is_still_drawn_as_a_condition(condition: Any) -> None:
    workflow = WorkflowBuilder(start_executor=Step("a")).add_edge("a", Step("b"), condition).build()
    assert re.search(r'n0 -\. "[^"]+" \.-> n1', WorkflowViz(workflow).to_mermaid())
    assert "style=dashed" in WorkflowViz(workflow).to_digraph()


def test_a_condition_that_is_empty_as_a_container_is_still_a_condition() -> None:
    class Rules(list[str]):
        def __call__(self, message: Any) -> bool:
            return True

    workflow = WorkflowBuilder(start_executor=Step("a")).add_edge("a", Step("b"), Rules()).build()
    assert "n0 -> n1 [style=dashed" in WorkflowViz(workflow).to_digraph()
    assert "a -> b if Rules" in WorkflowViz(workflow).to_text()


def chain(*steps: Executor) -> Workflow:
    builder = WorkflowBuilder(start_executor=steps[0])
    return (builder.add_chain(list(steps)) if len(steps) > 1 else builder).build()


def house() -> Workflow:
    """Three floors; the same ids on each."""
    cellar = chain(Step("a"), Step("b"))
    ground = chain(WorkflowExecutor(cellar, "a"), Step("b"))
    return chain(Step("a"), WorkflowExecutor(ground, "b"), WorkflowExecutor(cellar, "c"))


def test_mermaid_frames_the_workflows_inside() -> None:
    assert WorkflowViz(house()).to_mermaid().splitlines() == [
        "flowchart TD",
        '  n0["a (Start)"];',
        '  subgraph n1["b"]',
        '    subgraph n1_n0["a (Start)"]',
        '      n1_n0_n0["a (Start)"];',
        '      n1_n0_n1["b"];',
        "      n1_n0_n0 --> n1_n0_n1;",
        "    end",
        '    n1_n1["b"];',
        "    n1_n0 --> n1_n1;",
        "  end",
        '  subgraph n2["c"]',
        '    n2_n0["a (Start)"];',
        '    n2_n1["b"];',
        "    n2_n0 --> n2_n1;",
        "  end",
        "  n0 --> n1;",
        "  n1 --> n2;",
    ]


def test_dot_frames_the_workflows_inside_and_arrows_end_at_the_frames() -> None:
    assert WorkflowViz(house()).to_digraph().splitlines() == [
        "digraph workflow {",
        "  rankdir=TD;",
        "  compound=true;",
        "  node [shape=box, style=filled, fillcolor=lightblue];",
        '  n0 [label="a (Start)", fillcolor=lightgreen];',
        "  subgraph cluster_n1 {",
        '    label="b";',
        "    style=dashed;",
        "    subgraph cluster_n1_n0 {",
        '      label="a (Start)";',
        "      style=dashed;",
        '      n1_n0_n0 [label="a (Start)", fillcolor=lightgreen];',
        '      n1_n0_n1 [label="b"];',
        "      n1_n0_n0 -> n1_n0_n1;",
        "    }",
        '    n1_n1 [label="b"];',
        "    n1_n0_n0 -> n1_n1 [ltail=cluster_n1_n0];",
        "  }",
        "  subgraph cluster_n2 {",
        '    label="c";',
        "    style=dashed;",
        '    n2_n0 [label="a (Start)", fillcolor=lightgreen];',
        '    n2_n1 [label="b"];',
        "    n2_n0 -> n2_n1;",
        "  }",
        "  n0 -> n1_n0_n0 [lhead=cluster_n1];",
        "  n1_n0_n0 -> n2_n0 [ltail=cluster_n1, lhead=cluster_n2];",
        "}",
    ]


def test_text_indents_the_workflows_inside() -> None:
    assert WorkflowViz(house()).to_text().splitlines() == [
        "start: a",
        "a -> b",
        "b -> c",
        "inside b:",
        "  start: a",
        "  a -> b",
        "  inside a:",
        "    start: a",
        "    a -> b",
        "inside c:",
        "  start: a",
        "  a -> b",
    ]


def test_ids_on_different_floors_never_meet() -> None:
    """An executor may be called as a number of another would be."""
    odd = chain(*[Step(id) for id in ("n0", "n1_n0", "j0", "cluster_n1")])
    below = WorkflowBuilder(start_executor=WorkflowExecutor(odd, "n1")).add_edge("n1", Step("n1_n0"))
    builder = WorkflowBuilder(start_executor=Step("n1_n0")).add_edge("n1_n0", WorkflowExecutor(below.build(), "n0"))
    workflow = builder.add_fan_in_edges(["n1_n0", "n0"], Step("n1_j0")).build()
    rows = [row.strip() for row in WorkflowViz(workflow).to_mermaid().splitlines()]
    named = [found[1] for row in rows if (found := re.match(r"(?:subgraph )?(\w+)(?:\[|\(\()", row))]
    assert len(named) == len(set(named)) == 10
    dot = WorkflowViz(workflow).to_digraph()
    assert dot.count("{") == dot.count("}")
    nodes = re.findall(r"^ *(\w+) \[(?:shape=ellipse, .*)?label=", dot, re.MULTILINE)
    frames = re.findall(r"subgraph (\w+) {", dot)
    assert len({*nodes, *frames}) == len([*nodes, *frames]) == 10


def test_a_workflow_inside_that_sends_to_itself_is_drawn_with_an_arrow_inside() -> None:
    sub = WorkflowExecutor(chain(Step("a"), Step("b")), "sub")
    viz = WorkflowViz(WorkflowBuilder(start_executor=sub).add_edge(sub, sub).build())
    assert viz.to_mermaid().splitlines()[-1] == "  n0_n0 --> n0_n0;"
    assert viz.to_digraph().splitlines()[-2] == "  n0_n0 -> n0_n0;"


def test_odd_ids_of_a_frame_are_harmless() -> None:
    for id in ODD:
        viz = WorkflowViz(chain(Step("first"), WorkflowExecutor(chain(Step("a")), id), Step("last")))
        (frame,) = [row for row in viz.to_mermaid().splitlines() if "subgraph" in row]
        found = re.fullmatch(r'  subgraph n1\["([^"]*)"\]', frame)
        assert found is not None
        assert _from_mermaid(found[1]) == id
        (label,) = re.findall(r'^    label="((?:[^"\\]|\\.)*)";$', viz.to_digraph(), re.MULTILINE)
        assert _from_dot(label) == id


def _from_mermaid(label: str) -> str:
    assert not set(label) & set('"`<>[]{}|\\\n')
    return re.sub(r"#(\d+);", lambda m: chr(int(m[1])), label)


def _from_dot(label: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], label)
