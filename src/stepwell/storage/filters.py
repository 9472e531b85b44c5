"""What to look for in a store: filters are values, so that a new criterion changes no signature."""

from __future__ import annotations

import string
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from stepwell.storage.stored_values import Entry, RequestEntry, RunEntry


class RunFilter(msgspec.Struct, frozen=True):
    """Criteria for a search of runs. None matches everything; times are UTC, ISO 8601."""

    workflow: str | None = None
    status: str | None = None
    tags: Mapping[str, str] = {}  # the run has all of them
    children: bool = False  # include the runs that work for others
    parent: str | None = None  # forked from a checkpoint of this run
    ids: tuple[str, ...] | None = None  # the id is one of these
    prefix: str | None = None  # the id starts with this
    # In the id, the workflow, or a name or value of a tag; ignores the case of A to Z.
    text: str | None = None
    since: str | None = None  # began at this time or later
    until: str | None = None  # began before this time
    changed_since: str | None = None  # the newest record is from this time or later
    changed_until: str | None = None  # the newest record is from before this time
    owned: bool = False  # a driver is recorded, even if its lease is over
    due_by: str | None = None  # it has pending signals, or can be driven from this time or an earlier one on
    asleep_at: str | None = None  # it can be driven only after this time

    def matches(self, run: RunEntry) -> bool:
        return (
            self.workflow in (None, run.workflow)
            and self.status in (None, run.status)
            and self.tags.items() <= run.metadata.tags.items()
            and (self.children or run.metadata.caller is None)
            and (self.parent is None or (run.metadata.parent is not None and run.metadata.parent.run_id == self.parent))
            and (self.ids is None or run.run_id in self.ids)
            and (self.prefix is None or run.run_id.startswith(self.prefix))
            and (self.text is None or any(fold_case(self.text) in fold_case(text) for text in _searchable_texts(run)))
            and (self.since is None or run.began >= self.since)
            and (self.until is None or run.began < self.until)
            and (self.changed_since is None or run.at >= self.changed_since)
            and (self.changed_until is None or run.at < self.changed_until)
            and (run.lease is not None or not self.owned)
            and (self.due_by is None or run.signalled or (run.wake is not None and run.wake <= self.due_by))
            and (self.asleep_at is None or (run.wake is not None and run.wake > self.asleep_at))
        )

    def page(self, runs: Iterable[RunEntry], past: RunEntry | None, limit: int | None) -> list[RunEntry]:
        """Return one page of the runs that match, for a store that holds all of them in memory."""
        ordered = sorted(filter(self.matches, runs), key=_start_key, reverse=True)
        return [run for run in ordered if past is None or _start_key(run) < _start_key(past)][:limit]


def _start_key(run: RunEntry) -> tuple[str, str]:
    return run.began, run.run_id


TOP_RUNS = RunFilter()  # those that no other run called
ALL_RUNS = RunFilter(children=True)


class ReadyFilter(msgspec.Struct, frozen=True):
    """Which runs can be driven and nobody drives. Runs of sub-workflows are driven by their callers only."""

    by: str  # UTC, ISO 8601
    workflow: str | None = None  # None matches everything
    # The statuses in which a pending signal is something to do. In any other, a run waits for somebody to
    # resume it.
    resting: tuple[str, ...] = ()
    # Runs whose lease is not over, and whose driver on this machine is dead, are ready. To see that, a
    # store has to look at all runs that are driven on this machine: with False it may leave them out.
    orphans: bool = True

    def matches(self, run: RunEntry) -> bool:
        return (
            self.workflow in (None, run.workflow)
            and run.metadata.caller is None
            and (self._is_due(run) or (run.signalled and run.status in self.resting))
            and (run.lease is None or run.lease.is_over())
        )

    def page(self, runs: Iterable[RunEntry], limit: int | None) -> list[RunEntry]:
        """Return the first runs that match, for a store that holds all of them in memory."""
        return sorted(filter(self.matches, runs), key=self.sort_key)[:limit]

    def sort_key(self, run: RunEntry) -> tuple[int, str, str]:
        """By priority, then oldest first: since when the run is due or, if it has signals, since its newest record."""
        since = run.wake if run.wake is not None and self._is_due(run) else run.at
        return -run.metadata.priority, since, run.run_id

    def _is_due(self, run: RunEntry) -> bool:
        return run.wake is not None and run.wake <= self.by


