"""Limits that every store shares for the ids, numbers and times by which it finds records."""

from __future__ import annotations

from collections.abc import Iterator

from stepwell.errors import CheckpointCorrupt
from stepwell.model.valid_text import is_text
from stepwell.storage.checked_reads import read_moment
from stepwell.storage.stored_values import HIGHEST_PRIORITY, LOWEST_PRIORITY, Entry

LONGEST = 10_000  # characters of an id or a tag: each is stored with every record, and in indexes
LARGEST = 2**63 - 1  # what an integer column of SQLite and PostgreSQL holds


def flaw_in_name(name: object) -> str | None:
    """Return why this is not an id or a name that a store can hold; None if it is one."""
    if not isinstance(name, str):
        return f"is a {type(name).__name__}, not a str"
    if not name:
        return "is empty"
    if len(name) > LONGEST:
        return f"has {len(name):,} characters, and the limit is {LONGEST:,}"
    return None if is_text(name) else "contains half a character (a lone surrogate) and cannot be stored"


def check_tag(name: object, value: object) -> None:
    """Raise ValueError for a tag that a run cannot have."""
    if not isinstance(name, str) or not isinstance(value, str) or not name:
        raise ValueError(f"a tag is a name and a string, not {name!r}: {value!r}")
    if len(name) > LONGEST or len(value) > LONGEST:
        raise ValueError(f"a tag has at most {LONGEST:,} characters: keep longer values in the state of the run")
    if not is_text(name) or not is_text(value):
        raise ValueError(f"the tag {name!r}: {value!r} is not valid Unicode and cannot be stored")


def check_priority(priority: object) -> None:
    """Raise ValueError for a priority that a run cannot have."""
    # type, not isinstance: True is an int
    if type(priority) is not int or not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        raise ValueError(
            f"priority must be a whole number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}, not {priority!r}"
        )


def flaw_in_count(number: object) -> str | None:
    """Return why this is not a count that a store can hold; None if it is one."""
    if type(number) is not int:  # not isinstance: True is an int
        return f"is a {type(number).__name__}, not an int"
    if number < 0:
        # Python refuses to print an integer of more than 4,300 digits.
        return f"is {number}, below 0" if number >= -LARGEST else "is below 0"
    return None if number <= LARGEST else f"is above {LARGEST}, the largest number that stores hold"


def flaw_in_time(text: object) -> str | None:
    """Return why this is not a time that a store can compare; None if it is one."""
    if not isinstance(text, str):
        return f"is a {type(text).__name__}, not a str"
    try:
        read_moment(text, "it")
    except CheckpointCorrupt:
        return f"is not a time in ISO 8601 with a time zone: {text[:40]!r}"
    return None


def entry_flaws(entry: Entry) -> Iterator[tuple[str, str]]:
    """Yield each field of an entry that no store can hold, and why."""
    checks = {
        "run_id": flaw_in_name(entry.run_id),
        "number": flaw_in_count(entry.number),
        "checkpoint_id": flaw_in_name(entry.checkpoint_id),
        "workflow": flaw_in_name(entry.workflow),
        "iteration": flaw_in_count(entry.iteration),
        "at": flaw_in_time(entry.at),
    }
    yield from ((field, why) for field, why in checks.items() if why is not None)
