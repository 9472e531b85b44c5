"""Loads what a report shows of a run, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from msgspec.structs import replace

from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.diffs.json_diff import compare, lines_of
from stepwell.admin.overview.turns import drop_turn_state
from stepwell.admin.transfer.run_copy import RunCopy, apply_record, load_run_copy, read_records
from stepwell.declarative.stored_run import is_of_named_agents
from stepwell.errors import CheckpointMissing
from stepwell.kernel.lifecycle import drop_undone
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind
from stepwell.model.message import Output, RoutedMessage
from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.port import Store
from stepwell.storage.run_list import RunInfo, run_info

_OUTPUTS = 20  # of the whole run: the last ones are kept


@dataclass(frozen=True, slots=True)
class CommitRow:
    """A commit, and how it changed the state as lines; None if the commit before it is not stored any more."""

    commit: Commit
    changes: tuple[str, ...] | None
    more_changes: int = 0


@dataclass(frozen=True, slots=True)
class RunOutput:
    """An output, and the executor that yielded it."""

    executor: str
    output: Output


@dataclass(frozen=True, slots=True)
class History:
    """The part of a run's history that a report shows."""

    run: RunInfo  # how it stands
    run_copy: RunCopy  # of its head
    at: Checkpoint  # the one selected
    shown: tuple[Commit, ...]  # those that the selected checkpoint builds on, without their payloads
    inputs: tuple[RoutedMessage, ...]  # that the run started with, if they are still stored
    outputs: tuple[RunOutput, ...]
    outputs_left_out: int
    commits: tuple[Commit, ...]  # all of them, without their payloads
    first: list[CommitRow]  # at least the first commit that is stored
    left_out: int
    last: list[CommitRow]

    @property
    def latest(self) -> Commit:
        """The newest commit."""
        return (self.last or self.first)[-1].commit


async def load_history(store: Store, run_id: str, number: int | None, *, rows: int, changes: int) -> History:
    """Return the history of a run up to its head, with at most `rows` commits.

    Those in the middle are left out.

    Raises CheckpointMissing if the run, or that checkpoint of it, does not exist.
    """
    run_copy = await load_run_copy(store, run_id)
    wanted = run_copy.at.number if number is None else number
    first, last = list[CommitRow](), list[CommitRow]()
    # Progress and times need every commit, so they are kept without their payloads.
    light: list[Commit] = []
    inputs: tuple[RoutedMessage, ...] = ()
    outputs, yielded = deque[RunOutput](maxlen=_OUTPUTS), 0
    chosen: Checkpoint | None = None
    total = len([e for e in await store.checkpoints(CheckpointFilter(run_id=run_id)) if e.number <= run_copy.at.number])
    # The end of a run is usually what somebody looks for, so it gets three quarters of the rows.
    head, tail = rows // 4, rows - rows // 4
    async for before, commit, after in _walk(store, run_copy):
        if commit.kind is CommitKind.INPUT:
            inputs = commit.messages or ()
        if commit.number == wanted:
            chosen = after
        if commit.number <= wanted:
            new = [RunOutput(done.executor, output) for done in commit.done for output in done.outputs]
            outputs.extend(new)
            yielded += len(new)
        if total <= rows or len(light) < head:
            first.append(_make_row(before, commit, after, changes))
        elif len(light) >= total - tail:
            last.append(_make_row(before, commit, after, changes))
        light.append(_strip(commit))
    if chosen is None:
        raise CheckpointMissing(f"commit {wanted} of run {run_id!r} does not exist or is not stored any more")
    entry = await store.run(run_id)
    if entry is None:
        raise CheckpointMissing(f"run {run_id!r} was deleted while it was read")
    shown = drop_undone([commit for commit in light if commit.number <= wanted])
    return History(
        run=run_info(entry),
        run_copy=run_copy,
        at=chosen,
        shown=tuple(shown),
        inputs=inputs,
        outputs=tuple(outputs),
        outputs_left_out=yielded - len(outputs),
        commits=tuple(light),
        first=first,
        left_out=max(0, total - rows),
        last=last,
    )


async def _walk(store: Store, run_copy: RunCopy) -> AsyncIterator[tuple[Checkpoint | None, Commit, Checkpoint | None]]:
    """Yield each commit with the checkpoints before and after it; None where they are unknown."""
    before: Checkpoint | None = None
    async for page in read_records(store, run_copy):
        for record in page:
            after, commit, _ = apply_record(before, record)
            follows = before is not None and before.number == commit.number - 1
            yield before if follows else None, commit, after
            before = after


def _make_row(before: Checkpoint | None, commit: Commit, after: Checkpoint | None, most: int) -> CommitRow:
    if before is None or after is None:
        return CommitRow(commit, None)
    lines = lines_of(compare(_state_of(before), _state_of(after)))
    return CommitRow(commit, tuple(lines[:most]), max(0, len(lines) - most))


def _state_of(checkpoint: Checkpoint) -> dict[str, object]:
    # Messages, requests and outputs are shown by themselves, and so are conversations. The state
    # of named agents is their outputs, which are shown, and how they are conducted.
    if is_of_named_agents(checkpoint):
        return {}
    stored = drop_turn_state(checkpoint.state)
    state = {key: plain_value(value) for key, value in stored.items() if not key.endswith("/conversation")}
    return {"state": state, "executors": {key: plain_value(value) for key, value in checkpoint.executors.items()}}


def _strip(commit: Commit) -> Commit:
    """Return a commit without its payloads: enough to count and time what was done."""
    done = tuple(replace(done, outputs=()) for done in commit.done)
    return replace(
        commit, messages=None, held=None, state={}, executors={}, asked=(), answers=(), metadata={}, done=done
    )
