"""Decides which runs and checkpoints a retention policy removes, and why the others stay. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from stepwell.errors import DefinitionError
from stepwell.model.event import WorkflowRunState
from stepwell.storage.stored_values import Entry, RunEntry

_OVER = frozenset({WorkflowRunState.IDLE.value, WorkflowRunState.CANCELLED.value})
_STOPPED = WorkflowRunState.FAILED.value


@dataclass(frozen=True, slots=True)
class Keep:
    """A retention policy: of each run, keep the `last` checkpoints and those younger than `age`.

    Remove the rest.

    A completed or cancelled run of which nothing is kept is deleted. A failed run can be resumed,
    so it is deleted only if `by_status` contains FAILED. Every other run keeps its newest
    checkpoint.

    `by_status` overrides the policy for runs of a status; None keeps everything of them.
    """

    last: int | None = None
    age: timedelta | None = None
    by_status: Mapping[WorkflowRunState | str, Keep | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.last is None and self.age is None:
            raise DefinitionError("Keep needs a limit: Keep(last=...), Keep(age=...), or both")
        if self.last is not None and (type(self.last) is not int or self.last < 0):
            raise DefinitionError(f"Keep.last must be a number of checkpoints, not {self.last!r}")
        if self.age is not None and (not isinstance(self.age, timedelta) or self.age < timedelta(0)):
            raise DefinitionError(f"Keep.age must be a timedelta that is not negative, not {self.age!r}")
        for status, keep in self.by_status.items():
            if status not in frozenset(WorkflowRunState):
                raise DefinitionError(f"{status!r} is not a status; choose one of {', '.join(WorkflowRunState)}")
            if keep is not None and (not isinstance(keep, Keep) or keep.by_status):
                raise DefinitionError(
                    f"by_status[{status!s}] must be Keep(...) without by_status, or None, not {keep!r}"
                )

    def of(self, status: str) -> Keep | None:
        """Return the policy for runs of a status; None if everything of them is kept."""
        return {str(key): keep for key, keep in self.by_status.items()}.get(status, self)

    def may_delete(self, status: str) -> bool:
        """Return whether runs of a status may be deleted as a whole."""
        return status in _OVER or (status == _STOPPED and status in {str(key) for key in self.by_status})


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts about a run that a decision needs. None of them requires its state."""

    run: RunEntry
    entries: tuple[Entry, ...]  # by number
    parent: tuple[str, int] | None = None  # run and number of the checkpoint it was forked from
    has_requests: bool = False
    has_signals: bool = False  # signals that are not applied yet
    damage: str = ""  # why it cannot be read; its parent is unknown then


@dataclass(frozen=True, slots=True)
class Removal:
    """What to remove, and why the other runs that were considered stay."""

    waves: tuple[tuple[str, ...], ...] = ()  # complete runs; a wave starts only when those before it are gone
    checkpoints: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # by run, newest first
    stays: Mapping[str, str] = field(default_factory=dict)  # reasons by run; for a sub-workflow's run see its caller

    @property
    def runs(self) -> tuple[str, ...]:
        """Return the runs to delete, in the order in which to delete them."""
        return tuple(id for wave in self.waves for id in wave)


