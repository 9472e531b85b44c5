"""What is given as `--input`, and what becomes of it."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any

import pytest

from stepwell.cli.failures import CommandFailed
from stepwell.cli.input_text import read_input
from stepwell.codec.codec import Codec
from stepwell.storage.response_types import NotOfType
from stepwell.workflows.typed_input import read_any_input, read_typed_input


@dataclass
class Line:
    item: str
    price: int


@dataclass
class Order:
    lines: list[Line]


@dataclass
class Offer:
    lines: list[Line]


class Colour(Enum):
    RED = "red"


CODEC = Codec([Line, Order, Offer])
LINES = '[{"item": "cup", "price": 3}]'


@pytest.mark.parametrize(
    ("text", "types", "made"),
    [
        ("kelp\n", [str], "kelp\n"),
        ("5", [str], "5"),
        ('"kelp"', [str], '"kelp"'),
        ("5", [int], 5),
        ("5", [int, str], 5),
        ("five", [int, str], "five"),
        ("five", [Any], "five"),
        ("[1]", [Any], [1]),
        ("[1]", [object], [1]),
        ("null", [int | None], None),
        ("red", [Colour], Colour.RED),
        ('"red"', [Colour], Colour.RED),
        (LINES, [list[Line]], [Line("cup", 3)]),
        (f'{{"lines": {LINES}}}', [str, Order, Offer], Order([Line("cup", 3)])),
        (f'{{"$": "{__name__}:Offer", "v": {{"lines": []}}}}', [Order, Offer], Offer([])),
        ('{"rows": 1}', [str, Order], '{"rows": 1}'),
        (None, [str, NoneType], None),
        (None, [Any], None),
    ],
)
def test_the_input_is_made_into_what_is_taken(text: str | None, types: list[object], made: object) -> None:
    found = read_typed_input(text, types, CODEC)
    assert (type(found), found) == (type(made), made)


@pytest.mark.parametrize(
    ("text", "types", "said"),
    [
        ('{"lines": [{"item": "cup", "price": "x"}]}', [Order], "at `$.lines[0].price`"),
        ('{"lines": [{"item": "cup"}]}', [Order], "missing required field `price` - at `$.lines[0]`"),
        ('{"rows": []}', [Order], "it has no 'rows', only 'lines'"),
        ('{"lines": ', [Order], "it is not JSON (Input data was truncated)"),
        ('{"$": "elsewhere:Tea", "v": {}}', [Order], "unknown type `elsewhere:Tea`"),
        ("[" * 100_000, [Order], "nested too deeply"),
        (None, [Order], "the workflow needs an input of type Order"),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(text: str | None, types: list[object], said: str) -> None:
    with pytest.raises(NotOfType) as refused:
        read_typed_input(text, types, CODEC)
    assert said in str(refused.value)


def test_a_text_a_file_and_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "input.txt").write_bytes(b"\xef\xbb\xbftea \xc3\xa0 la carte\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from stdin")))
    assert read_input("tea") == "tea"
    assert read_input(f"@{tmp_path / 'input.txt'}") == "tea à la carte\n"
    assert read_input("@-") == "from stdin"
    assert read_input("@@home") == "@home"


@pytest.mark.parametrize("name", ["nowhere.txt", ".", "bytes.bin", "", "a\0b", "\ud800"])
def test_a_file_that_is_none_is_wrong_usage(tmp_path: Path, name: str) -> None:
    (tmp_path / "bytes.bin").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(CommandFailed) as refused:
        read_input(f"@{name}")
    assert refused.value.code == 2


@pytest.mark.parametrize(
    ("text", "made"),
    [("kelp", "kelp"), ("5", "5"), ('{"a": 1}', {"a": 1}), (" [1]", [1]), ("{oops", "{oops"), (None, None)],
)
def test_agents_by_name_are_given_objects_and_texts(text: str | None, made: object) -> None:
    assert read_any_input(text) == made
