"""What is stored is refused if it is damaged, misplaced, or sealed for somebody else; never skipped, never believed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell import (
    CannotUnseal,
    CheckpointCorrupt,
    Executor,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Seal,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from stepwell.storage.integrity import VerifiedStore, add_checksum, verify_checksum
from stepwell.storage.stored_values import Record, SignalRow
from stepwell.testing.store_rules.samples import logged

KEYS = {"spring": bytes(range(16)), "summer": bytes(range(32))}


class Teller(Executor):
    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_state("secret", f"the secret of {text}")
        await ctx.request_info(f"may {text} be told?", bool, request_id="may I")

    @response_handler
    async def told(self, original_request: str, response: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{ctx.get_state('secret')}: {response}")


def build(storage: Any) -> Workflow:
    return WorkflowBuilder(name="telling", start_executor=Teller("teller"), checkpoint_storage=storage).build()


@given(text=st.binary(max_size=50), place=st.binary(), at=st.integers(0, 100), flip=st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_a_text_with_a_byte_changed_is_refused(text: bytes, place: bytes, at: int, flip: int) -> None:
    whole = add_checksum(b"{" + text, place)
    assert verify_checksum(whole, place, "it") == b"{" + text
    damaged = bytearray(whole)
    damaged[at % len(whole)] ^= flip
    with pytest.raises(CheckpointCorrupt, match="it is damaged"):
        verify_checksum(bytes(damaged), place, "it")
    for other in (whole[:-1], whole + b" ", b"", whole[:20]):
        with pytest.raises(CheckpointCorrupt):
            verify_checksum(other, place, "it")


def test_an_object_without_members_is_an_object_with_its_sum() -> None:
    whole = add_checksum(b"{}", b"here")
    assert list(json.loads(whole)) == ["sum"]
    assert verify_checksum(whole, b"here", "it") == b"{}"
    for other in (whole[:-1], whole[:-1] + b",}", whole + b"}"):
        with pytest.raises(CheckpointCorrupt, match="it is damaged"):
            verify_checksum(other, b"here", "it")


@pytest.mark.parametrize("name", ["seal", "sum"])
async def test_records_that_changed_places_are_named(tmp_path: Path, name: str) -> None:
    seal = Seal(KEYS, "spring") if name == "seal" else None
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db", seal=seal)
    for run_id in ("a", "b"):
        await build(storage).run(run_id, run_id=run_id)
    store = cast(VerifiedStore, storage._store).inner
    (mine,), (theirs,) = [await store.history(run_id, after=0, upto=1) for run_id in ("a", "b")]
    await store.rewrite("a", replace=[Record(mine.entry, theirs.body)])
    with pytest.raises(CheckpointCorrupt, match="of run 'a'"):
        await build(storage).run(run_id="a")
    assert (await build(storage).run(run_id="b", responses={"may I": True})).get_outputs() == ["the secret of b: True"]


async def test_a_record_that_lost_its_sum_is_not_taken_for_an_old_one(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    await build(storage).run("a", run_id="a")
    await storage.close()
    database = sqlite3.connect(tmp_path / "runs.db")
    database.execute("UPDATE commits SET body = json_remove(body, '$.sum') WHERE number = 1")
    database.commit()
    database.close()
    with pytest.raises(CheckpointCorrupt, match="its checksum is missing"):
        await build(storage).run(run_id="a")


def everything_in(place: Path) -> bytes:
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    beside = list(place.parent.glob(f"{place.name}-*"))
    return b"".join(path.read_bytes() for path in (*files, *beside))


@pytest.mark.parametrize("kind", [SQLiteCheckpointStorage, FileCheckpointStorage])
async def test_a_sealed_storage_holds_nothing_that_can_be_read(tmp_path: Path, kind: Any) -> None:
    storage = kind(tmp_path / "runs", seal=Seal(KEYS, "spring"))
    await build(storage).run("augusta ada king", run_id="r")
    result = await build(storage).run(run_id="r", responses={"may I": True})
    assert result.get_outputs() == ["the secret of augusta ada king: True"]
    await storage.close()
    assert b"augusta ada king" not in everything_in(tmp_path / "runs")


async def test_a_key_can_be_changed(tmp_path: Path) -> None:
    first = SQLiteCheckpointStorage(tmp_path / "runs.db", seal=Seal(KEYS, "spring"))
    await build(first).run("augusta ada king", run_id="r")
    later = SQLiteCheckpointStorage(tmp_path / "runs.db", seal=Seal(KEYS, "summer"))
    assert (await build(later).run(run_id="r", responses={"may I": False})).get_outputs() == [
        "the secret of augusta ada king: False"
    ]
    only_new = SQLiteCheckpointStorage(tmp_path / "runs.db", seal=Seal({"summer": KEYS["summer"]}, "summer"))
    with pytest.raises(CannotUnseal, match="sealed with the key 'spring', which is not among the keys"):
        await only_new.list_checkpoints(run_id="r")


async def test_a_plain_record_in_a_sealed_storage_and_a_sealed_one_in_a_plain_storage_are_refused(
    tmp_path: Path,
) -> None:
    plain, sealed = (SQLiteCheckpointStorage(tmp_path / "runs.db", seal=seal) for seal in (None, Seal(KEYS, "spring")))
    await build(plain).run("a", run_id="plain")
    await build(sealed).run("a", run_id="sealed")
    with pytest.raises(CannotUnseal, match="is not sealed"):
        await build(sealed).run(run_id="plain")
    with pytest.raises(CannotUnseal, match="is sealed: open the storage with its key"):
        await build(plain).run(run_id="sealed")
    wrong = SQLiteCheckpointStorage(tmp_path / "runs.db", seal=Seal({"spring": bytes(16)}, "spring"))
    with pytest.raises(CannotUnseal, match="cannot be decrypted"):
        await build(wrong).run(run_id="sealed")


async def test_what_cannot_be_unsealed_is_told_apart_from_what_is_damaged(tmp_path: Path) -> None:
    assert issubclass(CannotUnseal, CheckpointCorrupt)
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    await build(storage).run("a", run_id="r")
    await storage.close()
    with sqlite3.connect(tmp_path / "runs.db") as db:
        db.execute("UPDATE commits SET body = replace(body, 'format', 'formaX')")
    db.close()
    with pytest.raises(CheckpointCorrupt) as caught:
        await build(storage).run(run_id="r")
    assert not isinstance(caught.value, CannotUnseal)


async def test_a_sealed_letter_and_memory_are_read_again() -> None:
    storage = InMemoryCheckpointStorage(seal=Seal(KEYS, "spring"))
    await build(storage).run("a", run_id="r")
    assert await storage._store.send("r", "k", b'{"a":1}')
    assert await storage._store.pending_signals("r") == [SignalRow("k", b'{"a":1}')]
    assert await storage._store.write_log("r", 9, "9.0", b'{"b":2}')
    assert await logged(storage._store, "r", 9) == {"9.0": b'{"b":2}'}


@pytest.mark.parametrize(
    ("keys", "current", "words"),
    [
        ({"a": b"short"}, "a", "must be 16, 24 or 32 bytes"),
        ({"a": bytes(16)}, "b", "'b' is not among the keys: 'a'"),
        ({}, "a", "not among the keys: none"),
    ],
)
def test_a_wrong_key_is_refused_where_it_is_given(keys: Any, current: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Seal(keys, current)


def test_a_seal_does_not_tell_its_keys() -> None:
    assert repr(Seal(KEYS, "spring")) == "<Seal, keys ['spring', 'summer'], current 'spring'>"
