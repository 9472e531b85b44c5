"""Integrity: a wrapper around every store that binds each body to its place.

It adds a checksum to each body or, if there is a key, encrypts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast

import msgspec

from stepwell.errors import CannotUnseal, CheckpointCorrupt
from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.checksums import add_checksum, has_checksum, verify_checksum
from stepwell.storage.large_work import LARGE_WORK, build_in_thread
from stepwell.storage.lease import LEASE
from stepwell.storage.port import NO_EFFECTS, CommitEffects, Entry, Pending, Record, Store
from stepwell.storage.transactions import Transacting, Transaction, Translated


class Cipher(Protocol):
    """Encrypts bodies; `encryption.Seal` is the one we ship."""

    def close(self, text: bytes, place: bytes) -> bytes: ...
    def open(self, text: bytes, place: bytes, what: str) -> bytes:
        """Decrypt a body.

        Raises CheckpointCorrupt, naming `what`, unless it was sealed for this place.
        """


class _Head(msgspec.Struct):
    sealed: Any = None


_decode_head = msgspec.json.Decoder(_Head).decode


class VerifiedStore:
    """A store whose bodies are protected on the way in and verified on the way out.

    It wraps the methods that carry bodies. Everything else is passed through to the store inside.
    """

    def __init__(self, store: Store, cipher: Cipher | None = None, *, lease: float = LEASE) -> None:
        self.inner, self._cipher = store, cipher
        self.lease = lease  # seconds for which a driver of a run in this store gets a lease

    @property
    def is_sealed(self) -> bool:
        return self._cipher is not None

    def __getattr__(self, name: str) -> Any:
        # Entries, lists of runs, leases and open requests carry no protected text.
        return getattr(self.inner, name)

    # ---------------------------------------------------------------- records

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        effects = self._protect_effects(effects)
        if len(record.body) < LARGE_WORK:
            await self.inner.append(self._protect_record(record), effects)
        else:
            protect = partial(self._protect_record, record)
            await build_in_thread(protect, lambda protected: self.inner.append(protected, effects))

    async def put(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self.inner.put(self._protect_record(record), self._protect_effects(effects))

    async def remove(
        self,
        run_id: str,
        number: int,
        *,
        follower: Record | None = None,
        asked: tuple[Pending, ...] = (),
        wake: str | None = None,
    ) -> bool:
        protected = None if follower is None else self._protect_record(follower)
        return await self.inner.remove(run_id, number, follower=protected, asked=asked, wake=wake)

    async def thin_out(self, run_id: str, numbers: Sequence[int], *, rewritten: Sequence[Record] = ()) -> int:
        return await self.inner.thin_out(run_id, numbers, rewritten=list(map(self._protect_record, rewritten)))

    async def head(self, run_id: str) -> Record | None:
        record = await self.inner.head(run_id)
        return None if record is None else self._verify_record(record)

    async def chain(self, run_id: str, number: int) -> list[Record]:
        return list(map(self._verify_record, await self.inner.chain(run_id, number)))

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        records = await self.inner.history(run_id, after=after, upto=upto, outputs_only=outputs_only)
        return list(map(self._verify_record, records))

    # ---------------------------------------------------------------- superstep log

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        protected = self._protect(body, _log_place(run_id, place, key))
        return await self.inner.write_log(run_id, place, key, protected, fence=fence)

    async def read_log(self, run_id: str, place: int) -> dict[str, bytes]:
        log: Mapping[str, bytes] = await self.inner.read_log(run_id, place)
        return {
            key: self._verify(body, _log_place(run_id, place, key), _log_title(run_id, key))
            for key, body in log.items()
        }

    # A property and no method: a store without transactions has no such attribute, and then neither
    # has this one.
    @property
    def transaction(self) -> Callable[..., Transaction[bytes]]:
        begin = cast(Transacting, self.inner).transaction

        def begin_protected(run_id: str, place: int, key: str, *, fence: int | None = None) -> Transaction[bytes]:
            at, what = _log_place(run_id, place, key), _log_title(run_id, key)
            return Translated(
                begin(run_id, place, key, fence=fence),
                lambda body: self._protect(body, at),
                lambda body: self._verify(body, at, what),
            )

        return begin_protected

    # ---------------------------------------------------------------- signals

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        return await self.inner.send(run_id, key, self._protect(body, _signal_place(run_id, key)))

    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        return [
            (key, self._verify(body, _signal_place(run_id, key), f"signal {key!r} of run {run_id!r}"))
            for key, body in await self.inner.pending_signals(run_id)
        ]

    # ---------------------------------------------------------------- protecting and verifying

    def _protect_effects(self, effects: CommitEffects) -> CommitEffects:
        if not effects.reduced:
            return effects
        return msgspec.structs.replace(effects, reduced=tuple(map(self._protect_record, effects.reduced)))

    def _protect_record(self, record: Record) -> Record:
        return Record(record.entry, self._protect(record.body, _commit_place(record.entry)))

    def _verify_record(self, record: Record) -> Record:
        entry = record.entry
        what = f"checkpoint {entry.checkpoint_id} of run {entry.run_id!r}"
        return Record(entry, self._verify(record.body, _commit_place(entry), what))

    def _protect(self, text: bytes, place: bytes) -> bytes:
        if self._cipher is not None:
            return self._cipher.close(text, place)
        return add_checksum(text, place)

    def _verify(self, text: bytes, place: bytes, what: str) -> bytes:
        # With a key, only sealed bodies are accepted: otherwise an attacker who can write to the
        # store could replace a sealed text by a plain one.
        if self._cipher is not None:
            return self._cipher.open(text, place, what)
        if has_checksum(text):
            return verify_checksum(text, place, what)
        raise _no_checksum_error(text, what)


# The kinds "commit", "memory" and "mail" go into every checksum: they are part of the stored format
# and keep their first names.


def _commit_place(entry: Entry) -> bytes:
    return _place("commit", entry.run_id, entry.number, entry.checkpoint_id)


def _log_place(run_id: str, place: int, key: str) -> bytes:
    return _place("memory", run_id, place, key)


def _signal_place(run_id: str, key: str) -> bytes:
    return _place("mail", run_id, key)


def _place(kind: str, run_id: str, *rest: str | int) -> bytes:
    """Return the bytes that name the place of a body; no two places have the same.

    The length of the id keeps two places apart if an id contains a NUL, the separator.
    """
    return "\0".join(map(str, (kind, len(run_id), run_id, *rest))).encode("utf-8", "surrogatepass")


def _log_title(run_id: str, key: str) -> str:
    return f"entry {key!r} in the superstep log of run {run_id!r}"


def _no_checksum_error(text: bytes, what: str) -> CheckpointCorrupt:
    """The error for a body without a checksum: it is sealed, or damaged."""
    if decode_stored(_decode_head, text, what).sealed is not None:
        return CannotUnseal(f"{what} is sealed: open the storage with its key, seal=Seal(...)")
    return CheckpointCorrupt(f"{what} is damaged: its checksum is missing; restore it from a backup")