def plan_removal(
    policy: Keep,
    runs: Sequence[RunFacts],
    now: datetime,
    named: Collection[str] = (),
    only: Collection[str] | None = None,
) -> Removal:
    """Return what a policy removes, of all runs or `only` of some.

    These always stay: the newest checkpoint of a run that has not ended; a run with open requests,
    unless it is `named`; a run and its checkpoint that a remaining fork started from; the
    sub-workflow runs of a remaining run; and commits with outputs of a remaining run, because its
    result is read from them.
    """
    by_id = {facts.run.run_id: facts for facts in runs}
    stays = {
        id: why
        for id, facts in by_id.items()
        # The run of a sub-workflow is deleted together with its caller, or not at all.
        if facts.run.metadata.caller not in by_id
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
    """Return the removal of these runs, except those that a remaining run needs.

    The runs of their sub-workflows are removed with them.
    """
    by_id = {facts.run.run_id: facts for facts in runs}
    going = by_id.keys() & set(ids)
    while more := {id for id, facts in by_id.items() if facts.run.metadata.caller in going} - going:
        going |= more
    going, needed = _exclude_dependencies(going, by_id)
    return Removal(_split_into_waves(going, by_id), stays={id: why for id, why in needed.items() if id in ids})


def _reason_to_stay(
    policy: Keep, facts: RunFacts, now: datetime, named: Collection[str], only: Collection[str] | None
) -> str | None:
    """Return why a run may not be deleted as a whole, as a sentence; None if it may."""
    status, id = facts.run.status, facts.run.run_id
    keep = policy.of(status)
    if facts.damage:
        return f"it cannot be read: {facts.damage}"
    if keep is None or (only is not None and id not in only):
        return "the policy keeps runs of its status"
    # A caller that is set here is not stored any more: no process will ever continue this run.
    may_end = policy.may_delete(status) or facts.run.metadata.caller is not None
    reasons = {
        "it has signals that are not applied yet": facts.has_signals,
        "it waits for an answer": facts.has_requests and id not in named,
        "its last checkpoints are kept": bool(keep.last),
        "it changed too recently": not _is_old(keep, facts.run.at, now),
        "it failed and can be resumed": not may_end and status == _STOPPED,
        "it has not ended": not may_end,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _is_old(keep: Keep, at: str, now: datetime) -> bool:
    return keep.age is None or now - datetime.fromisoformat(at) > keep.age


def _exclude_dependencies(going: Collection[str], by_id: Mapping[str, RunFacts]) -> tuple[set[str], dict[str, str]]:
    """Return the runs that no remaining run needs, neither a fork nor a caller.

    And for the others, who needs them.
    """
    # Keeping one run may make another necessary, so this repeats until nothing changes.
    left, needed = set(going), dict[str, str]()
    while True:
        more: dict[str, str] = {}
        for id, facts in by_id.items():
            if id not in left and facts.parent is not None and facts.parent[0] in left:
                more[facts.parent[0]] = f"run {id!r} was forked from it, and stays"
        for id in left:
            caller = by_id[id].run.metadata.caller
            if caller in by_id and caller not in left:
                more.setdefault(id, f"it is a sub-workflow run of {caller!r}, which stays")
        if not more:
            return left, needed
        left -= more.keys()
        needed |= more


def find_fork_points(runs: Iterable[RunFacts], going: Collection[str]) -> set[tuple[str, int]]:
    """Return the checkpoints from which remaining runs were forked."""
    return {facts.parent for facts in runs if facts.run.run_id not in going and facts.parent is not None}


def allows_thinning(policy: Keep, facts: RunFacts, named: Collection[str], only: Collection[str] | None) -> bool:
    """Return whether single checkpoints of a remaining run may be removed.

    Does not need its entries.
    """
    id = facts.run.run_id
    is_covered = (only is None or id in only) and policy.of(facts.run.status) is not None
    # Checkpoints of a caller refer to those of its sub-workflow runs, so the latter stay complete.
    return (
        is_covered
        and not facts.damage
        and facts.run.metadata.caller is None
        and (not facts.has_requests or id in named)
    )


def find_old_checkpoints(
    policy: Keep, facts: RunFacts, fork_points: Collection[tuple[str, int]], now: datetime
) -> tuple[int, ...]:
    """Return the checkpoints that the policy removes from a remaining run, newest first."""
    keep, id = policy.of(facts.run.status), facts.run.run_id
    if keep is None:
        return ()
    # The newest checkpoint always stays: without it there would be no run.
    last = max(keep.last or 0, 1)
    older = [entry for entry in facts.entries[:-last] if not entry.latest_only and not entry.outputs]
    return tuple(
        entry.number
        for entry in reversed(older)
        if _is_old(keep, entry.at, now) and (id, entry.number) not in fork_points
    )


def _split_into_waves(going: Collection[str], by_id: Mapping[str, RunFacts]) -> tuple[tuple[str, ...], ...]:
    """Split runs into waves: forks before their parents, callers before their sub-workflow runs.

    If the deletion stops half-way, no remaining run needs a deleted one.
    """
    left, waves = set(going), list[tuple[str, ...]]()
    while left:
        parents = {parent[0] for id in left if (parent := by_id[id].parent) is not None}
        no_parents = left - parents
        free = {id for id in no_parents if by_id[id].run.metadata.caller not in left}
        # A cycle leaves nothing free. Only damage can make one, and it must not stop the deletion.
        wave = free or no_parents or left
        waves.append(tuple(sorted(wave)))
        left = left - wave
    return tuple(waves)
