"""Definitions as files: what is written is read again exactly, and everything that is wrong is said with its line."""

import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import stepwell.declarative
from stepwell import DefinitionError
from stepwell.declarative.conditions.condition import CallableCondition, Condition, exists, greater, not_
from stepwell.declarative.definition import Approval, Definition, Edge, Node
from stepwell.declarative.files.fields import FIELDS
from stepwell.declarative.files.reader import from_data, from_json, from_yaml
from stepwell.declarative.files.writer import to_data, to_json, to_yaml
from tests.support.agent_definitions import definitions

GOOD = """\
format: 1
name: Review
nodes:
  - id: draft
    output_key: text
    retry: {attempts: 5, backoff: linear}
  - id: review
    agent: careful reviewer
    input_key: text
    output_mode: structured
    output_types: [Verdict]
    approval:
      when: {kind: less, field: review.score, value: 0.5}
      timeout: 60
      on_timeout: deny
  - id: publish
edges:
  - from: draft
    to: review
  - from: review
    to: publish
    when:
      kind: all_of
      conditions:
        - {kind: greater, field: review.score, value: 0.8}
        - {kind: not, condition: {kind: contains, field: review.notes, value: no}}
  - {from: [review], to: [draft], default: true}
"""


def problems(text: str, read: Any = from_yaml) -> tuple[str, ...]:
    with pytest.raises(DefinitionError) as refused:
        read(text)
    return refused.value.problems


@pytest.mark.long
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(definitions())
def test_what_is_written_is_read_again_exactly(definition: Definition) -> None:
    data = to_data(definition)
    for again in (
        from_data(data),
        from_json(to_json(definition)),
        from_yaml(to_yaml(definition)),
        from_yaml(to_yaml(definition).encode()),
    ):
        assert again == definition
        assert json.dumps(to_data(again)) == json.dumps(data)  # unlike ==, that tells 1 from 1.0 and from true


def test_a_file_says_the_whole_of_a_definition() -> None:
    read = from_yaml(GOOD)
    assert [node.id for node in read.nodes] == ["draft", "review", "publish"]
    assert read.node("review").agent == "careful reviewer"
    assert [edge.describe() for edge in read.edges] == [
        "",
        'review.score > 0.8 and not (review.notes contains "no")',
        "otherwise",
    ]


def test_the_same_data_is_the_same_definition_as_json_and_as_yaml() -> None:
    read = from_yaml(GOOD)
    assert from_json(to_json(read)) == read
    assert from_yaml(to_json(read)) == read  # JSON is YAML too


def test_what_is_as_usual_is_left_out() -> None:
    assert to_data(Definition("one", (Node("a"),))) == {"format": 1, "name": "one", "nodes": [{"id": "a"}]}


@pytest.mark.parametrize("record", FIELDS, ids=lambda record: record.__name__)
def test_the_form_has_every_field_of_a_definition_once(record: type) -> None:
    assert sorted(part.attribute for part in FIELDS[record]) == sorted(field.name for field in fields(record))


def test_every_problem_is_said_at_once_with_its_line() -> None:
    wrong = GOOD
    for good, bad in (
        ("    output_key: text", "    output_kee: text"),
        ("attempts: 5", "attempts: many"),
        ("agent: careful reviewer", "agent: 7"),
        ("kind: less", "kind: lesser"),
        ("timeout: 60", "timeout: -1"),
        ("on_timeout: deny", "on_timeout: explode"),
        ("- id: publish", "- id: draft"),
        ("    to: review", "    to: somebody"),
        ("field: review.score, value: 0.8", "field: review.score, value: [0.8]"),
        ("default: true", "default: 1"),
    ):
        assert good in wrong
        wrong = wrong.replace(good, bad, 1)
    assert problems(wrong) == (
        "line 5: `nodes[0]` has an unknown key 'output_kee': did you mean `output_key`?",
        '''line 6: `nodes[0].retry.attempts` must be an integer of at least 1, not "many"''',
        "line 8: `nodes[1].agent` must be a non-empty string, not 7",
        "line 13: the condition `nodes[1].approval.when` has the unknown kind 'lesser': did you mean `less`?",
        "line 14: `nodes[1].approval.timeout` must be a number of at least 0, not -1",
        '''line 15: `nodes[1].approval.on_timeout` must be one of deny, approve, suspend, not "explode"''',
        "line 16: two agents are called 'draft'",
        "line 19: an edge names 'somebody', which is not an agent of this workflow",
        "line 21: an edge names 'publish', which is not an agent of this workflow",
        "line 25: the condition 'greater' on 'review.score' takes a number or a string, not [0.8]",
        "line 27: `edges[2].default` must be true or false, not 1",
    )


def test_the_lines_of_json_are_those_of_the_file() -> None:
    text = json.dumps(to_data(from_yaml(GOOD)), indent=1)
    wrong = text.replace('"agent"', '"agnet"').replace('"to": "publish"', '"to": "nobody"')
    lines = wrong.splitlines()
    expected = [next(n for n, line in enumerate(lines, 1) if word in line) for word in ('"agnet"', '"nobody"')]
    assert [problem.split(":")[0] for problem in problems(wrong, from_json)] == [f"line {n}" for n in expected]


def test_a_problem_names_the_file_if_the_reader_was_told_its_name() -> None:
    with pytest.raises(DefinitionError, match=r"review\.yaml, line 3: .*'nods'"):
        from_yaml("format: 1\nname: x\nnods: []\nnodes: [{id: a}]", name="review.yaml")


@pytest.mark.parametrize("read", [from_json, from_yaml])
def test_json_that_is_not_json_is_refused_with_line_and_column(read: Any) -> None:
    (problem,) = problems('{"format": 1,\n "name": "x" "nodes": []}', read)
    assert problem.startswith("line 2: not ")
    assert "column" in problem


