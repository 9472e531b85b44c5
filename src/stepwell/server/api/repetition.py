"""Calls that are repeated with an idempotency key: they have one effect and one answer.

What a key was first used for, and what was answered, is kept in the store, so it holds for every
server on it, and after a restart. It lies in the superstep log of a run that has no commits, whose id
is derived from the caller and the key: there, the first entry under a name wins, and no list shows it.

A call is noted before it acts, and its answer when it has acted. A server that is killed in between
leaves the note only, and the call is carried out again: the operations take care that it has the
effect of the first time, from what was noted then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from http import HTTPStatus
from typing import Any

import msgspec

from stepwell.errors import RunBusy
from stepwell.server.problems import RequestRefused
from stepwell.server.run_start import derive_run_id
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.checked_reads import decode_stored

_CALL, _ANSWER = "call", "answer"  # the entries of a key
_PLACE = 0
_TRIES, _PAUSE = 10, 0.1  # while another server may be carrying out the same call


class FirstCall(msgspec.Struct, frozen=True):
    """What a key was first used for."""

    content: str  # a hash
    at: str  # UTC, ISO 8601
    head: int | None  # the newest commit, then, of the run that it is about
    is_repeated: bool = False  # whether this call is another one


_decode = msgspec.json.Decoder(FirstCall).decode


class CallKey:
    """One idempotency key of one caller."""

    def __init__(self, storage: BuiltInStorage, caller: str, key: str) -> None:
        self._storage, self._caller, self._key = storage, caller, key
        self._run_id = self.derive_id("call")

    def derive_id(self, purpose: str) -> str:
        """Return an id for what the call makes, always the same."""
        return derive_run_id(purpose, self._caller, self._key)

    async def answer(
        self,
        content: bytes,
        find_head: Callable[[], Awaitable[int | None]],
        act: Callable[[FirstCall], Awaitable[Any]],
    ) -> bytes:
        """Return the answer that was given before, or act and keep the answer.

        Raises RequestRefused if the key was used for something else, and what `act` raises; then
        nothing is kept but the call itself.
        """
        digest = sha256(content).hexdigest()
        first, answer = await self._read()
        if first is None:
            first = FirstCall(digest, clock.stamp(), await find_head())
            if not await self._write(_CALL, msgspec.json.encode(first)):
                first, answer = await self._read()  # the same moment, another server
        assert first is not None
        if first.content != digest:
            raise RequestRefused(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"the idempotency key {self._key!r} was used for another request",
                "use a new key for a new request, and the same key only to repeat one",
            )
        return answer or await self._act(first, act)

    async def _act(self, first: FirstCall, act: Callable[[FirstCall], Awaitable[Any]]) -> bytes:
        for left in reversed(range(_TRIES)):
            try:
                answer = msgspec.json.encode(await act(first))
                break
            except RunBusy:  # perhaps by the same call, on another server
                await asyncio.sleep(_PAUSE)
                _, kept = await self._read()
                if kept is not None:
                    return kept
                if not left:
                    raise
        if await self._write(_ANSWER, answer):
            return answer
        return (await self._read())[1] or answer

    async def _read(self) -> tuple[FirstCall | None, bytes | None]:
        opened = await self._storage._store.open(self._run_id)
        entries = {row.key: row.body for row in opened.log}
        if _CALL not in entries:
            return None, None
        first: FirstCall = decode_stored(_decode, entries[_CALL], f"the entry of the idempotency key {self._key!r}")
        return msgspec.structs.replace(first, is_repeated=True), entries.get(_ANSWER)

    async def _write(self, name: str, body: bytes) -> bool:
        return await self._storage._store.write_log(self._run_id, _PLACE, name, body)
