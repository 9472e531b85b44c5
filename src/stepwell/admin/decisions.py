"""Everything that people decided about runs, as it is on record: the audit trail of a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

import msgspec

from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.values import to_data
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.model.commit import DECIDED, Commit, CommitKind
from stepwell.model.event import CheckpointInfo
from stepwell.model.valid_text import is_text
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.checkpoint_list import visible_entries
from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.limits import LARGEST
from stepwell.storage.stored_values import Entry
from stepwell.storage.wire.format import read_commit
from stepwell.storage.wire.shapes import WireCommit

DecisionKind = Literal["answered", "cancelled", "forked", "restored", "retried", "started", "resumed"]
_PAGE = 100  # commits that are read at a time


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """What somebody decided: an answer to a request, or a change of a run. Times are UTC, ISO 8601."""

    kind: DecisionKind
    run_id: str
    workflow_name: str
    number: int  # of the commit that has it on record
    at: str  # when an answer was sent; otherwise when the commit was made
    by: str | None  # as the caller said; None if nobody was named, or a deadline decided
    comment: str | None  # to an answer; of a cancel, the reason
    request_id: str | None = None  # of an answer, like the next two
    executor_id: str | None = None  # that asked
    value: Any = None  # what was answered, as JSON data
    source: CheckpointInfo | None = None  # where a fork started, or where a run was moved back to
    position: str = field(default="", repr=False)  # in the list of all decisions: the next page continues after it

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "kind": self.kind,
            "run_id": self.run_id,
            "workflow": self.workflow_name,
            "number": self.number,
            "at": self.at,
            "by": self.by,
            "comment": self.comment,
            "request_id": self.request_id,
            "executor": self.executor_id,
            "value": self.value,
            "source_run": None if self.source is None else self.source.run_id,
            "source_number": None if self.source is None else self.source.number,
        }


async def list_decisions(
    storage: BuiltInStorage,
    *,
    run_id: str | None = None,
    workflow_name: str | None = None,
    by: str | None = None,
    kinds: Sequence[DecisionKind] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> list[DecisionRecord]:
    """Return what people decided, newest first: answers, cancels, forks, restores, retries, with who and when.

    A start or resume is on record if somebody was named with `by`. Only of one run or workflow,
    `by` one person, of some `kinds`, decided at `since` or later, before `until`; at most `limit`,
    continuing after `after`, the `position` of the last one of the previous page. What is on record stays as long as
    its commit does: a run that keeps only its latest checkpoint keeps only what that commit says.

    An index leads to the commits with decisions, and the body of each is read; filters by person,
    kind and time look at those they pass over. A store of files looks at each run.

    Raises CannotUnseal if a commit is sealed with a key that the storage does not have.
    """
    if unknown := set(kinds) - set(get_args(DecisionKind)):
        raise ValueError(f"kinds are {', '.join(get_args(DecisionKind))}, not {', '.join(map(repr, sorted(unknown)))}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    if not all(text is None or is_text(text) for text in (run_id, workflow_name)):
        return []  # half a surrogate pair cannot be sent to a database, and no id has one
    first, last = (None if moment is None else clock.stored_moment(moment) for moment in (since, until))
    decisions: list[DecisionRecord] = []
    wanted = CheckpointFilter(workflow=workflow_name, run_id=run_id, decisions=True)
    async for decision in _read_decisions(storage, wanted, after, first):
        if (
            by in (None, decision.by)
            and (not kinds or decision.kind in kinds)
            and (first is None or decision.at >= first)
            and (last is None or decision.at < last)
        ):
            decisions.append(decision)
            if len(decisions) == limit:
                break
    return decisions


async def _read_decisions(
    storage: BuiltInStorage, wanted: CheckpointFilter, after: str | None, since: str | None
) -> AsyncIterator[DecisionRecord]:
    store, before, listed = storage._store, None, None
    if after is not None:
        listed = _read_position(after)
        # The commit itself once more: it may hold more decisions than the previous page had room for.
        before = Entry(
            listed.run_id,
            listed.number + 1,
            checkpoint_id="",
            workflow="",
            status="",
            iteration=0,
            at=listed.at,
            is_snapshot=False,
            outputs=False,
        )
    while page := await store.checkpoints(wanted, before=before, limit=_PAGE):
        for entry in reversed(await visible_entries(store, page)):
            # Nothing is decided after it is on record, so all that follow are older still.
            if since is not None and entry.at < since and wanted.run_id is None:
                return
            for record in await store.history(entry.run_id, after=entry.number - 1, upto=entry.number):
                commit, shape = read_commit(record, DEFAULT_CODEC)
                decisions = _decisions_of(record.entry, commit, shape)
                if listed is not None and (listed.run_id, listed.number) == (entry.run_id, entry.number):
                    decisions = decisions[: listed.place]
                for decision in reversed(decisions):
                    yield decision
        before = page[0]


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a decision is in the list: the commit, and which of its decisions it is."""

    at: str
    run_id: str
    number: Annotated[int, msgspec.Meta(ge=0, lt=LARGEST)]
    place: Annotated[int, msgspec.Meta(ge=0)]


def _write_position(entry: Entry, place: int) -> str:
    return msgspec.json.encode(_Position(entry.at, entry.run_id, entry.number, place)).decode()


def _read_position(text: str) -> _Position:
    try:
        position = msgspec.json.decode(text, type=_Position)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ValueError(f"after is the position of a decision, not {text!r}: {error}") from error
    if not (is_text(position.run_id) and is_text(position.at)):
        raise ValueError(f"after is the position of a decision, not {text!r}")
    return position


def _decisions_of(entry: Entry, commit: Commit, shape: WireCommit) -> list[DecisionRecord]:
    """Return the decisions that a commit has on record: first the answers, in their order, then that on the run."""
    decisions = [
        DecisionRecord(
            "answered",
            entry.run_id,
            workflow_name=entry.workflow,
            number=entry.number,
            at=answer.at,
            by=answer.by,
            comment=answer.comment,
            request_id=answer.request_id,
            executor_id=answer.executor,
            value=to_data(plain_value(answer.value)),
            position=_write_position(entry, place),
        )
        for place, answer in enumerate(commit.answers)
    ]
    if commit.kind in DECIDED or (commit.by is not None and not commit.answers):
        decisions.append(
            DecisionRecord(
                _kind_of(commit.kind),
                entry.run_id,
                workflow_name=entry.workflow,
                number=entry.number,
                at=entry.at,
                by=commit.by,
                comment=commit.reason,
                source=_source_of(entry.run_id, commit, shape),
                position=_write_position(entry, len(decisions)),
            )
        )
    return decisions


def _kind_of(kind: CommitKind) -> DecisionKind:
    match kind:
        case CommitKind.CANCELLED:
            return "cancelled"
        case CommitKind.FORKED:
            return "forked"
        case CommitKind.RESTORED:
            return "restored"
        case CommitKind.RETRIED:
            return "retried"
        case CommitKind.INPUT:
            return "started"
        case _:
            return "resumed"


def _source_of(run_id: str, commit: Commit, shape: WireCommit) -> CheckpointInfo | None:
    run = shape.run
    if commit.restored is not None:
        return CheckpointInfo(run_id, shape.previous_id or "", commit.restored)
    if commit.kind is not CommitKind.FORKED or run is None or run.parent_run is None or run.parent_number is None:
        return None
    return CheckpointInfo(run.parent_run, run.parent_id or "", run.parent_number)