def test_what_follows_from_another_problem_is_not_said_besides() -> None:
    assert problems("format: 1\nname: x\nnodes:\n  - {idd: a}\n  - 7\nedges:\n  - {from: a, to: b}") == (
        "line 4: `nodes[0]` has an unknown key 'idd': did you mean `id`?",
        "line 4: `nodes[0]` has no `id`: the name of the node in this workflow",
        "line 5: `nodes[1]` must be a mapping, not 7",
    )


@pytest.mark.parametrize("format", ["2", "2.0"])
def test_a_newer_format_is_refused_and_nothing_else_is_said(format: str) -> None:
    newer = GOOD.replace("format: 1", f"format: {format}").replace("nodes:", "knots:")
    (problem,) = problems(newer)
    assert problem.startswith(
        f"line 1: the definition has format {format}, but this version of Stepwell reads formats up"
    )


@pytest.mark.parametrize("format", ["0", "'1'", "true", "null", "1.5", "[1]"])
def test_a_format_that_never_was_is_refused(format: str) -> None:
    assert "`format`" in problems(GOOD.replace("format: 1", f"format: {format}"))[0]


def test_a_file_may_say_where_its_schema_is() -> None:
    assert from_yaml(f"$schema: agent-workflow.schema.json\n{GOOD}") == from_yaml(GOOD)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("{field: a, value: 1}", "has no `kind`"),
        ("{kind: greater, value: 1}", "has no `field`"),
        ("{kind: greater, field: a}", "has no `value`"),
        ("{kind: exists, field: a, value: 1}", "unknown key 'value'"),
        ("{kind: greater, field: 1, value: 1}", "must be a non-empty string"),
        ("{kind: equals, field: a, value: null}", "not_exists"),
        ("{kind: matches, field: a, value: '(a'}", "invalid pattern"),
        ("{kind: all_of, conditions: []}", "non-empty list of conditions"),
        ("{kind: all_of, conditions: {kind: exists, field: a}}", "non-empty list of conditions"),
        ("{kind: not, condition: a}", "must be a mapping"),
        ("{kind: callable, function: os.system}", "unknown kind 'callable'"),
        ("{kind: [a]}", "has the unknown kind ['a']: there are equals"),
        ("{kind: *a, field: b, value: 1}", "*a is an alias"),
        ("a > 1", "must be a mapping"),
        ("__import__('os').system('true')", "must be a mapping"),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused_with_its_line(condition: str, said: str) -> None:
    text = f"format: 1\nname: x\nnodes: [{{id: a}}, {{id: b}}]\nedges:\n  - from: a\n    to: b\n    when: {condition}\n"
    (problem,) = problems(text)
    assert problem.startswith("line 7: ")
    assert said in problem


def big(values: Any) -> bool:
    return True


def test_everything_that_cannot_be_exported_is_named() -> None:
    definition = Definition(
        "x",
        (
            Node("a", config={"model": {"client": object()}, 3: "x"}),  # type: ignore[dict-item]
            Node("b", approval=Approval(exists("c") & not_(CallableCondition(big)))),
        ),
        (Edge(("a",), ("b",), CallableCondition(lambda values: True, "it is Monday")),),
    )
    with pytest.raises(DefinitionError) as refused:
        to_json(definition)
    named = ["nodes[0].config", "nodes[0].config.model.client", "nodes[1].approval.when.conditions[1].condition"]
    said = "\n".join(refused.value.problems)
    assert [part for part in (*named, "edges[0].when", "`big`", "`it is Monday`", "3") if part not in said] == []
    assert len(refused.value.problems) == 4


def test_what_could_not_be_read_again_is_not_written() -> None:
    good = from_yaml(GOOD)
    with pytest.raises(DefinitionError, match="not an agent of this workflow"):
        to_json(replace(good, edges=(Edge(("draft",), ("nobody",)),)))
    with pytest.raises(DefinitionError, match="max_iterations"):
        to_yaml(replace(good, max_iterations="ten"))  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="format 2"):
        to_json(replace(good, version=2))
    with pytest.raises(DefinitionError, match="surrogate"):
        to_yaml(replace(good, name="\ud800"))
    with pytest.raises(DefinitionError, match="characters"):
        to_yaml(replace(good, description="x" * 2**18))
    deep: Condition = greater("a", 1)
    for _ in range(2000):
        deep = not_(deep)
    with pytest.raises(DefinitionError, match="nested more than"):
        to_json(replace(good, edges=(Edge(("draft",), ("review",), deep),)))


def test_only_one_file_knows_each_of_the_optional_packages() -> None:
    sources = Path(stepwell.declarative.__file__).parent.rglob("*.py")
    importing = {
        (path.name, word) for path in sources for word in ("yaml", "regex") if f"import {word}" in path.read_text()
    }
    assert importing == {("yaml_text.py", "yaml"), ("patterns.py", "regex")}


@pytest.mark.process
def test_json_is_read_and_written_without_any_optional_package() -> None:
    program = (
        "import sys; sys.modules['yaml'] = sys.modules['regex'] = None\n"
        "from stepwell import DefinitionError\n"
        "from stepwell.declarative.files.reader import from_json, from_yaml\n"
        "from stepwell.declarative.files.writer import to_json, to_yaml\n"
        f"definition = from_json({to_json(from_yaml(GOOD))!r})\n"
        "assert from_json(to_json(definition)) == definition\n"
        "for asked in (lambda: from_yaml('a'), lambda: to_yaml(definition)):\n"
        "    try: asked()\n"
        "    except DefinitionError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pip install stepwell[declarative]") == 2
