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
from stepwell.storage.damage import decode_stored
from stepwell.storage.json_text import json_of
from stepwell.storage.pending_requests import PendingRequest
from stepwell.storage.signals import PlainResponseSignal, ResponseSignal, is_of_epoch, read_signal

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
    info = await find_run(storage, run)
    archive = StoreArchive(storage._store, DEFAULT_CODEC)
    head = await archive.head(info.run_id)
    if head is None:
        raise NotFound(f"run {info.run_id!r} has gone meanwhile")
    check_no_caller(head)
    answered = await _find_answers(archive, head) if head.requests else set()
    return [_make_question(head.run_id, request, answered=request.id in answered) for request in head.requests.values()]


async def load_questions(storage: BuiltInStorage, place: CheckpointInfo) -> list[Question]:
    """What a run asked at a checkpoint of it. None counts as answered: a new run from there could answer them all."""
    entry = await entry_of(storage._store, place)
    checkpoint, _ = await StoreArchive(storage._store, DEFAULT_CODEC).at(entry)
    return [_make_question(checkpoint.run_id, request, answered=False) for request in checkpoint.requests.values()]


async def find_pending_answers(storage: BuiltInStorage, requests: Sequence[PendingRequest]) -> set[tuple[str, str]]:
    """Those whose answer has come and was not taken in yet, as pairs of run and request. Reads only runs with mail."""
    runs = list(dict.fromkeys(question.run_id for question in requests))
    with_mail = await asyncio.to_thread(storage._store.runs_with_signals, runs) if runs else []
    questions = [question for run_id in with_mail for question in await open_questions(storage, run_id)]
    return {(question.run_id, question.request_id) for question in questions if question.answered}


async def _find_answers(archive: StoreArchive, head: Checkpoint) -> set[str]:
    signals = [(key, read_signal(head.run_id, key, body)) for key, body in await archive.pending_signals(head.run_id)]
    return {
        signal.request_id
        for key, signal in signals
        if isinstance(signal, ResponseSignal | PlainResponseSignal) and is_of_epoch(key, head.header.epoch)
    }


def _make_question(run_id: str, request: Request, *, answered: bool) -> Question:
    what = f"the schema of the question {request.id!r} of run {run_id!r}"
    return Question(
        run_id,
        request.id,
        request.executor,
        msgspec.json.decode(json_of(request.payload)),
        request.request_type,
        request.response_type,
        decode_stored(_read_schema, request.schema.encode(), what),
        request.at,
        request.deadline,
        answered,
    )
