"""What is around every store: each text it keeps is bound to its place by a sum, and sealed if there is a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from stepwell.errors import CannotUnseal, CheckpointCorrupt
from stepwell.storage.checksums import add_checksum, is_summed, verify_checksum
from stepwell.storage.damage import decode_stored
from stepwell.storage.lease import LEASE
from stepwell.storage.port import NO_EFFECTS, CommitEffects, Entry, Pending, Record, Store
from stepwell.storage.transactions import Transacting, Transaction, Translated


class Sealing(Protocol):
    """Makes texts unreadable without a key."""

    def close(self, text: bytes, place: bytes) -> bytes: ...
    def open(self, text: bytes, place: bytes, what: str) -> bytes:
        """Raises CheckpointCorrupt, saying what it is, unless it was sealed for this place with a known key."""


class _Head(msgspec.Struct):
    sealed: Any = None


_head = msgspec.json.Decoder(_Head).decode


class VerifiedStore:
    """A store whose texts are guarded. Everything else is the store's own."""

    def __init__(self, store: Store, sealing: Sealing | None = None, *, lease: float = LEASE) -> None:
        self.inner, self._sealing = store, sealing
        self.lease = lease  # seconds that a driver of a run of this store is given

    @property
    def is_sealed(self) -> bool:
        return self._sealing is not None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)  # what has no text in it: entries, lists of runs, claims, questions

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self.inner.append(self._closed(record), self._protect_effects(effects))

    async def put(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self.inner.put(self._closed(record), self._protect_effects(effects))

    async def remove(
        self,
        run_id: str,
        number: int,
        *,
        follower: Record | None = None,
        asked: tuple[Pending, ...] = (),
        wake: str | None = None,
    ) -> bool:
        closed = None if follower is None else self._closed(follower)
        return await self.inner.remove(run_id, number, follower=closed, asked=asked, wake=wake)

    async def thin_out(self, run_id: str, numbers: Sequence[int], *, whole: Sequence[Record] = ()) -> int:
        return await self.inner.thin_out(run_id, numbers, whole=[self._closed(one) for one in whole])

    async def head(self, run_id: str) -> Record | None:
        found = await self.inner.head(run_id)
        return None if found is None else self._opened(found)

    async def chain(self, run_id: str, number: int) -> list[Record]:
        return self._all_opened(await self.inner.chain(run_id, number))

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        found = await self.inner.history(run_id, after=after, upto=upto, outputs_only=outputs_only)
        return self._all_opened(found)

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        closed = self._close(body, _memory(run_id, place, key))
        return await self.inner.write_log(run_id, place, key, closed, fence=fence)

    @property
    def transaction(self) -> Callable[..., Transaction[bytes]]:
        begin = cast(Transacting, self.inner).transaction  # there is none if the store cannot

        def guarded(run_id: str, place: int, key: str, *, fence: int | None = None) -> Transaction[bytes]:
            at, what = _memory(run_id, place, key), f"what run {run_id!r} remembered as {key!r}"
            return Translated(
                begin(run_id, place, key, fence=fence),
                lambda body: self._close(body, at),
                lambda body: self._open(body, at, what),
            )

        return guarded

    async def read_log(self, run_id: str, place: int) -> dict[str, bytes]:
        kept: Mapping[str, bytes] = await self.inner.read_log(run_id, place)
        what = f"what run {run_id!r} remembered as "
        return {key: self._open(kept[key], _memory(run_id, place, key), f"{what}{key!r}") for key in kept}

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        return await self.inner.send(run_id, key, self._close(body, _mail(run_id, key)))

    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        letters = await self.inner.pending_signals(run_id)
        what = f"of run {run_id!r}"
        return [(key, self._open(body, _mail(run_id, key), f"the mail {key!r} {what}")) for key, body in letters]

    def _protect_effects(self, effects: CommitEffects) -> CommitEffects:
        if not effects.reduced:
            return effects
        return msgspec.structs.replace(effects, reduced=tuple(map(self._closed, effects.reduced)))

    def _closed(self, record: Record) -> Record:
        return Record(record.entry, self._close(record.body, _commit(record.entry)))

    def _opened(self, record: Record) -> Record:
        entry = record.entry
        what = f"checkpoint {entry.checkpoint_id} of run {entry.run_id!r}"
        return Record(entry, self._open(record.body, _commit(entry), what))

    def _all_opened(self, records: Sequence[Record]) -> list[Record]:
        return [self._opened(one) for one in records]

    def _close(self, text: bytes, place: bytes) -> bytes:
        if self._sealing is not None:
            return self._sealing.close(text, place)
        return add_checksum(text, place)

    def _open(self, text: bytes, place: bytes, what: str) -> bytes:
        if self._sealing is not None:
            return self._sealing.open(text, place, what)
        if is_summed(text):
            return verify_checksum(text, place, what)
        raise _not_summed(text, what)


def _commit(entry: Entry) -> bytes:
    return _place("commit", entry.run_id, entry.number, entry.checkpoint_id)


def _memory(run_id: str, place: int, key: str) -> bytes:
    return _place("memory", run_id, place, key)


def _mail(run_id: str, key: str) -> bytes:
    return _place("mail", run_id, key)


def _place(kind: str, run_id: str, *rest: str | int) -> bytes:
    """Where a text belongs, as bytes. The length of the id keeps two places apart whose ids hold a NUL."""
    return "\0".join(map(str, (kind, len(run_id), run_id, *rest))).encode("utf-8", "surrogatepass")


def _not_summed(text: bytes, what: str) -> CheckpointCorrupt:
    """Why a text has no sum."""
    if decode_stored(_head, text, what).sealed is not None:
        return CannotUnseal(f"{what} is sealed: open the storage with its key, seal=Seal(...)")
    return CheckpointCorrupt(f"{what} is damaged: it has lost its sum; restore it from a backup")
