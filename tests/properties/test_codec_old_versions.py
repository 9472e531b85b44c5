"""Classes that changed: what any older version stored, wherever it stands, becomes what it would be today."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from stepwell.codec.classes import tag_of
from stepwell.codec.codec import register_checkpoint_type
from stepwell.errors import CodecError
from tests.properties.every_type import CODEC, EVERY_TYPE
from tests.properties.spelling import WRAPPINGS, spelled

quick = settings(max_examples=15, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
HERE = "this is where it stands"


def renamed(before: str, after: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {after if name == before else name: value for name, value in fields.items()}


UPCAST = {
    1: lambda fields: renamed("first", "second", fields),
    2: lambda fields: {name: [value] if name == "value" else value for name, value in renamed_twice(fields).items()},
}


def renamed_twice(fields: dict[str, Any]) -> dict[str, Any]:
    return renamed("second", "value", fields)


@register_checkpoint_type(version=3, upcast=UPCAST)
@dataclasses.dataclass
class Note:
    value: Any


@register_checkpoint_type(version=3, upcast=UPCAST)
class Page(BaseModel):
    value: Any


@register_checkpoint_type(version=3, upcast=UPCAST)
class Line(msgspec.Struct):
    value: Any


@register_checkpoint_type(version=3, upcast=UPCAST)
class Mark(NamedTuple):
    value: Any


@register_checkpoint_type(version=3, upcast=UPCAST)
class Fault(Exception):
    value: Any


@register_checkpoint_type(version=3, upcast={1: str.lower, 2: lambda name: f"IS_{name.upper()}"})
class Colour(Enum):
    IS_RED = 1


@register_checkpoint_type(version=3, upcast={2: lambda fields: fields["no such field"]})
@dataclasses.dataclass
class Broken:
    value: Any


def fault(value: Any) -> Fault:
    made = Fault("why")
    made.value = value
    return made


RECORDS: dict[type, Any] = {Note: Note, Page: lambda value: Page(value=value), Line: Line, Mark: Mark, Fault: fault}
NAMES = {1: "first", 2: "second", 3: "value"}


def stored(cls: type, version: Any, value: Any) -> dict[str, Any]:
    """What that version of the class stored."""
    fields = {NAMES[version]: msgspec.json.decode(CODEC.encode(value))}
    more: dict[str, Any] = {"args": ["why"]} if cls is Fault else {}
    kept: dict[str, Any] = {"$": tag_of(cls), "v": {**more, **fields}}
    if cls is Page:
        kept["set"] = [NAMES[version]]
    return kept if version == 1 else {**kept, "n": version}


def standing(data: st.DataObject, tree: Any) -> tuple[bytes, Any]:
    """A body with the tree somewhere in it, and what makes the value around it."""
    wraps = data.draw(st.lists(st.sampled_from(WRAPPINGS), max_size=3))

    def around(value: Any) -> Any:
        for wrap in wraps:
            value = wrap(value)
        return value

    body = CODEC.encode(around(HERE)).replace(msgspec.json.encode(HERE), msgspec.json.encode(tree))
    return body, around


@pytest.mark.parametrize("cls", RECORDS)
@quick
@given(st.data(), st.sampled_from([1, 2, 3]), st.sampled_from(sorted(EVERY_TYPE)))
def test_an_older_version_becomes_todays(cls: type, data: st.DataObject, version: int, inside: str) -> None:
    value = data.draw(EVERY_TYPE[inside])
    body, around = standing(data, stored(cls, version, value))
    expected = RECORDS[cls](value if version == 3 else [value])
    read = CODEC.decode(body)
    assert spelled(read) == spelled(around(expected))
    assert spelled(CODEC.decode(CODEC.encode(read))) == spelled(read)


@quick
@given(st.data(), st.sampled_from([(1, "RED"), (2, "red"), (3, "IS_RED")]))
def test_so_does_an_older_name_of_an_enum(data: st.DataObject, known: tuple[int, str]) -> None:
    version, name = known
    tree = {"$": tag_of(Colour), "v": name}
    body, around = standing(data, tree if version == 1 else {**tree, "n": version})
    assert spelled(CODEC.decode(body)) == spelled(around(Colour.IS_RED))


odd_versions: list[Any] = ["1", None, True, 1.0, [], {}]
versions = st.integers(4) | st.integers(max_value=0) | st.sampled_from(odd_versions)


@settings(quick, max_examples=40)
@given(st.data(), st.sampled_from([*RECORDS, Broken, Colour]), versions)
def test_a_version_that_cannot_be_is_refused(data: st.DataObject, cls: type, version: Any) -> None:
    body, _ = standing(data, {"$": tag_of(cls), "v": {"value": 1}, "n": version})
    with pytest.raises(CodecError):
        CODEC.decode(body)


@quick
@given(st.data(), st.sampled_from([1, 2]))
def test_a_way_to_today_that_is_missing_or_fails_is_named(data: st.DataObject, version: int) -> None:
    body, _ = standing(data, {"$": tag_of(Broken), "v": {"value": 1}, "n": version})
    with pytest.raises(CodecError, match=rf"version {version} of `Broken`|`Broken` from version {version} to"):
        CODEC.decode(body)
