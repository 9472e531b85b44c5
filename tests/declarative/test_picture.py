"""A definition as a Mermaid flowchart."""

import re

import pytest
from hypothesis import HealthCheck, given, settings

from stepwell.declarative.conditions.condition import equals, greater, less
from stepwell.declarative.definition import Approval, Definition, Edge, Node
from stepwell.declarative.diagram import to_mermaid
from tests.support.agent_definitions import definitions

ROW = re.compile(
    r"""\ \ (?:
        (?:start|finish)\(\((?:start|end)\)\);
      | n\d+(?:\["TEXT(?:<br/>TEXT)?"\]|\{"TEXT(?:<br/>TEXT)?"\});
      | (?:start|n\d+)\ (?:-->|--\ "TEXT"\ -->|-\.\ "TEXT"\ \.->)\ (?:finish|n\d+);
      | classDef\ \w+\ [\w:,#\ -]+;
      | class\ n\d+(?:,n\d+)*\ \w+;
    )""".replace("TEXT", r"(?:[\w\ .,:()/-]|\#\d+;)+"),
    re.VERBOSE,
)


def test_conditions_are_labels_and_routers_approvals_and_ends_can_be_told() -> None:
    definition = Definition(
        "support",
        (
            Node("triage", output_mode="handoff", default_target="answer"),
            Node("answer", approval=Approval(less("answer.confidence", 0.5)), on_error="fallback", fallback="human"),
            Node("refund", approval=Approval()),
            Node("human"),
        ),
        (
            Edge(("triage",), ("answer", "refund"), greater("score", 0.8)),
            Edge(("answer",), ("refund",), equals("kind", 'a "b"')),
            Edge(("answer",), ("triage",), default=True),
        ),
    )
    assert to_mermaid(definition) == (
        "flowchart TD\n"
        "  start((start));\n"
        '  n0{"triage"};\n'
        '  n1["answer<br/>approval if answer.confidence #60; 0.5"];\n'
        '  n2["refund<br/>approval"];\n'
        '  n3["human"];\n'
        "  finish((end));\n"
        "  start --> n0;\n"
        '  n0 -- "score #62; 0.8" --> n1;\n'
        '  n0 -- "score #62; 0.8" --> n2;\n'
        '  n1 -- "kind #61;#61; #34;a #92;#34;b#92;#34;#34;" --> n2;\n'
        '  n1 -. "otherwise" .-> n0;\n'
        '  n1 -. "if it fails" .-> n3;\n'
        "  n2 --> finish;\n"
        "  classDef router fill:#fff3bf,stroke:#b08900;\n"
        "  class n0 router;\n"
        "  classDef approval stroke-width:3px,stroke-dasharray:6 3;\n"
        "  class n1,n2 approval;"
    )


def test_a_type_is_a_label_and_a_long_condition_is_cut_short() -> None:
    definition = Definition(
        "x",
        (Node("a", output_mode="union", output_types=("Bug", "Question")), Node("b")),
        (Edge(("a",), ("b",), type="Bug"), Edge(("a",), ("b",), equals("x", "y" * 500))),
    )
    picture = to_mermaid(definition)
    assert 'n0 -- "is Bug" --> n1;' in picture
    assert max(map(len, picture.splitlines())) < 150
    assert "yyy..." in picture


def test_what_mermaid_would_misread_is_escaped() -> None:
    hostile = 'end"]; click n0 call alert() %%{init}%% </script>\n-->`'
    picture = to_mermaid(Definition("x", (Node(hostile),)))
    assert picture.count("\n") == 5
    assert re.search(r"\[\"([^\"]*)\"\]", picture)[1].startswith("end#34;#93;#59; click n0 call alert() #37;")  # type: ignore[index]


@pytest.mark.long
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(definitions())
def test_every_row_of_every_picture_is_one_that_mermaid_knows(definition: Definition) -> None:
    first, *rows = to_mermaid(definition).splitlines()
    assert first == "flowchart TD"
    assert [row for row in rows if not ROW.fullmatch(row)] == []
