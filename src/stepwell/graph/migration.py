"""How runs of an older version of a workflow become runs of a newer one: declared, step by step, as data and small
functions. What the steps do to a run is in `kernel/migrating`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import msgspec

from stepwell.graph.edges import FanIn

Change = Callable[[Any], Any]
"""Makes the new value from the old one, which is its own copy."""


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


class RedirectQuestions(msgspec.Struct, frozen=True):
    executor: str
    to: str


class WithdrawQuestions(msgspec.Struct, frozen=True):
    executor: str


class ChangeQuestions(msgspec.Struct, frozen=True):
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
    | RedirectQuestions
    | WithdrawQuestions
    | ChangeQuestions
    | ChangeState
    | RenameState
    | RemoveState
    | ChangeExecutorState
    | ChangeFanIn
)


@dataclass(frozen=True, slots=True)
class Migration:
    """What is done to a run of the version before, so that code of `version` can go on with it.

    Each method gives a new migration with one step more. The steps are made in this order, each on what those before
    it left; executors are named as they are called at that point. A step that finds nothing to do does nothing.
    A function gets a copy and gives the new value; it should depend on nothing else, since forks and runs that are
    moved back to an older checkpoint are migrated again from there.
    """

    version: int
    steps: tuple[Step, ...] = field(default=(), kw_only=True)

    def rename_executor(self, executor: str, to: str) -> Migration:
        """Its state, messages on their way, what fan-ins hold, open questions and runs inside are those of `to`."""
        return self._and(RenameExecutor(executor, to))

    def remove_executor(self, executor: str) -> Migration:
        """Drop the state it kept. Say besides what becomes of its messages and questions, where there may be some."""
        return self._and(RemoveExecutor(executor))

    def hand_over_state(
        self, executor: str, to: str, join: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
    ) -> Migration:
        """`join(state of executor, state of to)` is what `to` keeps from now on; `executor` keeps nothing."""
        return self._and(HandOver(executor, to, join))

    def redirect_messages(self, executor: str, to: str) -> Migration:
        """What is on its way to an executor, answers among it, goes to another."""
        return self._and(RedirectMessages(executor, to))

    def drop_messages(self, executor: str) -> Migration:
        """What is on its way to an executor is not delivered."""
        return self._and(DropMessages(executor))

    def change_messages(self, executor: str, change: Change) -> Migration:
        """What is on its way to an executor, or held for it by a fan-in, is made into something else, one by one."""
        return self._and(ChangeMessages(executor, change))

    def redirect_questions(self, executor: str, to: str) -> Migration:
        """Answers to the open questions of an executor go to another, and runs inside it are those of the other."""
        return self._and(RedirectQuestions(executor, to))

    def withdraw_questions(self, executor: str) -> Migration:
        """The open questions of an executor are asked no more, and runs inside it that wait are waited for no more."""
        return self._and(WithdrawQuestions(executor))

    def change_questions(
        self, executor: str, change: Change | None = None, *, response_type: object = None
    ) -> Migration:
        """The open questions of an executor are made into something else, or want an answer of another type."""
        return self._and(ChangeQuestions(executor, change, response_type))

    def change_state(self, key: str, change: Change) -> Migration:
        """A value in the state of the run is made into something else, if it is there."""
        return self._and(ChangeState(key, change))

    def rename_state(self, key: str, to: str) -> Migration:
        """A value in the state of the run is kept under another key."""
        return self._and(RenameState(key, to))

    def remove_state(self, key: str) -> Migration:
        """A value in the state of the run is dropped."""
        return self._and(RemoveState(key))

    def change_executor_state(self, executor: str, change: Change) -> Migration:
        """What an executor keeps, a dict, is made into something else, if it keeps anything."""
        return self._and(ChangeExecutorState(executor, change))

    def change_fan_in(
        self, sources: Iterable[str], target: str, *, to_sources: Iterable[str], to_target: str | None = None
    ) -> Migration:
        """What a fan-in holds is held by another; what came from a source that the other has not is dropped.

        If that leaves one source, there is nothing to wait for: what came from it is delivered as it is.
        """
        after = FanIn(tuple(to_sources), target if to_target is None else to_target)
        return self._and(ChangeFanIn(FanIn(tuple(sources), target), after))

    def _and(self, step: Step) -> Migration:
        return replace(self, steps=(*self.steps, step))


def follow_renames(executor: str, migrations: Iterable[Migration]) -> str:
    """What an executor is called after these migrations."""
    for step in (step for migration in migrations for step in migration.steps):
        if isinstance(step, RenameExecutor) and step.executor == executor:
            executor = step.to
    return executor


def in_words(step: Step) -> str:
    """A step as it stands in the history of a run."""
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
        case RedirectQuestions(executor=id, to=to):
            return f"questions of {id!r} redirected to {to!r}"
        case WithdrawQuestions(executor=id):
            return f"questions of {id!r} withdrawn"
        case ChangeQuestions(executor=id):
            return f"questions of {id!r} changed"
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
    """The version of a workflow that says this of itself."""
    if version is not None:
        return version
    return migrations[-1].version if migrations else 1


def wrong_migrations(migrations: Sequence[object], version: int | None) -> list[str]:
    """What is wrong with the migrations of a workflow, one sentence each."""
    strange = [migration for migration in migrations if not isinstance(migration, Migration)]
    if strange:
        return [f"migrations are a list of Migration(...), and {strange[0]!r} is none"]
    valid = [migration for migration in migrations if isinstance(migration, Migration)]
    numbers = [*(migration.version for migration in valid), *(() if version is None else (version,))]
    wrong = [number for number in numbers if type(number) is not int or number < 1]
    if wrong:
        return [f"a version of a workflow is a whole number from 1 on, not {wrong[0]!r}"]
    problems = [
        "nothing becomes version 1: a migration leads to 2 or more" for migration in valid if migration.version == 1
    ]
    for before, after in pairwise(valid):
        if after.version != before.version + 1:
            problems.append(
                f"migrations go from each version to the next: after the one to {before.version} comes {after.version}"
            )
    if valid and version is not None and version != valid[-1].version:
        problems.append(f"the last migration leads to version {valid[-1].version}, and the workflow is of {version}")
    return problems
