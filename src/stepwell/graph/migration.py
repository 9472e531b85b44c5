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


class MigrationStep(msgspec.Struct, frozen=True):
    """One change: the method of `Migration` that declared it, and its arguments.

    `kernel.Migrator` has a method of the same name, which applies it.
    """

    method: str
    arguments: tuple[Any, ...]
    description: str  # a sentence for the history of a run, in which it is stored


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
    steps: tuple[MigrationStep, ...] = field(default=(), kw_only=True)

    def rename_executor(self, executor: str, to: str) -> Migration:
        """Rename an executor everywhere in a run: state, messages, fan-ins, open requests, sub-workflow runs."""
        return self._and(f"executor {executor!r} renamed to {to!r}", "rename_executor", executor, to)

    def remove_executor(self, executor: str) -> Migration:
        """Drop the state of an executor. Its messages and open requests, if any, need steps of their own."""
        return self._and(f"executor {executor!r} removed", "remove_executor", executor)

    def hand_over_state(
        self, executor: str, to: str, join: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
    ) -> Migration:
        """Replace the state of `to` by `join(state of executor, state of to)`, and drop that of `executor`."""
        return self._and(f"state of {executor!r} handed over to {to!r}", "hand_over_state", executor, to, join)

    def redirect_messages(self, executor: str, to: str) -> Migration:
        """Redirect messages and responses in flight from one executor to another."""
        return self._and(f"messages to {executor!r} redirected to {to!r}", "redirect_messages", executor, to)

    def drop_messages(self, executor: str) -> Migration:
        """Drop the messages in flight to an executor."""
        return self._and(f"messages to {executor!r} dropped", "drop_messages", executor)

    def change_messages(self, executor: str, change: Change) -> Migration:
        """Change each message that is in flight to an executor, or held for it by a fan-in."""
        return self._and(f"messages to {executor!r} changed", "change_messages", executor, change)

    def redirect_requests(self, executor: str, to: str) -> Migration:
        """Give the open requests of an executor, its timers and its sub-workflow runs to another.

        A timer of a name that the other one has set already is cancelled.
        """
        return self._and(f"requests of {executor!r} redirected to {to!r}", "redirect_requests", executor, to)

    def withdraw_requests(self, executor: str) -> Migration:
        """Close the open requests of an executor without a response.

        Its timers are cancelled, and its waiting sub-workflow runs abandoned.
        """
        return self._and(f"requests of {executor!r} withdrawn", "withdraw_requests", executor)

    def change_requests(
        self, executor: str, change: Change | None = None, *, response_type: object = None
    ) -> Migration:
        """Change the open requests of an executor, or the type of response that they expect."""
        return self._and(f"requests of {executor!r} changed", "change_requests", executor, change, response_type)

    def change_state(self, key: str, change: Change) -> Migration:
        """Change a value in the state of the run, if it exists."""
        return self._and(f"state[{key!r}] changed", "change_state", key, change)

    def rename_state(self, key: str, to: str) -> Migration:
        """Move a value in the state of the run to another key."""
        return self._and(f"state[{key!r}] renamed to {to!r}", "rename_state", key, to)

    def remove_state(self, key: str) -> Migration:
        """Drop a value from the state of the run."""
        return self._and(f"state[{key!r}] removed", "remove_state", key)

    def change_executor_state(self, executor: str, change: Change) -> Migration:
        """Change the saved state of an executor, a dict, if it has any."""
        return self._and(f"state of executor {executor!r} changed", "change_executor_state", executor, change)

    def change_fan_in(
        self, sources: Iterable[str], target: str, *, to_sources: Iterable[str], to_target: str | None = None
    ) -> Migration:
        """Move what a fan-in holds to another; messages of sources that the other does not have are dropped.

        If that leaves a single source, there is nothing to wait for: its messages are delivered directly.
        """
        before, after = (
            FanIn(tuple(sources), target),
            FanIn(tuple(to_sources), target if to_target is None else to_target),
        )
        return self._and(f"fan-in {before.key!r} changed to {after.key!r}", "change_fan_in", before, after)

    def _and(self, description: str, method: str, *arguments: Any) -> Migration:
        return replace(self, steps=(*self.steps, MigrationStep(method, arguments, description)))


def follow_renames(executor: str, migrations: Iterable[Migration]) -> str:
    """Return the id of an executor after these migrations."""
    for step in (step for migration in migrations for step in migration.steps):
        if step.method == "rename_executor" and step.arguments[0] == executor:
            executor = step.arguments[1]
    return executor


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
    problems += [
        f"migrations must lead from each version to the next, but version {before.version} is followed by "
        f"version {after.version}"
        for before, after in pairwise(valid)
        if after.version != before.version + 1
    ]
    if valid and version is not None and version != valid[-1].version:
        problems.append(
            f"the last migration leads to version {valid[-1].version}, but the workflow has version {version}"
        )
    return problems
