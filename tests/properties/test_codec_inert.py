"""Stored data is inert: whatever is read, nothing is imported, opened or executed, and no constructor is called."""

from __future__ import annotations

import dataclasses
import sys
import threading
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, model_validator

from stepwell.codec.classes import tag_of
from stepwell.codec.codec import Codec
from stepwell.errors import CodecError
from tests.properties.every_type import EVERY_TYPE, VALUES

quick = settings(max_examples=250, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
SPRUNG: list[str] = []


def spring(*given: Any, **more: Any) -> Any:
    SPRUNG.append(repr(given)[:99])
    raise AssertionError("code of a user's was called")


@dataclasses.dataclass
class Trap:
    value: Any = None
    __new__ = __init__ = __post_init__ = __setattr__ = __setstate__ = __reduce__ = spring  # type: ignore[misc]


class ModelTrap(BaseModel):
    value: Any = None
    __init__ = __setattr__ = __setstate__ = model_post_init = spring

    @model_validator(mode="before")
    @classmethod
    def look(cls, data: Any) -> Any:
        return spring(data)


class ErrorTrap(Exception):
    __new__ = __init__ = __setattr__ = __setstate__ = __reduce__ = with_traceback = spring


class TupleTrap(NamedTuple):
    value: Any = None


class SubTrap(TupleTrap):
    __new__ = __init__ = _make = _replace = spring


class EnumTrap(Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return spring(value)


TRAPS = [Trap, ModelTrap, ErrorTrap, SubTrap, EnumTrap]
CODEC = Codec(TRAPS)


class Watch:
    """Hears what Python does while something is read: an audit hook cannot be taken away, so it is switched off."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._thread: int | None = None
        sys.addaudithook(self._hear)

    def __enter__(self) -> Watch:
        self.heard, self._thread = [], threading.get_ident()
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread = None

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if self._thread == threading.get_ident() and event.startswith(_ACTS) and not _looks_for_a_zone(event, given):
            self.heard.append(f"{event} {given!r:.200}")


_ACTS = (
    "import", "exec", "compile", "open", "os.", "subprocess.", "socket.", "ctypes.", "pickle.", "marshal.", "shutil.",
    "code.", "function.", "sys.", "tempfile.", "urllib.", "sqlite3.", "glob.", "pathlib.", "builtins.",
)  # fmt: skip


def _looks_for_a_zone(event: str, given: tuple[Any, ...]) -> bool:
    """Time zones are read from the tables of the machine, or of the package that holds them, and nowhere else."""
    named = str(given[0]) if given else ""
    return event in ("open", "import", "os.listdir") and ("zoneinfo" in named or "tzdata" in named)


WATCH = Watch()
with suppress(ZoneInfoNotFoundError):
    ZoneInfo("No/Where")  # the first zone that is missing loads the package that holds the tables


def read(body: bytes) -> None:
    with WATCH, suppress(CodecError):
        CODEC.decode(body)
    assert not WATCH.heard, f"{WATCH.heard} while reading {body[:300]!r}"
    assert not SPRUNG, f"{SPRUNG} while reading {body[:300]!r}"


def test_the_watch_hears_what_is_done() -> None:
    with WATCH:
        compile("1", "<test>", "eval")
        exec("1")
    assert [one.split()[0] for one in WATCH.heard][:1] == ["compile"]
    assert any(one.startswith("exec") for one in WATCH.heard)


ATTACKS = [
    "os:system", "posix:system", "subprocess:Popen", "builtins:eval", "builtins:exec", "builtins:__import__",
    "builtins:open", "builtins:type", "builtins:object", "builtins:BaseException", "pickle:Unpickler",
    "types:FunctionType", "types:CodeType", "importlib:import_module", "ctypes:CDLL", "threading:Thread",
    "pathlib:Path", "antigravity:geohash", "this:s", "os.path:join", "stepwell.codec.codec:Codec",
    "stepwell.codec.codec:register_checkpoint_type", "stepwell.stores.files.store:FileStore", "sys:modules",
    "collections:namedtuple", "enum:Enum", "enum:EnumMeta", "dataclasses:make_dataclass", "..:x", ":", "a:b:c",
    "builtins:ValueError.__init__", "os:environ.copy", "functools:partial", "operator:attrgetter",
]  # fmt: skip
TAGS = [*ATTACKS, *map(tag_of, TRAPS), *VALUES]
MEMBERS = ("n", "by", "set", "extra", "private", "notes", "cause", "tz", "of", "maxlen", "dtype", "shape", "order")
leaves = st.one_of(
    st.none(),
    st.integers(-2, 2),
    st.text(max_size=3),
    st.sampled_from(
        ["touch /tmp/x", "ONE", "../../etc/passwd", "/etc/passwd", "Y29zCnN5c3RlbQ==", "pickle", "<f8", "O"]
    ),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["value", "args", "__class__", "__dict__", "$", "__reduce__"]), inner, max_size=3
        ),
        st.fixed_dictionaries({"$": st.sampled_from(TAGS), "v": inner}, optional=dict.fromkeys(MEMBERS, inner)),
    ),
    max_leaves=8,
)


@quick
@given(trees)
def test_no_tree_makes_anything_happen(tree: Any) -> None:
    read(msgspec.json.encode(tree))


@pytest.mark.parametrize("key", ["No/Where", "UTC", "..", "/etc/passwd", "os/path", "a.b/c", "a\0b", "a" * 5000, ""])
def test_a_zone_is_looked_for_in_its_tables_only(key: str) -> None:
    read(msgspec.json.encode({"$": "ZoneInfo", "v": key}))


fields = st.fixed_dictionaries({}, optional={"value": leaves, "args": st.lists(leaves, max_size=2), "more": leaves})


@quick
@given(st.sampled_from(TRAPS), fields | leaves, st.dictionaries(st.sampled_from(MEMBERS), leaves, max_size=2))
def test_no_class_is_asked_to_make_its_instances(trap: type, value: Any, more: dict[str, Any]) -> None:
    read(msgspec.json.encode({"$": tag_of(trap), "v": value, **more}))


def test_traps_are_really_read() -> None:
    for trap, value in ((Trap, {"value": 1}), (ModelTrap, {"value": 1}), (ErrorTrap, {"args": [1]}), (SubTrap, {})):
        assert type(CODEC.decode(msgspec.json.encode({"$": tag_of(trap), "v": value}))) is trap
    assert SPRUNG == []


@settings(quick, max_examples=120)
@given(st.sampled_from(sorted(EVERY_TYPE)), st.data())
def test_no_damage_makes_anything_happen(name: str, data: st.DataObject) -> None:
    body = bytearray(CODEC.encode([data.draw(EVERY_TYPE[name])]))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    read(bytes(body[: data.draw(st.integers(0, len(body)))]))
