"""Texts made to attack: as they are, and as changes to a text that was sound."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

DEEP = b"[" * 100_000 + b"]" * 100_000
LARGE = 10_000_000  # bytes

CORPUS = {
    "nothing": b"",
    "an open brace": b"{",
    "null": b"null",
    "a list": b"[]",
    "a number": b"1",
    "an empty object": b"{}",
    "not UTF-8": b'{"format":1,"kind":"\xff\xfe"}',
    "NULs": b"\0" * 100,
    "a pickle": b"\x80\x04\x95\x1c\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "100,000 levels": DEEP,
    "100,000 levels without an end": b'{"a":' * 100_000,
    "100,000 levels in a field": b'{"format":1,"metadata":{"a":' + DEEP + b"}}",
    "900 levels in a field": b'{"format":1,"metadata":{"a":' + b"[" * 900 + b"]" * 900 + b"}}",
    "a format of 5,000 digits": b'{"format":' + b"9" * 5000 + b"}",
    "a format beyond all": b'{"format":1e999}',
    "a format of tomorrow": b'{"format":99}',
    "a format below 0": b'{"format":-1}',
    "a format twice": b'{"format":1,"format":2}',
    "10 MB of text": b'{"format":1,"kind":"' + b"x" * LARGE + b'"}',
    "10 MB of braces": b"{" * LARGE,
    "10 MB of items": b'{"format":1,"warnings":[' + b"1," * (LARGE // 2) + b"1]}",
}

HOSTILE: list[Any] = [
    *(None, True, 0, -1, 2**63, 2**64, -(2**70), 1.5, 1e308, "", "x", "\0", "../../x", "é" * 50, "x" * 5000),
    *([], {}, [[]], [None], ["x"], {"": ""}, {"x": None}, {"x": {}}, {"x": "y"}),
    *({"$": "x"}, {"$": 1}, {"$": "os:system", "v": "true"}, {"$": "int", "v": "9" * 6000}, {"$": "tuple", "v": 5}),
    *("2026-01-01", "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00", "2026-01-01T00:00:00+23:59", "1.2.3", "9.9"),
]


def places_in(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a JSON tree."""
    if at:
        yield at
    for step in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield from places_in(tree[step], (*at, step))


def _at(tree: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        tree = tree[step]
    return tree


def _copied(tree: Any) -> Any:
    return json.loads(json.dumps(tree))


@st.composite
def changed(draw: st.DrawFn, tree: Any) -> bytes:
    """The text of a tree with one to three of its parts changed."""
    tree = _copied(tree)
    for _ in range(draw(st.integers(1, 3))):
        places = list(places_in(tree))
        if not places:
            break
        place = draw(st.sampled_from(places))
        above, step = _at(tree, place[:-1]), place[-1]
        match draw(st.sampled_from(["hostile", "gone", "again", "another", "cut", "counted"])):
            case "gone":
                del above[step]
            case "again" if isinstance(above, list):
                above.append(above[step])
            case "another":
                above[step] = _copied(_at(tree, draw(st.sampled_from(places))))
            case "cut" if isinstance(above[step], str):
                above[step] = above[step][: draw(st.integers(0, len(above[step])))] + draw(st.sampled_from(["", "~9"]))
            case "counted" if isinstance(above[step], int):
                above[step] += draw(st.sampled_from([-1, 1, 2**31, 2**63, -(2**63)]))
            case _:
                above[step] = _copied(draw(st.sampled_from(HOSTILE)))
    return json.dumps(tree, separators=(",", ":")).encode()


@st.composite
def flipped(draw: st.DrawFn, whole: bytes) -> bytes:
    """A text with a few bytes changed, or cut off."""
    damaged = bytearray(whole)
    for place in draw(st.sets(st.integers(0, len(whole) - 1), min_size=1, max_size=3)):
        damaged[place] ^= draw(st.integers(1, 255))
    return bytes(damaged[: draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole) - 1)))])
