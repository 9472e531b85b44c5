"""Migrations: how runs of an older version of a workflow become runs of a newer one.

They are declared step by step, as data and small functions. `kernel/migrate` applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import msgspec

from stepwell.graph.edges import FanIn

Change = Callable[[Any], Any]
"""Returns the new value for an old one, of which it gets a copy."""


# The steps as data, one class for each method of `Migration`, where their meaning is documented.


class RenameExecutor(msgspec.Struct, frozen=True):
    executor: str
    to: str


class RemoveExecutor(msgspec.Struct, frozen=True):
    executor: str


class HandOver(msgspec.Struct, frozen=True):
    executor: str
    to: str
    join: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]


class RedirectMessages(msgspec.Struct, frozen=True):
    executor: str
    to: str


class DropMessages(msgspec.Struct, frozen=True):
    executor: str


class ChangeMessages(msgspec.Struct, frozen=True):
    executor: str
    change: Change


class RedirectRequests(msgspec.Struct, frozen=True):
    executor: str
    to: str


class WithdrawRequests(msgspec.Struct, frozen=True):
    executor: str


class ChangeRequests(msgspec.Struct, frozen=True):
    executor: str
    change: Change | None
    response_type: object  # None: as it was


class ChangeState(msgspec.Struct, frozen=True):
    key: str
    change: Change


class RenameState(msgspec.Struct, frozen=True):
    key: str
    to: str


class RemoveState(msgspec.Struct, frozen=True):
    key: str


class ChangeExecutorState(msgspec.Struct, frozen=True):
    executor: str
    change: Change


class ChangeFanIn(msgspec.Struct, frozen=True):
    before: FanIn
    after: FanIn


Step = (
    RenameExecutor
    | RemoveExecutor
    | HandOver
    | RedirectMessages
    | DropMessages
    | ChangeMessages
    | RedirectRequests
    | WithdrawRequests
    | ChangeRequests
    | ChangeState
    | RenameState
    | RemoveState
    | ChangeExecutorState
    | ChangeFanIn
)


@dataclass(frozen=True, slots=True)
class Migration:
    """The changes to a run of the previous version that let code of `version` resume it.

    Each method returns a new migration with one more step. Steps are applied in order, each to what
    those before it left; an executor is named as it is called at that point. A step that finds nothing
    to do does nothing. A function gets a copy of the old value and returns the new one. It should
    depend on nothing else, because forks, and runs that are restored to an older checkpoint, are
    migrated again from there.
    """

    version: int
    steps: tuple[Step, ...] = field(default=(), kw_only=True)

    def rename_executor(self, executor: str, to: str) -> Migration:
        """Rename an executor everywhere in a run: state, messages, fan-ins, open requests, sub-workflow runs."""
        return self._and(RenameExecutor(executor, to))

    def remove_executor(self, executor: str) -> Migration:
        """Drop the state of an executor. Its messages and open requests, if any, need steps of their own."""
        return self._and(RemoveExecutor(executor))

    def hand_over_state(
        self, executor: str, to: str, join: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
    ) -> Migration:
        """Replace the state of `to` by `join(state of executor, state of to)`, and drop that of `executor`."""
        return self._and(HandOver(executor, to, join))

    def redirect_messages(self, executor: str, to: str) -> Migration:
        """Redirect messages and responses in flight from one executor to another."""
        return self._and(RedirectMessages(executor, to))

    def drop_messages(self, executor: str) -> Migration:
        """Drop the messages in flight to an executor."""
        return self._and(DropMessages(executor))

    def change_messages(self, executor: str, change: Change) -> Migration:
        """Change each message that is in flight to an executor, or held for it by a fan-in."""
        return self._and(ChangeMessages(executor, change))

    def redirect_requests(self, executor: str, to: str) -> Migration:
        """Give the open requests of an executor, and its sub-workflow runs, to another."""
        return self._and(RedirectRequests(executor, to))

    def withdraw_requests(self, executor: str) -> Migration:
        """Close the open requests of an executor without a response, and abandon its waiting sub-workflow runs."""
        return self._and(WithdrawRequests(executor))

    def change_requests(
        self, executor: str, change: Change | None = None, *, response_type: object = None
    ) -> Migration:
        """Change the open requests of an executor, or the type of response that they expect."""
        return self._and(ChangeRequests(executor, change, response_type))

    def change_state(self, key: str, change: Change) -> Migration:
        """Change a value in the state of the run, if it exists."""
        return self._and(ChangeState(key, change))

    def rename_state(self, key: str, to: str) -> Migration:
        """Move a value in the state of the run to another key."""
        return self._and(RenameState(key, to))

    def remove_state(self, key: str) -> Migration:
        """Drop a value from the state of the run."""
        return self._and(RemoveState(key))

    def change_executor_state(self, executor: str, change: Change) -> Migration:
        """Change the saved state of an executor, a dict, if it has any."""
        return self._and(ChangeExecutorState(executor, change))

    def change_fan_in(
        self, sources: Iterable[str], target: str, *, to_sources: Iterable[str], to_target: str | None = None
    ) -> Migration:
        """Move what a fan-in holds to another; messages of sources that the other does not have are dropped.

        If that leaves a single source, there is nothing to wait for: its messages are delivered directly.
        """
        after = FanIn(tuple(to_sources), target if to_target is None else to_target)
        return self._and(ChangeFanIn(FanIn(tuple(sources), target), after))

    def _and(self, step: Step) -> Migration:
        return replace(self, steps=(*self.steps, step))


def follow_renames(executor: str, migrations: Iterable[Migration]) -> str:
    """Return the id of an executor after these migrations."""
    for step in (step for migration in migrations for step in migration.steps):
        if isinstance(step, RenameExecutor) and step.executor == executor:
            executor = step.to
    return executor


def describe_step(step: Step) -> str:
    """Describe a step for the history of a run, in which the sentence is stored."""
    match step:
        case RenameExecutor(executor=id, to=to):
            return f"executor {id!r} renamed to {to!r}"
        case RemoveExecutor(executor=id):
            return f"executor {id!r} removed"
        case HandOver(executor=id, to=to):
            return f"state of {id!r} handed over to {to!r}"
        case RedirectMessages(executor=id, to=to):
            return f"messages to {id!r} redirected to {to!r}"
        case DropMessages(executor=id):
            return f"messages to {id!r} dropped"
        case ChangeMessages(executor=id):
            return f"messages to {id!r} changed"
        case RedirectRequests(executor=id, to=to):
            return f"requests of {id!r} redirected to {to!r}"
        case WithdrawRequests(executor=id):
            return f"requests of {id!r} withdrawn"
        case ChangeRequests(executor=id):
            return f"requests of {id!r} changed"
        case ChangeState(key=key):
            return f"state[{key!r}] changed"
        case RenameState(key=key, to=to):
            return f"state[{key!r}] renamed to {to!r}"
        case RemoveState(key=key):
            return f"state[{key!r}] removed"
        case ChangeExecutorState(executor=id):
            return f"state of executor {id!r} changed"
        case ChangeFanIn(before=before, after=after):
            return f"fan-in {before.key!r} changed to {after.key!r}"


def version_of(migrations: Sequence[Migration], version: int | None) -> int:
    """Return the version of a workflow: the declared one, that of its last migration, or 1."""
    if version is not None:
        return version
    return migrations[-1].version if migrations else 1


def find_migration_problems(migrations: Sequence[object], version: int | None) -> list[str]:
    """Return what is wrong with the migrations of a workflow, one sentence each."""
    others = [migration for migration in migrations if not isinstance(migration, Migration)]
    if others:
        return [f"migrations must be a list of Migration(...), but {others[0]!r} is not one"]
    valid = [migration for migration in migrations if isinstance(migration, Migration)]
    numbers = [*(migration.version for migration in valid), *(() if version is None else (version,))]
    wrong = [number for number in numbers if type(number) is not int or number < 1]
    if wrong:
        return [f"the version of a workflow must be an integer of 1 or more, not {wrong[0]!r}"]
    problems = [
        "a migration leads to version 2 or more, not to 1: there is nothing before it"
        for migration in valid
        if migration.version == 1
    ]
    for before, after in pairwise(valid):
        if after.version != before.version + 1:
            problems.append(
                f"migrations must lead from each version to the next, but version {before.version} is followed by "
                f"version {after.version}"
            )
    if valid and version is not None and version != valid[-1].version:
        problems.append(
            f"the last migration leads to version {valid[-1].version}, but the workflow has version {version}"
        )
    return problems
