"""The open questions of a run, whole: what is asked, what answer is wanted, and whether one is there already."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stepwell.admin.lookup import NotFound, entry_of, find_run
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.engine.responses import check_no_caller
from stepwell.model.event import CheckpointInfo
from stepwell.model.request import Request
from stepwell.model.superstep import Checkpoint
from stepwell.storage.archive import StoreArchive
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.damage import decoded
from stepwell.storage.json_text import json_of
from stepwell.storage.pending_requests import PendingRequest
from stepwell.storage.signals import AnswerLetter, PlainLetter, is_of_epoch, read_letter

_read_schema = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Question:
    """An open question of a run. `data` is what is asked, in its stored JSON form, classes as their tags."""

    run_id: str
    request_id: str
    executor: str
    data: Any = field(repr=False)
    request_type: str
    response_type: str
    response_schema: dict[str, Any] = field(repr=False)
    asked_at: str
    deadline: str | None
    answered: bool  # an answer has come, and waits for whoever drives the run to look at it


async def open_questions(storage: BuiltInStorage, run: str) -> list[Question]:
    """What a run asks now, in the order in which it asked. Reads its newest checkpoint and its mail.

    Raises NotFound or Ambiguous for the run, and RunError for one that works for another: that one asks its questions.
    """
    found = await find_run(storage, run)
    archive = StoreArchive(storage.store, DEFAULT_CODEC)
    at = await archive.head(found.run_id)
    if at is None:
        raise NotFound(f"run {found.run_id!r} has gone meanwhile")
    check_no_caller(at)
    answered = await _answered(archive, at) if at.requests else set()
    return [_question(at.run_id, one, answered=one.id in answered) for one in at.requests.values()]


async def questions_at(storage: BuiltInStorage, place: CheckpointInfo) -> list[Question]:
    """What a run asked at a checkpoint of it. None counts as answered: a new run from there could answer them all."""
    entry = await entry_of(storage.store, place)
    at, _ = await StoreArchive(storage.store, DEFAULT_CODEC).at(entry)
    return [_question(at.run_id, one, answered=False) for one in at.requests.values()]


async def answered_among(storage: BuiltInStorage, asked: Sequence[PendingRequest]) -> set[tuple[str, str]]:
    """Those whose answer has come and was not taken in yet, as pairs of run and request. Reads only runs with mail."""
    runs = list(dict.fromkeys(one.run_id for one in asked))
    with_mail = await asyncio.to_thread(storage.store.mailed, runs) if runs else []
    found = [one for run_id in with_mail for one in await open_questions(storage, run_id)]
    return {(one.run_id, one.request_id) for one in found if one.answered}


async def _answered(archive: StoreArchive, at: Checkpoint) -> set[str]:
    letters = [(key, read_letter(at.run_id, key, body)) for key, body in await archive.mail(at.run_id)]
    return {
        letter.request_id
        for key, letter in letters
        if isinstance(letter, AnswerLetter | PlainLetter) and is_of_epoch(key, at.header.epoch)
    }


def _question(run_id: str, one: Request, *, answered: bool) -> Question:
    what = f"the schema of the question {one.id!r} of run {run_id!r}"
    return Question(
        run_id,
        one.id,
        one.executor,
        msgspec.json.decode(json_of(one.payload)),
        one.request_type,
        one.response_type,
        decoded(_read_schema, one.schema.encode(), what),
        one.at,
        one.deadline,
        answered,
    )