class CheckpointFilter(msgspec.Struct, frozen=True):
    """Criteria for a search of checkpoints. None matches everything."""

    workflow: str | None = None
    run_id: str | None = None
    prefix: str | None = None  # the checkpoint id starts with this
    decisions: bool = False  # only those whose commits say what people decided

    def matches(self, entry: Entry) -> bool:
        return (
            self.workflow in (None, entry.workflow)
            and self.run_id in (None, entry.run_id)
            and (self.prefix is None or entry.checkpoint_id.startswith(self.prefix))
            and (entry.decisions or not self.decisions)
        )

    def page(self, entries: Iterable[Entry], before: Entry | None, limit: int | None) -> list[Entry]:
        """Return one page of the entries that match, for a store that holds all of them in memory."""
        ordered = sorted(filter(self.matches, entries), key=self._sort_key)
        if before is not None:  # it may be gone: its place in the order remains
            ordered = ordered[: bisect_left(ordered, self._sort_key(before), key=self._sort_key)]
        return ordered if limit is None else ordered[max(0, len(ordered) - limit) :]

    def _sort_key(self, entry: Entry) -> tuple[str, str, int]:
        # In one run the numbers count: times may be those of another clock.
        return ("", "", entry.number) if self.run_id is not None else (entry.at, entry.run_id, entry.number)


ANY_CHECKPOINT = CheckpointFilter()


class RequestFilter(msgspec.Struct, frozen=True):
    """Criteria for a search of open requests. None matches everything; times are UTC, ISO 8601."""

    workflow: str | None = None
    run_id: str | None = None
    request_id: str | None = None
    asked_until: str | None = None  # asked at this time or before
    due_until: str | None = None  # with a deadline at this time or before; listed by deadline
    # Include those of runs that are completed, failed or cancelled and that nobody drives.
    stopped: bool = False

    def matches(self, request: RequestEntry) -> bool:
        return (
            self.workflow in (None, request.workflow)
            and self.run_id in (None, request.run_id)
            and self.request_id in (None, request.request_id)
            and (self.asked_until is None or request.at <= self.asked_until)
            and (self.due_until is None or (request.deadline is not None and request.deadline <= self.due_until))
        )

    def page(
        self, requests: Iterable[RequestEntry], past: RequestEntry | None, limit: int | None
    ) -> list[RequestEntry]:
        """Return one page of the requests that match, for a store that holds all of them in memory.

        Requests of one run must be passed in the order in which the run asked them.
        """
        # The sort is stable: requests that a run asked at the same moment stay in the order of asking.
        ordered = sorted(filter(self.matches, requests), key=self._sort_key)
        if past is not None:
            last = self._sort_key(past)
            ordered = [request for request in ordered if self._sort_key(request) >= last]
            # If `past` was closed meanwhile, its neighbours with the same key come again: better
            # twice than never.
            ids = [(request.run_id, request.request_id) for request in ordered]
            if (past.run_id, past.request_id) in ids:
                ordered = ordered[ids.index((past.run_id, past.request_id)) + 1 :]
        return ordered[:limit]

    def _sort_key(self, request: RequestEntry) -> tuple[str, str]:
        return (request.at if self.due_until is None else request.deadline or "", request.run_id)


ANY_REQUEST = RequestFilter()

# What the newest record of a run says if there is nothing to do, unless somebody resumes it.
STOPPED = ("IDLE", "FAILED", "CANCELLED")


def shows_requests(status: str, *, has_owner: bool) -> bool:
    """Return whether the open requests of a run are listed: nobody answers a run that has stopped."""
    return has_owner or status not in STOPPED


def _searchable_texts(run: RunEntry) -> Iterator[str]:
    yield from (run.run_id, run.workflow)
    for tag in run.metadata.tags.items():
        yield from tag


def check_limit(limit: int | None) -> None:
    """Raise ValueError unless it is a length of a page. A page of none is one: a driver may have no slot left."""
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise ValueError(f"limit must be a whole number, 0 or more, not {limit!r}")


def check_after(after: object) -> int:
    """Return the number of a commit, or -1 for all events. Raises TypeError for anything else."""
    if not isinstance(after, int) or isinstance(after, bool):
        raise TypeError(f"after must be the number of a commit, or -1 for all events, not {after!r}")
    return after


_LOWER_CASE = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def fold_case(text: str) -> str:
    """Return a string as searches compare it: A to Z become a to z, and nothing else changes.

    Only ASCII, because SQLite's `lower` and PostgreSQL's in the C collation fold no more: every
    store must find the same runs.
    """
    return text.translate(_LOWER_CASE)


def prefix_end(prefix: str) -> str | None:
    """Return the first text after all those that start with `prefix`; None if there is none.

    Texts are compared by code points. With this bound, a search by prefix is a range query that an
    index can answer.
    """
    for end in range(len(prefix), 0, -1):
        following = ord(prefix[end - 1]) + 1
        if following <= sys.maxunicode:
            # U+D800 to U+DFFF are surrogates, which UTF-8 cannot encode: skip them.
            return prefix[: end - 1] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)
    return None
