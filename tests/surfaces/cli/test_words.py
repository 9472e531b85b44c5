"""Stored things in words: pure tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.cli.views.text import format_deadline, format_span, leaf, printable, tree

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(), inner, max_size=30),
    max_leaves=60,
)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (86399, "23 h"), (86400 * 40, "40 d")],
)
def test_a_length_is_said_in_its_largest_unit(seconds: float, words: str) -> None:
    assert format_span(timedelta(seconds=seconds)) == words


def test_a_deadline_is_to_come_or_has_passed() -> None:
    assert format_deadline(None, NOON) == "-"
    assert format_deadline(NOON + timedelta(hours=2), NOON) == "in 2 h"
    assert format_deadline(NOON - timedelta(minutes=3), NOON) == "passed 3 min ago"


def test_a_tree_names_classes_and_indents_what_is_inside() -> None:
    order = {
        "$": "shop:Order",
        "v": {"lines": ["tea", {"$": "shop:Item", "v": {"name": "cup"}}], "note": "", "paid": True},
    }
    assert list(tree({"order": order, "none": None, "empty": {}})) == [
        "order: (shop:Order)",
        "  lines:",
        "    - tea",
        "    - (shop:Item)",
        "      name: cup",
        '  note: ""',
        "  paid: true",
        "none: null",
        "empty: {}",
    ]


@pytest.mark.long
@given(JSON)
def test_whatever_is_stored_is_said_in_printable_lines(value: object) -> None:
    for full in (True, False):
        assert all(line.isprintable() for line in tree(value, full=full))
        assert leaf(value, full=full).isprintable()


@given(st.text())
def test_a_printable_text_is_left_as_it_is(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
