"""Integrity: a wrapper around every store that binds each body to its address.

It adds a checksum to each body or, if there is a key, encrypts it. The address (run, number, key) is
part of the checksum, so a body that was copied elsewhere is noticed like a damaged one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Protocol

import msgspec

from stepwell.errors import CannotUnseal, CheckpointCorrupt
from stepwell.storage.append_news import EXPECTING, announce_append
from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.filters import (
    ANY_CHECKPOINT,
    ANY_REQUEST,
    TOP_RUNS,
    CheckpointFilter,
    ReadyFilter,
    RequestFilter,
    RunFilter,
)
from stepwell.storage.large_work import LARGE_WORK, build_in_thread
from stepwell.storage.lease import Owner
from stepwell.storage.port import Store
from stepwell.storage.stored_values import (
    NO_EFFECTS,
    NO_LOG_EFFECTS,
    CommitEffects,
    Entry,
    LeaseReport,
    LogEffects,
    LogRow,
    OpenedRun,
    Record,
    RequestEntry,
    RunEntry,
    SignalRow,
    Survey,
)
from stepwell.storage.transactions import Transaction, Translated


class Cipher(Protocol):
    """Encrypts bodies; `encryption.Seal` is the one we ship."""

    def encrypt(self, text: bytes, address: bytes) -> bytes: ...
    def decrypt(self, text: bytes, address: bytes, what: object) -> bytes:
        """Decrypt a body.

        Raises CheckpointCorrupt, naming `what`, unless it was sealed for this address.
        """


class _SealedMarker(msgspec.Struct):
    sealed: Any = None


_decode_marker = msgspec.json.Decoder(_SealedMarker).decode


class VerifiedStore:
    """A store whose bodies are protected on the way in and verified on the way out.

    Entries, lists and leases carry no protected text; those calls are passed on.
    Each one is written out: a method of the port that is missing here would be a body that is
    stored unprotected.
    """

    def __init__(self, store: Store, cipher: Cipher | None = None) -> None:
        self.inner, self._cipher = store, cipher
        self._protect = add_checksum if cipher is None else cipher.encrypt

    @property
    def is_sealed(self) -> bool:
        return self._cipher is not None

    # Looked up in the class itself, not inherited: a subclass that overrides a method may write in
    # another way, and must make these promises itself.

    @property
    def completes_writes(self) -> bool:
        return vars(type(self.inner)).get("completes_writes") is True

    @property
    def keeps_order(self) -> bool:
        return vars(type(self.inner)).get("keeps_order") is True

    # ---------------------------------------------------------------- records

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        if effects.reduced or effects.asked:
            effects = self._protect_effects(effects)
        if len(record.body) < LARGE_WORK:
            await self.inner.append(self._protect_record(record), effects)
        else:
            protect = partial(self._protect_record, record)
            await build_in_thread(protect, lambda protected: self.inner.append(protected, effects))
        if EXPECTING:
            announce_append(self, record.entry.run_id)

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        opened = await self.inner.open(run_id, owner=owner, seconds=seconds)
        return OpenedRun(
            self._verify_records(opened.records),
            [self._verify_log_row(run_id, row) for row in opened.log],
            self._verify_signals(run_id, opened.signals),
            opened.fence,
            opened.has_outputs,
            opened.takeovers,
        )

    async def read(self, run_id: str, number: int | None = None) -> list[Record]:
        return self._verify_records(await self.inner.read(run_id, number))

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        records = await self.inner.history(run_id, after=after, upto=upto, outputs_only=outputs_only)
        return self._verify_records(records)

    # ---------------------------------------------------------------- superstep log

    async def write_log(
        self,
        run_id: str,
        place: int,
        key: str,
        body: bytes,
        *,
        effects: LogEffects = NO_LOG_EFFECTS,
        fence: int | None = None,
    ) -> bool:
        protected = self._protect(body, _address("log", run_id, f"{place}\0{key}"))
        if effects.asked:
            effects = msgspec.structs.replace(effects, asked=self._protect_requests(effects.asked))
        return await self.inner.write_log(run_id, place, key, protected, effects=effects, fence=fence)

    def transaction(self, run_id: str, place: int, key: str, *, fence: int | None = None) -> Transaction[bytes] | None:
        inner = self.inner.transaction(run_id, place, key, fence=fence)
        if inner is None:
            return None
        return Translated(
            inner,
            lambda body: self._protect(body, _address("log", run_id, f"{place}\0{key}")),
            lambda body: self._verify_log_row(run_id, LogRow(place, key, body)).body,
        )

    # ---------------------------------------------------------------- signals

    async def send(self, run_id: str, key: str, body: bytes, *, fence: int | None = None) -> bool:
        return await self.inner.send(run_id, key, self._protect(body, _address("signal", run_id, key)), fence=fence)

    async def pending_signals(self, run_id: str) -> list[SignalRow]:
        return self._verify_signals(run_id, await self.inner.pending_signals(run_id))

    # ---------------------------------------------------------------- leases

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        return await self.inner.acquire(run_id, owner, seconds=seconds)

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        return self.inner.renew(fences, seconds=seconds)

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        await self.inner.release(run_id, owner, stalls=stalls)

    # ---------------------------------------------------------------- lists

    async def run(self, run_id: str) -> RunEntry | None:
        return await self.inner.run(run_id)

    async def runs(
        self, run_filter: RunFilter = TOP_RUNS, *, past: RunEntry | None = None, limit: int | None = None
    ) -> list[RunEntry]:
        return await self.inner.runs(run_filter, past=past, limit=limit)

    async def checkpoints(
        self,
        checkpoint_filter: CheckpointFilter = ANY_CHECKPOINT,
        *,
        before: Entry | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        return await self.inner.checkpoints(checkpoint_filter, before=before, limit=limit)

    async def locate(self, checkpoint_id: str) -> Entry | None:
        return await self.inner.locate(checkpoint_id)

    async def requests(
        self,
        request_filter: RequestFilter = ANY_REQUEST,
        *,
        past: RequestEntry | None = None,
        limit: int | None = None,
    ) -> list[RequestEntry]:
        requests = await self.inner.requests(request_filter, past=past, limit=limit)
        return [self.verify_request(request) for request in requests]

    async def ready(self, ready_filter: ReadyFilter, *, limit: int | None = None) -> list[RunEntry]:
        return await self.inner.ready(ready_filter, limit=limit)

    # ---------------------------------------------------------------- maintenance

    async def rewrite(
        self,
        run_id: str,
        *,
        insert: Record | None = None,
        replace: Sequence[Record] = (),
        remove: Sequence[int] = (),
        effects: CommitEffects | None = None,
    ) -> int:
        return await self.inner.rewrite(
            run_id,
            insert=None if insert is None else self._protect_record(insert),
            replace=[self._protect_record(record) for record in replace],
            remove=remove,
            effects=None if effects is None else self._protect_effects(effects),
        )

    async def drop(self, run_id: str) -> bool:
        return await self.inner.drop(run_id)

    async def survey(self) -> Survey:
        return await self.inner.survey()

    async def numbers(self, run_id: str) -> list[int]:
        return await self.inner.numbers(run_id)

    async def compact(self) -> int:
        return await self.inner.compact()

    async def close(self) -> None:
        await self.inner.close()

    # ---------------------------------------------------------------- protecting and verifying

    def protect_webhook(self, webhook_id: str, body: bytes) -> bytes:
        return self._protect(body, _address("webhook", "", webhook_id))

    def verify_webhook(self, webhook_id: str, body: bytes) -> bytes:
        return self._verify(body, _address("webhook", "", webhook_id), f"webhook {webhook_id!r}")

    def _protect_effects(self, effects: CommitEffects) -> CommitEffects:
        return msgspec.structs.replace(
            effects,
            reduced=tuple(map(self._protect_record, effects.reduced)),
            asked=self._protect_requests(effects.asked),
        )

    def _protect_requests(self, requests: Sequence[RequestEntry]) -> tuple[RequestEntry, ...]:
        return tuple(
            msgspec.structs.replace(each, body=self._protect(each.body.encode(), _request_address(each)).decode())
            for each in requests
        )

    def verify_request(self, request: RequestEntry) -> RequestEntry:
        what = f"request {request.request_id!r} of run {request.run_id!r}"
        # A list can be read without the key, only not what is asked: `read_request_body` says so.
        if self._cipher is None and is_sealed(request.body.encode(), what):
            return request
        body = self._verify(request.body.encode(), _request_address(request), what)
        return msgspec.structs.replace(request, body=body.decode())

    def _protect_record(self, record: Record) -> Record:
        entry = record.entry
        return Record(entry, self._protect(record.body, _commit_address(entry)))

    def _verify_records(self, records: Sequence[Record]) -> list[Record]:
        return [
            Record(entry, self._verify(record.body, _commit_address(entry), entry))
            for record in records
            for entry in (record.entry,)
        ]

    def _verify_log_row(self, run_id: str, row: LogRow) -> LogRow:
        what = f"entry {row.key!r} in the superstep log of run {run_id!r}"
        address = _address("log", run_id, f"{row.place}\0{row.key}")
        return LogRow(row.place, row.key, self._verify(row.body, address, what))

    def _verify_signals(self, run_id: str, rows: Sequence[SignalRow]) -> list[SignalRow]:
        return [
            SignalRow(
                row.key,
                self._verify(row.body, _address("signal", run_id, row.key), f"signal {row.key!r} of run {run_id!r}"),
            )
            for row in rows
        ]

    def _verify(self, text: bytes, address: bytes, what: object) -> bytes:
        # With a key, only sealed bodies are accepted: otherwise an attacker who can write to the
        # store could replace a sealed text by a plain one.
        if self._cipher is not None:
            return self._cipher.decrypt(text, address, what)
        if text.startswith(_BEGIN):
            return verify_checksum(text, address, what)
        raise _no_checksum_error(text, what)


# The kinds "commit", "log", "signal", "request" and "webhook" go into every checksum: they are part of the
# stored format.


def _address(kind: str, run_id: str, name: str) -> bytes:
    """Return the bytes that name where a body belongs; no two bodies have the same.

    The length of the id keeps two addresses apart if an id contains a NUL, the separator.
    """
    return f"{kind}\0{len(run_id)}\0{run_id}\0{name}".encode("utf-8", "surrogatepass")


def _commit_address(entry: Entry) -> bytes:
    # As `_address` writes it: every commit needs it.
    run_id = entry.run_id
    return f"commit\0{len(run_id)}\0{run_id}\0{entry.number}\0{entry.checkpoint_id}".encode("utf-8", "surrogatepass")


def _request_address(request: RequestEntry) -> bytes:
    return _address("request", request.run_id, f"{request.at}\0{request.request_id}")


def is_sealed(text: bytes, what: object) -> bool:
    """Return whether a body is encrypted. Raises CheckpointCorrupt, naming `what`, if it is damaged."""
    return not text.startswith(_BEGIN) and decode_stored(_decode_marker, text, what).sealed is not None


def _no_checksum_error(text: bytes, what: object) -> CheckpointCorrupt:
    """The error for a body without a checksum: it is sealed, or damaged."""
    if is_sealed(text, what):
        return CannotUnseal(f"{what} is sealed: open the storage with its key, seal=Seal(...)")
    return CheckpointCorrupt(f"{what} is damaged: its checksum is missing; restore it from a backup")


# -------------------------------------------------------------------- checksums

# Half of SHA-256, in hexadecimal: 128 bits detect every accident, and each record pays for them.
_DIGITS = 32
_BEGIN, _END, _CLOSE = b'{"sum":"', b'",', b'"}'
_SIZE = len(_BEGIN) + _DIGITS + len(_END)


def add_checksum(text: bytes, address: bytes) -> bytes:
    """Return a JSON object with a checksum of itself and of its address as its first member.

    The bytes are spliced in, because parsing and writing the object again would cost more than the
    checksum.
    """
    digest = sha256(address + b"\0")
    digest.update(text)
    more = _CLOSE if text == b"{}" else _END + text[1:]  # an empty object takes no comma
    return _BEGIN + digest.hexdigest()[:_DIGITS].encode() + more


def verify_checksum(text: bytes, address: bytes, what: object) -> bytes:
    """Return the object without its checksum.

    Raises CheckpointCorrupt, naming `what`, unless the body is unchanged and at its address.
    """
    plain = b"{}" if text[_SIZE - len(_END) :] == _CLOSE else b"{" + text[_SIZE:]
    # Comparing whole bodies, not only the digits, also catches damage in the bytes around them.
    if text != add_checksum(plain, address):
        raise CheckpointCorrupt(
            f"{what} is damaged or in the wrong place: its checksum does not match; restore it from a backup"
        )
    return plain
