"""Compares two checkpoints, of one run or of two, and a fork with its parent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepwell.admin.diffs.documents import document_of, plain_value
from stepwell.admin.diffs.json_diff import Change, compare, lines_of, patch_of, reverse_changes
from stepwell.admin.lookup import NotFound, find_checkpoint, load_checkpoint
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import RunError
from stepwell.kernel.lifecycle import drop_undone
from stepwell.model.checkpoint import RunHeader
from stepwell.model.commit import Commit
from stepwell.model.event import CheckpointInfo
from stepwell.model.request import AnswerRecord
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.wire.format import read_commit

_RECENT = 500  # commits that are read for outputs and answers: a comparison must not get slower as a run grows


class NotForked(RunError):
    """The run is not a fork, so there is no parent to compare it with."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The `changes` that lead from one checkpoint to another, in the order in which they apply."""

    before: CheckpointInfo
    after: CheckpointInfo
    changes: tuple[Change, ...]

    def patch(self) -> list[dict[str, Any]]:
        """Return a JSON Patch (RFC 6902) from the document of `before` to that of `after`."""
        return patch_of(self.changes)

    def reversed(self) -> Difference:
        """Return the difference in the other direction."""
        return Difference(self.after, self.before, tuple(reverse_changes(self.changes)))

    def lines(self, *, full: bool = False) -> list[str]:
        """Return the difference as text: the two checkpoints, then a line for each change.

        Long values are shortened unless `full` is set.
        """
        between = f"{_label(self.before)} → {_label(self.after)}"
        return [between, *(lines_of(self.changes, full=full) or ["no difference"])]


async def diff(storage: BuiltInStorage, before: str, after: str) -> Difference:
    """Return the difference between two checkpoints, of one run or of two.

    `find_checkpoint` says how to name them.

    Reads these two checkpoints and, for outputs and answers, the latest 500 commits that led to
    each, however long their runs are. Needs neither classes nor code of the workflow.
    """
    first, second = await find_checkpoint(storage, before), await find_checkpoint(storage, after)
    changes = compare(await load_document(storage, first), await load_document(storage, second))
    return Difference(first, second, tuple(changes))


async def diff_from_parent(storage: BuiltInStorage, run: str) -> Difference:
    """Return how a fork differs from the checkpoint it was forked from.

    `run` names a checkpoint of the fork as `find_checkpoint` does; a run id means its newest.
    Raises NotForked for a run that started with an input, and NotFound if the parent's checkpoint
    is not stored any more.
    """
    checkpoint = await find_checkpoint(storage, run)
    content, _ = await load_checkpoint(storage._store, checkpoint)
    header = content.header
    if header.parent_id is None:
        raise NotForked(f"run {checkpoint.run_id!r} is not a fork: it started with an input", run_id=checkpoint.run_id)
    # Looked up first, so that the error can name the fork; find_checkpoint() would only know the
    # id.
    if await storage._store.locate(header.parent_id) is None:
        raise NotFound(
            f"run {checkpoint.run_id!r} was forked from {header.parent_run}@{header.parent_number}, "
            f"which is not stored any more"
        )
    parent = await find_checkpoint(storage, header.parent_id)
    changes = compare(await load_document(storage, parent), await load_document(storage, checkpoint))
    return Difference(parent, checkpoint, tuple(changes))


async def load_document(storage: BuiltInStorage, at: CheckpointInfo) -> dict[str, Any]:
    """Return a checkpoint as a JSON document, with the outputs and answers that led to it."""
    checkpoint, _ = await load_checkpoint(storage._store, at)
    commits = await _read_lineage(storage, checkpoint.header, at.number)
    outputs = [output for commit in commits for done in commit.done for output in done.outputs]
    answers = {answer.request_id: _describe_answer(answer) for commit in commits for answer in commit.answers}
    content = document_of(checkpoint)
    return {
        "status": content.pop("status"),
        "outputs": [plain_value(output.payload) for output in outputs if output.kind == "output"],
        "answers": answers,
        **content,
    }


async def _read_lineage(storage: BuiltInStorage, header: RunHeader, number: int) -> list[Commit]:
    """Return the recent commits that led to a checkpoint, oldest first: of its run, and of those it was forked from."""
    commits: list[Commit] = []
    run_id: str | None = header.run_id
    while run_id is not None and len(commits) < _RECENT:
        records = await storage._store.history(run_id, after=max(number - _RECENT, -1), upto=number)
        commits = [*drop_undone([read_commit(record, DEFAULT_CODEC)[0] for record in records]), *commits]
        if header.parent_id is None or (origin := await storage._store.locate(header.parent_id)) is None:
            break
        header = (await load_checkpoint(storage._store, await find_checkpoint(storage, header.parent_id)))[0].header
        run_id, number = origin.run_id, origin.number
    return commits


def _describe_answer(answer: AnswerRecord) -> dict[str, Any]:
    # Not when it was given: runs that did the same should not differ.
    said = {"by": answer.by, "comment": answer.comment}
    return {"value": plain_value(answer.value), **{name: text for name, text in said.items() if text}}


def _label(at: CheckpointInfo) -> str:
    return f"{at.run_id}@{at.number}"
