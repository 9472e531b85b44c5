"""What of the stored runs may go: a policy, and what it comes to. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from stepwell.errors import DefinitionError
from stepwell.model.event import WorkflowRunState
from stepwell.storage.port import Entry, RunEntry

_OVER = frozenset({WorkflowRunState.IDLE.value, WorkflowRunState.CANCELLED.value})
_STOPPED = WorkflowRunState.FAILED.value


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept of each run: its `last` checkpoints, and those that are younger than `age`; the rest may go.

    A run of which nothing is kept so goes as a whole, if it is over: done or cancelled. One that failed waits for
    somebody who resumes it, and goes only if `by_status` names FAILED. Of all other runs the newest checkpoint stays.

    `by_status` says otherwise for runs of that status; None: they are left alone.
    """

    last: int | None = None
    age: timedelta | None = None
    by_status: Mapping[WorkflowRunState | str, Keep | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.last is None and self.age is None:
            raise DefinitionError("say what to keep: Keep(last=...), Keep(age=...), or both")
        if self.last is not None and (type(self.last) is not int or self.last < 0):
            raise DefinitionError(f"last is a number of checkpoints, not {self.last!r}")
        if self.age is not None and (not isinstance(self.age, timedelta) or self.age < timedelta(0)):
            raise DefinitionError(f"age is a timedelta, not {self.age!r}")
        for status, keep in self.by_status.items():
            if status not in frozenset(WorkflowRunState):
                raise DefinitionError(f"{status!r} is no status; there are {', '.join(WorkflowRunState)}")
            if keep is not None and (not isinstance(keep, Keep) or keep.by_status):
                raise DefinitionError(f"for {status!s} say Keep(...) without by_status, or None, not {keep!r}")

    def of(self, status: str) -> Keep | None:
        """What is kept of runs of a status; None: everything."""
        return {str(named): keep for named, keep in self.by_status.items()}.get(status, self)

    def lets_go(self, status: str) -> bool:
        """Whether runs of a status may go as a whole."""
        named = {str(key) for key in self.by_status}
        return status in _OVER or (status == _STOPPED and status in named)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What must be known of a run to decide: no body is looked at."""

    run: RunEntry
    entries: tuple[Entry, ...]  # by number
    parent: tuple[str, int] | None = None  # the checkpoint it was forked from
    has_requests: bool = False  # it has open questions
    has_signals: bool = False  # something lies there for it
    damage: str = ""  # why it cannot be read; then nobody knows what it was forked from


@dataclass(frozen=True, slots=True)
class Removal:
    """What may go, and why what was looked at and stays does so."""

    waves: tuple[tuple[str, ...], ...] = ()  # whole runs; each wave only when those before it are gone
    checkpoints: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # by run, newest first
    stays: Mapping[str, str] = field(default_factory=dict)  # runs, and why; of runs inside, those they work for say it

    @property
    def runs(self) -> tuple[str, ...]:
        """Whole runs, in the order in which they should go."""
        return tuple(id for wave in self.waves for id in wave)


def plan_removal(
    policy: Keep,
    runs: Sequence[RunFacts],
    now: datetime,
    named: Collection[str] = (),
    only: Collection[str] | None = None,
) -> Removal:
    """What a policy lets go, of all runs or `only` of some.

    Never the newest checkpoint of a run that is not over; nothing of a run with open questions, unless it is `named`;
    no run that a fork which stays was begun from, and not the checkpoint it began at; nothing of a run that works for
    another one which stays; no commit with outputs of a run that stays: its result is told from them.
    """
    by_id = {facts.run.run_id: facts for facts in runs}
    stays = {
        id: why
        for id, facts in by_id.items()
        if facts.run.metadata.caller not in by_id  # else it goes with the run it works for, or not at all
        and (why := _reason_to_stay(policy, facts, now, named, only)) is not None
    }
    going, needed = _exclude_dependencies(by_id.keys() - stays.keys(), by_id)
    fork_points = find_fork_points(runs, going)
    fewer = {
        id: numbers
        for id, facts in by_id.items()
        if id not in going
        and allows_thinning(policy, facts, named, only)
        and (numbers := find_old_checkpoints(policy, facts, fork_points, now))
    }
    reasons = {id: why for id, why in {**stays, **needed}.items() if (only is None or id in only) and why}
    return Removal(_split_into_waves(going, by_id), fewer, reasons)


def plan_deletion(ids: Collection[str], runs: Sequence[RunFacts]) -> Removal:
    """These runs, whatever they are, with those that work for them; but none that a run which stays needs."""
    by_id = {facts.run.run_id: facts for facts in runs}
    going = by_id.keys() & set(ids)
    while more := {id for id, facts in by_id.items() if facts.run.metadata.caller in going} - going:
        going |= more
    going, needed = _exclude_dependencies(going, by_id)
    return Removal(_split_into_waves(going, by_id), stays={id: why for id, why in needed.items() if id in ids})


def _reason_to_stay(
    policy: Keep, facts: RunFacts, now: datetime, named: Collection[str], only: Collection[str] | None
) -> str | None:
    """In words, why a run does not go as a whole; None if it may."""
    status, id = facts.run.status, facts.run.run_id
    keep = policy.of(status)
    if facts.damage:
        return f"it cannot be read: {facts.damage}"
    if keep is None or (only is not None and id not in only):
        return "runs of its status are left alone"
    if facts.has_signals:
        return "something was sent to it that it has not taken in"
    if facts.has_requests and id not in named:
        return "it waits for an answer"
    if keep.last:
        return "its last checkpoints are kept"
    if not _is_old(keep, facts.run.at, now):
        return "it changed not long enough ago"
    # nobody is left to go on with a run whose caller is gone
    if policy.lets_go(status) or facts.run.metadata.caller is not None:
        return None
    return "it failed, and can be resumed" if status == _STOPPED else "it is not over"


def _is_old(keep: Keep, at: str, now: datetime) -> bool:
    return keep.age is None or now - datetime.fromisoformat(at) > keep.age


def _exclude_dependencies(going: Collection[str], by_id: Mapping[str, RunFacts]) -> tuple[set[str], dict[str, str]]:
    """Those that nobody who stays needs, neither a fork nor the run they work for; and for the others, who does."""
    left, needed = set(going), dict[str, str]()
    while True:
        more: dict[str, str] = {}
        for id, facts in by_id.items():
            if id not in left and facts.parent is not None and facts.parent[0] in left:
                more[facts.parent[0]] = f"run {id!r} was forked from it, and stays"
        for id in left:
            caller = by_id[id].run.metadata.caller
            if caller in by_id and caller not in left:
                more.setdefault(id, f"it works for run {caller!r}, which stays")
        if not more:
            return left, needed
        left -= more.keys()
        needed |= more


def find_fork_points(runs: Iterable[RunFacts], going: Collection[str]) -> set[tuple[str, int]]:
    """The checkpoints at which runs that stay were begun."""
    return {facts.parent for facts in runs if facts.run.run_id not in going and facts.parent is not None}


def allows_thinning(policy: Keep, facts: RunFacts, named: Collection[str], only: Collection[str] | None) -> bool:
    """Whether single checkpoints of a run that stays may go. Its entries are not looked at."""
    id = facts.run.run_id
    is_meant = (only is None or id in only) and policy.of(facts.run.status) is not None
    return (
        is_meant and not facts.damage and facts.run.metadata.caller is None and (not facts.has_requests or id in named)
    )


def find_old_checkpoints(
    policy: Keep, facts: RunFacts, fork_points: Collection[tuple[str, int]], now: datetime
) -> tuple[int, ...]:
    """The checkpoints which may go, newest first, of a run that may lose some."""
    keep, id = policy.of(facts.run.status), facts.run.run_id
    if keep is None:
        return ()
    last = max(keep.last or 0, 1)
    older = [entry for entry in facts.entries[:-last] if not entry.fleeting and not entry.outputs]
    return tuple(
        entry.number
        for entry in reversed(older)
        if _is_old(keep, entry.at, now) and (id, entry.number) not in fork_points
    )


def _split_into_waves(going: Collection[str], by_id: Mapping[str, RunFacts]) -> tuple[tuple[str, ...], ...]:
    """Forks before what they were begun from, and callers before those that work for them: whoever is left when it
    ends in the middle needs nothing that is gone."""
    left, waves = set(going), list[tuple[str, ...]]()
    while left:
        parents = {parent[0] for id in left if (parent := by_id[id].parent) is not None}
        no_parents = left - parents
        free = {id for id in no_parents if by_id[id].run.metadata.caller not in left}
        wave = free or no_parents or left  # a circle: only damage can make one
        waves.append(tuple(sorted(wave)))
        left = left - wave
    return tuple(waves)
