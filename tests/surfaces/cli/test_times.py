"""Spans and moments as they are typed."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.cli.time_parser import parse_moment, parse_span
from tests.support.command_line import Place, Say

NOW = datetime(2026, 11, 16, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30d", 30 * 86400),
        ("12h", 12 * 3600),
        ("90min", 5400),
        ("90m", 5400),
        ("45s", 45),
        ("1w", 604800),
        ("1h30min", 5400),
    ],
)
def test_a_span_is_understood(text: str, seconds: int) -> None:
    assert parse_span(text) == timedelta(seconds=seconds)
    assert parse_moment(text, NOW) == NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "d", "30", "-1d", "1 d", "1.5h", "30D", "1d ", "1d\n", "٣d", "9" * 40 + "d", "tomorrow"]
)
def test_what_is_no_span_is_none(text: str) -> None:
    assert parse_span(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-16", datetime(2026, 11, 16, tzinfo=UTC)),
        ("2026-11-16T09:30", datetime(2026, 11, 16, 9, 30, tzinfo=UTC)),
        ("2026-11-16 09:30:01", datetime(2026, 11, 16, 9, 30, 1, tzinfo=UTC)),
        ("2026-11-16T09:30+02:00", datetime(2026, 11, 16, 7, 30, tzinfo=UTC)),
        ("2026-11-16T09:30Z", datetime(2026, 11, 16, 9, 30, tzinfo=UTC)),
    ],
)
def test_a_time_is_local_unless_it_says_otherwise(text: str, expected: datetime) -> None:
    assert parse_moment(text, NOW) == expected


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()  # the fixture of all these tests sets it back


@pytest.mark.usefixtures("in_tokyo")
def test_times_are_local_and_say_so(sqlite: Place, say: Say) -> None:
    at = sqlite_time(say("--store", sqlite.address, "list", "--json"))
    for command in (["list"], ["show", "count-1"], ["events", "count-1"], ["tail", "count-1"]):
        local = say("--store", sqlite.address, *command).stdout
        assert f"{at + timedelta(hours=9):%Y-%m-%d %H:%M:%S} JST" in local, command
        utc = say("--store", sqlite.address, *command, "--utc").stdout
        assert f"{at:%Y-%m-%d %H:%M:%S} UTC" in utc, command
        assert "JST" not in utc


def sqlite_time(listed: Any) -> datetime:
    """When the older of the two runs started."""
    return datetime.fromisoformat(json.loads(listed.stdout)["runs"][1]["began_at"])


@pytest.mark.usefixtures("in_tokyo")
def test_times_are_read_as_they_are_shown(sqlite: Place, say: Say) -> None:
    at = sqlite_time(say("--store", sqlite.address, "list", "--json"))
    for zone, later in ([], 9), (["--utc"], 0):
        typed = f"{at + timedelta(hours=later, minutes=1):%Y-%m-%dT%H:%M:%S}"
        assert say("--store", sqlite.address, "list", "--since", typed, *zone).stderr == "no run matches\n"
        assert say("--store", sqlite.address, *zone, "list", "--until", typed).stderr == ""


@pytest.mark.long
@given(
    st.text()
    | st.from_regex(r"\d{1,5}-\d\d-\d\d(T\d\d:\d\d)?([+-]\d\d:\d\d)?", fullmatch=True)
    | st.from_regex(r"(\d+[dhsw])+")
)
def test_whatever_is_typed_is_a_time_in_utc_or_none(text: str) -> None:
    found = parse_moment(text, NOW)
    assert found is None or found.tzinfo is UTC
