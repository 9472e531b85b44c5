"""Runs in a list, as structs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stepwell.server.damaged_entries import DamagedEntry
from stepwell.storage.run_list import RunInfo


class RunItem(msgspec.Struct, frozen=True):
    """A run in a list. Times are UTC, ISO 8601."""

    run_id: str
    workflow: str
    status: str  # how it stands now: running, queued, stalled, waiting, sleeping, completed, failed, cancelled
    owner: str | None  # the process that drives it or, if it is stalled, that drove it last
    until: str | None
    since: str | None
    number: int  # of its newest commit
    checkpoint_id: str
    iteration: int
    began_at: str
    changed_at: str
    tags: Mapping[str, str]
    priority: int
    parent_run: str | None  # the run it was forked from, and from which commit
    parent_number: int | None


class RunPage(msgspec.Struct, frozen=True):
    """A page of runs, latest start first."""

    runs: list[RunItem]
    next: str | None  # the `after` of the next page
    damaged: list[DamagedEntry] = []  # entries that cannot be read, wherever they belong
    is_whole: bool = True  # False: a search for a text has looked through 100,000 runs, and `next` continues it


def run_item(run: RunInfo) -> RunItem:
    """Return a run as it is listed."""
    return msgspec.convert(run.to_dict(), RunItem)
