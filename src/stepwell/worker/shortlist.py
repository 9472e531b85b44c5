"""Decides which of the ready runs a worker takes now. It does no I/O: the caller passes the time.

Several workers see the same ready runs at the same moment. If each took the oldest, all but one
would be refused. So each run is offered to one after the other, in the order of a hash of the run
and the worker that all of them compute alike: the second takes it only if it is still there a moment
later, and so on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt

from stepwell.storage.stored_values import RunEntry

FOREVER = float("inf")
# Seconds for which a run that somebody has just stored, answered or left is left to the hint for it,
# if hints assign runs: a little less than the time between two looks at the store.
HINTED = 0.9
HINTED_IN_BACKLOG = 10.0  # the same while hints keep coming: that for the run may be further back in the queue
OFFERED = 0.25  # seconds for which a run is offered to one worker before the next
# Seconds until a run whose drive ended with an error is tried again: the first wait, and the longest.
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
_MOST = 1000  # runs to ask for at once
_SPARE = 5  # runs to ask for beyond those that can be taken, for each worker; more if many slots are free


@dataclass(frozen=True, slots=True)
class _SetBack:
    number: int  # of the newest record then: a run that has moved since is looked at afresh
    until: float
    wait: float


class Shortlist:
    """What one worker remembers of runs that are ready and that it does not take, or not yet."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.peers: Mapping[str, Collection[str]] = {}  # the workers that share the runs, by workflow
        self._set_back: dict[str, _SetBack] = {}
        self._offered: dict[str, float] = {}  # since when, to those before this worker, by run
        self._turn_ended: dict[str, float] = {}

    def limit(self, free: int) -> int:
        """Return how many ready runs to ask for, so that those it does not take do not hide the others."""
        sharing = max(map(len, self.peers.values()), default=1)
        # More than are free, so that nearly always enough of them are its own: shares of a few runs differ by chance.
        wanted = free if sharing == 1 else free + _SPARE + 2 * isqrt(free)
        return min(wanted * sharing + len(self._set_back) + len(self._turn_ended), _MOST)

    def choose(
        self, ready: Sequence[RunEntry], free: int, driving: Collection[str], now: float, *, hinted: float = 0.0
    ) -> list[RunEntry]:
        """Return the runs to take now: `ready` is in the order in which they should be driven.

        Those whose turn has just ended come last. Those that are announced by a hint are left to it for
        `hinted` seconds.
        """
        self._forget_all_but({run.run_id for run in ready})
        places = {run.run_id: self._place_in_line(run) for run in ready}
        due = [(n, run) for n, run in enumerate(ready) if run.run_id not in driving and self.is_due(run, now)]
        self._begin_offers([run for _, run in due], places, free, now)
        candidates = [
            (position, run)
            for position, run in due
            if self._offered.get(run.run_id, FOREVER) + places[run.run_id] * OFFERED + hinted * _is_announced(run)
            <= now
        ]

        def order(candidate: tuple[int, RunEntry]) -> tuple[float, int, int, int]:
            position, run = candidate
            place = places[run.run_id]
            # Of those that are offered to another first, the last ones, because the other begins with the first;
            # and those where it is next in line, because others who have free slots are next in line elsewhere.
            in_turn = position if place == 0 else -position
            return self._turn_ended.get(run.run_id, 0.0), -run.metadata.priority, place, in_turn

        candidates.sort(key=order)
        return [run for _, run in candidates[:free]]

    def _begin_offers(self, due: Sequence[RunEntry], places: Mapping[str, int], free: int, now: float) -> None:
        """Begin to wait for the workers before this one, where it has a slot for the run if they do not take it.

        Not where all free slots go to runs of its own: if the wait were over when slots become free, all
        workers would take what is left at the same moment.
        """
        ours = sorted((run.metadata.priority for run in due if places[run.run_id] == 0), reverse=True)[:free]
        beaten = min(ours, default=FOREVER) if len(ours) == free else -FOREVER
        for run in due:
            if places[run.run_id] == 0 or run.metadata.priority > beaten:
                self._offered.setdefault(run.run_id, now)

    def leave(self, run: RunEntry) -> None:
        """Leave a run to others until it has moved."""
        self._set_back[run.run_id] = _SetBack(run.number, FOREVER, FOREVER)

    def set_back(self, run: RunEntry, now: float) -> float:
        """Try a run again later; return in how many seconds. Each time in a row it takes longer."""
        before = self._set_back.get(run.run_id)
        wait = _FIRST_WAIT if before is None or before.number != run.number else min(before.wait * 2, _LONGEST_WAIT)
        self._set_back[run.run_id] = _SetBack(run.number, now + wait, wait)
        return wait

    def end_turn(self, run: RunEntry, now: float) -> None:
        """Take other runs before this one: its slice is over."""
        self._turn_ended[run.run_id] = now

    def is_due(self, run: RunEntry, now: float) -> bool:
        """Return whether it may be taken, as far as this worker has tried it before."""
        held = self._set_back.get(run.run_id)
        return held is None or held.number != run.number or held.until <= now

    def _place_in_line(self, run: RunEntry) -> int:
        """Return how many workers the run is offered to before this one."""
        peers, ours = self.peers.get(run.workflow, ()), _weight(self._name, run.run_id)
        return sum(_weight(peer, run.run_id) > ours for peer in peers)

    def _forget_all_but(self, run_ids: Collection[str]) -> None:
        for memory in (self._set_back, self._offered, self._turn_ended):
            for run_id in memory.keys() - run_ids:
                del memory[run_id]


def _is_announced(run: RunEntry) -> bool:
    """Return whether a process has made the run ready just so: no timer, and no driver that died."""
    return (run.lease is None or run.lease.was_released) and (run.wake is None or run.wake <= run.at)


def _weight(name: str, run_id: str) -> bytes:
    """Rendezvous hashing: every worker computes the same, and one that comes or goes moves only its own share."""
    return hashlib.blake2b(f"{name}\0{run_id}".encode(), digest_size=8).digest()
