"""The facts about a run, for the top and the end of a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepwell.admin.overview.set_timers import timers_of
from stepwell.admin.overview.timeline import Timeline
from stepwell.admin.phrases import format_utc, pluralise
from stepwell.admin.questions import question_of
from stepwell.admin.report.history import History
from stepwell.admin.values import open_value
from stepwell.storage import clock
from stepwell.viz.durations import format_seconds
from stepwell.viz.markup import shorten

_LONGEST = 300  # characters of a value in a sentence


def headline_of(stored: Any) -> str:
    """Return what a stored request asks, or of what class it is, if it is not a question in words."""
    question = question_of(stored)
    return shorten(open_value(stored).class_name if question[:1] in "{[" else question, _LONGEST) or "a value"


def times_of(history: History, timeline: Timeline | None) -> Iterator[str]:
    """Yield when the run started, how long it worked, and what of it is shown."""
    head, at, first = history.run_copy.at, history.at, history.first[0].commit
    if first.number == 0:
        yield f"Started {format_utc(first.stamp.at)}{f' by {first.by}' if first.by else ''}"
    if timeline is not None:
        whole = (timeline.end - timeline.start).total_seconds()
        yield f"worked {format_seconds(timeline.working)} of {format_seconds(whole)}"
    # The sentence above may say how long ago something was, and a report is read later.
    yield f"written {format_utc(clock.stamp())}"
    if at.number != head.number:
        yield f"shown as of commit {at.number}, {format_utc(at.stamp.at)}"


def facts_of(history: History) -> Iterator[tuple[str, str]]:
    """Yield names and values; what does not apply is left out."""
    head, at, header = history.run_copy.at, history.at, history.at.header
    if history.run.since:
        yield f"{history.run.standing.capitalize()} since", format_utc(history.run.since)
    yield "Last commit", f"number {head.number}, {format_utc(head.stamp.at)}"
    yield from ((f"Tag {key}", value) for key, value in header.tags.items())
    if header.parent_id is not None:
        where = f"commit {header.parent_number} of run {header.parent_run}" if header.parent_run else header.parent_id
        yield "Forked from", where
    if header.caller:
        yield "Sub-workflow of", f"run {header.caller}"
    if header.epoch:
        yield "Moved back", pluralise(header.epoch, "time")
    for child in at.children.values():
        yield "Sub-workflow run", f"{child.run_id} of {child.executor}, waiting at its commit {child.number}"
    yield from (("Timer", f"{words}, due {format_utc(due)}") for words, due in timers_of(at))
    if history.run_copy.signals:
        yield "Signals", f"{pluralise(len(history.run_copy.signals), 'signal')} not applied yet"
    yield "Checkpoint", at.stamp.checkpoint_id
