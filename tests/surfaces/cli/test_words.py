"""Stored things in words: pure tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.admin.phrases import format_deadline, format_span
from stepwell.model.visible_text import visible

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


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


@given(st.text())
def test_a_printable_text_is_left_as_it_is(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(visible(text)) == visible(text)
