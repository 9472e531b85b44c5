"""Files from an enemy: nothing in them is run, nothing in them grows, and each is refused in a sentence."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell import DefinitionError
from stepwell.declarative.definition import Definition
from stepwell.declarative.files.reader import from_data, from_json, from_yaml
from tests.support.launching import confined

Read = Callable[[str | bytes], Definition]
HEAD = "format: 1\nname: x\nnodes:\n  - id: a\n"


def refused(text: str | bytes, read: Read = from_yaml) -> tuple[str, ...]:
    with pytest.raises(DefinitionError) as error:
        read(text)
    return error.value.problems


@pytest.mark.parametrize(
    "tagged",
    [
        "!!python/object/apply:os.system ['touch owned']",
        "!!python/object/new:subprocess.Popen [['touch', 'owned']]",
        "!!python/name:os.system ''",
        "!!python/module:os ''",
        "!<tag:yaml.org,2002:python/object/apply:os.system> ['touch owned']",
        "!custom {a: 1}",
        "!!binary aGk=",
        "!!timestamp 2024-01-01",
        "!!set {a, b}",
        "!!omap [a: 1]",
        "!!int yes",
        "!!bool 1",
        "!!map [a]",
        "!!seq {a: 1}",
    ],
)
def test_a_tag_is_refused_with_its_line_and_never_run(
    tagged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (problem,) = refused(f"{HEAD}    config:\n      x: {tagged}\n")
    assert problem.startswith("line 6: the tag ")
    assert list(tmp_path.iterdir()) == []


def test_plain_tags_say_what_would_be_meant_anyway() -> None:
    config = (
        from_yaml(f"{HEAD}    config: {{a: !!str 5, b: !!int 5, c: !!float 5.5, d: !!map {{}}, e: ! x}}")
        .nodes[0]
        .config
    )
    assert config == {"a": "5", "b": 5, "c": 5.5, "d": {}, "e": "x"}


def test_plain_words_mean_what_they_mean_in_json_and_everything_else_is_text() -> None:
    text = "{a: no, b: 012, c: 0x1F, d: 1_000, e: 12:30, f: 2024-01-01, g: .inf, h: Null, i: 1e3, j: true, k: ~, l: <<}"
    assert from_yaml(f"{HEAD}    config: {text}").nodes[0].config == {
        "a": "no",
        "b": "012",
        "c": "0x1F",
        "d": "1_000",
        "e": "12:30",
        "f": "2024-01-01",
        "g": ".inf",
        "h": "Null",
        "i": 1000.0,
        "j": True,
        "k": None,
        "l": "<<",
    }


def test_a_bomb_of_aliases_is_refused() -> None:
    bomb = "".join(f"      l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 40))
    found = refused(f"{HEAD}    config:\n      l0: &l0 [lol]\n{bomb}")
    assert found[0] == "line 7: *l0 is an alias, which is not supported: write it out"


def test_an_alias_to_itself_is_refused() -> None:
    assert refused(f"{HEAD}    config: &me {{again: *me}}") == (
        "line 5: *me is an alias, which is not supported: write it out",
    )


@pytest.mark.parametrize("read", [from_json, from_yaml])
@pytest.mark.parametrize("text", ["[" * 50_000, '{"a":' * 50_000, "[" * 200 + "]" * 200], ids=lambda text: text[:3])
def test_depth_is_bounded(text: str, read: Read) -> None:
    (problem,) = refused(text, read)
    assert "nested more than" in problem or "not JSON" in problem


def test_depth_is_bounded_in_blocks_and_in_data() -> None:
    assert "nested more than" in refused("- " * 20_000)[0]
    data: list[object] = []
    for _ in range(5000):
        data = [data]
    with pytest.raises(DefinitionError, match="nested more than"):
        from_data({"format": 1, "name": "x", "nodes": data})


@pytest.mark.parametrize("read", [from_json, from_yaml])
def test_a_text_that_is_too_long_is_refused_unread(read: Read) -> None:
    (problem,) = refused("[" * (2**20 + 1), read)
    assert "characters" in problem


@pytest.mark.parametrize(
    ("text", "read", "said"),
    [
        ('{"format": 1, "name": "x", "name": "y", "nodes": [{"id": "a"}]}', from_json, "duplicate key 'name'"),
        ("format: 1\nname: x\nname: y\nnodes: [{id: a}]", from_yaml, "line 3: duplicate key 'name'"),
        (f"{HEAD}    timeout: {'9' * 5000}", from_yaml, "too many digits"),
        (
            '{"format": 1, "name": "x", "nodes": [{"id": "a", "timeout": ' + "9" * 5000 + "}]}",
            from_json,
            "too many digits",
        ),
        ('{"format": 1, "name": "x", "nodes": [{"id": "a", "timeout": NaN}]}', from_json, "nan is not a finite number"),
        (
            '{"format": 1, "name": "x", "nodes": [{"id": "a", "timeout": -Infinity}]}',
            from_json,
            "-inf is not a finite number",
        ),
        (
            '{"format": 1, "name": "x", "nodes": [{"id": "a", "timeout": 1e999}]}',
            from_json,
            "inf is not a finite number",
        ),
        ('{"format": 1, "name": "\\ud800", "nodes": [{"id": "a"}]}', from_json, "surrogate"),
        ('{"format": 1, "name": "x", "nodes": [{"id": "a", "\\udfff": 1}]}', from_json, "surrogate"),
        (f"{HEAD}    1: x", from_yaml, "line 5: the key 1 is not a string"),
        (f"{HEAD}    ? [a, b]\n    : x", from_yaml, "line 5: the key ['a', 'b'] is not a string"),
        (f"{HEAD}    true: x", from_yaml, "the key True is not a string"),
        (f"{HEAD}---\n{HEAD}", from_yaml, "line 5: a second document"),
        (f"{HEAD}\x00", from_yaml, "line 5: not YAML"),
        (f"{HEAD}\tid: b", from_yaml, "not YAML"),
        ("a: b: c", from_yaml, "line 1: not YAML"),
        ("", from_yaml, "empty"),
        ("# nothing", from_yaml, "empty"),
        ("", from_json, "not JSON"),
        ("%YAML 9.9\n---\na", from_yaml, "not YAML"),
        (b"format: 1\nname: \xff\n", from_yaml, "line 2: not UTF-8"),
        (b"\xff\n", from_yaml, "line 1: not UTF-8"),
        (b"\n\xff", from_yaml, "line 2: not UTF-8"),
        (b"\n\n\n\xff\n\n\xff", from_json, "line 4: not UTF-8"),
        (b"\xef\xbb\xbf\n\xff", from_yaml, "line 2: not UTF-8"),
        (b"\xef\xbb\xbf{\n\n\xff", from_json, "line 3: not UTF-8"),
        (b'{"format": 1,\n "name": "\xc3("}', from_json, "line 2: not UTF-8"),
        ("[]", from_json, "the definition must be a mapping, not an empty list"),
        ("null", from_yaml, "the definition must be a mapping, not null"),
        (f"{HEAD}    <<: {{timeout: 3}}", from_yaml, "unknown key '<<'"),
        (f"{HEAD}    __class__: os", from_yaml, "unknown key '__class__'"),
    ],
)
def test_odd_texts_are_refused_in_a_sentence(text: str | bytes, read: Read, said: str) -> None:
    assert said in "\n".join(refused(text, read))


@pytest.mark.parametrize(("mark", "read"), [("\ufeff", from_yaml), ("\ufeff", from_json)])
def test_a_mark_at_the_beginning_of_a_file_does_not_matter(mark: str, read: Read) -> None:
    text = mark + '{"format": 1, "name": "x", "nodes": [{"id": "a"}]}'
    assert read(text) == read(text.encode())


@settings(max_examples=200, deadline=None)
@pytest.mark.long
@given(st.text(alphabet=st.sampled_from("ab01:-[]{}\"',&*!|>#?%@ \n\t\\ud8e"), max_size=60) | st.text(max_size=40))
def test_whatever_is_in_a_file_it_is_read_or_refused(text: str) -> None:
    for read in (from_json, from_yaml):
        with pytest.raises(DefinitionError):  # nothing so short is a definition
            read(text)


BITES = [
    "null",
    "-1",
    "[]",
    "{}",
    '""',
    "1e400",
    '"\\u0000"',
    "[[]]",
    '{"kind": "not"}',
    "true",
    "*a",
    "!x y",
    "\n",
    ",",
    "}",
]


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_good_file_with_something_bad_in_it_is_read_or_refused(data: st.DataObject) -> None:
    good = (
        '{"format": 1, "name": "x", "nodes": [{"id": "a", "retry": {"attempts": 2}, "approval": {"when": '
        '{"kind": "any_of", "conditions": [{"kind": "less", "field": "s", "value": 1}]}}}, {"id": "b"}],\n'
        '"edges": [{"from": "a", "to": ["b"], "when": {"kind": "exists", "field": "a.b"}}]}'
    )
    begin = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(begin, min(len(good), begin + 12)))
    bitten = good[:begin] + data.draw(st.sampled_from(BITES)) + good[end:]
    for read in (from_json, from_yaml):
        try:
            told = [read(bitten).name]
        except DefinitionError as error:
            told = list(error.problems)
        assert all(told)


def test_a_flood_of_problems_ends() -> None:
    found = refused(f"{HEAD}    config: [{'&a x, ' * 9}*a]\n" + "".join(f"    k{n}: 1\n" for n in range(5000)))
    assert len(found) == 101
    assert found[-1] == "there may be more problems: these are the first 100"


def test_a_monstrous_word_is_cut_short_where_it_is_named() -> None:
    assert max(map(len, refused(f"{HEAD}    {'k' * 50_000}: 1\nedges: [{{from: {'n' * 50_000}, to: a}}]"))) < 600


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("nodes: [" + "{id: a}," * 501 + "]", "500 nodes"),
        (f"nodes: [{{id: a}}]\nedges: [{{from: [{'a,' * 5000}], to: [{'a,' * 5000}]}}]", "2000 routes"),
        (
            "nodes: [{id: a, approval: {when: {kind: any_of, conditions: ["
            + "".join(f"{{kind: matches, field: a, value: '^a{n}'}}," for n in range(2001))
            + "]}}}]",
            "2000 conditions",
        ),
    ],
    ids=["nodes", "ways", "conditions"],
)
def test_a_definition_that_would_take_long_to_check_is_refused(text: str, what: str) -> None:
    (problem,) = refused(f"format: 1\nname: x\n{text}")
    assert what in problem


@pytest.mark.process
def test_a_file_of_monsters_costs_little_memory_and_time() -> None:
    """In a process that may use no more than 600 MB and half a minute of a processor."""
    program = (
        "from stepwell import DefinitionError\n"
        "from stepwell.declarative.files.reader import from_yaml, from_json\n"
        "when = '{kind: matches, field: a, value: \"%s(?:(?:[ab]{999}){999}){999}\"}'\n"
        "edges = ''.join(f'  - {{from: a, to: a, when: {when % n}}}\\n' for n in range(500))\n"
        "flat = '[' + 'a,' * 30_000 + ']'\n"
        "head = 'format: 1\\nname: x\\nnodes: [{id: a}]\\nedges:\\n'\n"
        "for text in (head + edges, flat, '{' * 90, '\"' + 'x' * 200_000):\n"
        "    try: from_yaml(text)\n"
        "    except DefinitionError as error: print(len(error.problems))\n"
    )
    command = confined([sys.executable, "-c", program], megabytes=600, seconds=30)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["101", "1", "1", "1"]
