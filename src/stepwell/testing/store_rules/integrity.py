"""Rules for guarded stores: text that was damaged, moved or not sealed is refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from stepwell.errors import CheckpointCorrupt
from stepwell.storage.integrity import VerifiedStore
from stepwell.storage.stored_values import CommitEffects, LogEffects, Record
from stepwell.testing.store_rules.rule import rule_of_guards
from stepwell.testing.store_rules.samples import (
    append_all,
    expect_error,
    fill,
    id_of,
    log_of,
    meanings,
    question,
    record,
    signals_of,
    text,
)

SECRET = "the secret of the house"


@rule_of_guards("sealed")
async def a_sealed_store_reveals_no_text(store: VerifiedStore) -> None:
    await append_all(store, (record("r", number, body=SECRET, is_snapshot=number == 0) for number in range(3)))
    await store.rewrite("s", insert=record("s", 7, body=SECRET))
    await store.rewrite("r", remove=[0], replace=[record("r", 1, body=SECRET)])
    reduced = CommitEffects(reduced=(record("r", 2, body=SECRET),))
    await store.append(record("r", 3, body=SECRET, is_snapshot=False), reduced)
    await store.rewrite(
        "s", insert=record("s", 8, body=SECRET), effects=CommitEffects(reduced=(record("s", 7, body=SECRET),))
    )
    await store.write_log("r", 3, "k", text(SECRET))
    await store.send("r", "k", text(SECRET))
    asked = tuple(replace(question("r", f"q{n}"), body=text(SECRET).decode()) for n in range(3))
    await store.append(record("r", 4, body=SECRET), CommitEffects(asked=asked[:1]))
    await store.write_log("r", 4, "k", text(SECRET), effects=LogEffects(asked=asked[1:2]))
    await store.rewrite("t", insert=record("t", 0), effects=CommitEffects(asked=(replace(asked[2], run_id="t"),)))
    assert [each.body for each in await store.requests()] == [asked[0].body] * 3
    requests = [each.body.encode() for each in await store.inner.requests()]
    bodies = [each.body for run_id in ("r", "s") for each in await store.inner.history(run_id)]
    bodies += [*(await log_of(store.inner, "r")).values(), *dict(await signals_of(store.inner, "r")).values()]
    bodies += requests
    assert (len(bodies), [body for body in bodies if b"secret" in body]) == (12, [])
    assert all(isinstance(json.loads(body), dict) for body in bodies)  # sealed or not, a body is a JSON object


@rule_of_guards("sealed")
async def a_sealed_store_refuses_unsealed_text(store: VerifiedStore) -> None:
    await fill(store.inner, "r", 1)
    await store.inner.write_log("r", 1, "k", text(1))
    await store.inner.send("r", "k", text(1))
    await check_refusal(store, "r", number=0)
    await store.inner.write_log("s", 1, "k", text(1))
    await expect_error(CheckpointCorrupt, store.open("s"), "entry 'k' in the superstep log of run 's' is not sealed")
    await expect_error(CheckpointCorrupt, store.pending_signals("r"), "signal 'k' of run 'r' is not sealed")


@rule_of_guards("summed", "sealed")
async def a_record_moved_to_another_place_is_refused(store: VerifiedStore) -> None:
    await fill(store, "r", 2, body="same")
    await fill(store, "s", 2, body="same")
    # Each text is bound to its run, number and checkpoint: move it to another of each.
    first, second = await store.inner.history("r")
    await store.inner.rewrite("r", replace=[Record(second.entry, first.body)])
    await check_refusal(store, "r", number=1)
    await store.inner.rewrite("s", replace=[Record(record("s", 1).entry, second.body)])
    await check_refusal(store, "s", number=1)
    await store.inner.rewrite("r", replace=[Record(replace(second.entry, checkpoint_id="another"), second.body)])
    await expect_error(CheckpointCorrupt, store.read("r"), "checkpoint another of run 'r'")
    await store.inner.rewrite("r", replace=[second])
    assert meanings(await store.history("r")) == meanings([record("r", number, body="same") for number in (0, 1)])


@rule_of_guards("summed", "sealed")
async def a_signal_moved_to_another_place_is_refused(store: VerifiedStore) -> None:
    await store.send("r", "k", text("yes"))
    ((_, body),) = await signals_of(store.inner, "r")
    await store.inner.send("s", "k", body)
    await expect_error(CheckpointCorrupt, store.pending_signals("s"), "signal 'k' of run 's'")
    await expect_error(CheckpointCorrupt, store.open("s"), "signal 'k' of run 's'")
    await store.inner.send("r", "l", body)
    await expect_error(CheckpointCorrupt, store.pending_signals("r"), "signal 'l' of run 'r'")


@rule_of_guards("summed", "sealed")
async def a_superstep_log_entry_moved_to_another_place_is_refused(store: VerifiedStore) -> None:
    await store.write_log("r", 1, "k", text("done"))
    assert await log_of(store, "r") == {(1, "k"): text("done")}
    (body,) = (await log_of(store.inner, "r")).values()
    for run_id, place, key in [("s", 1, "k"), ("r", 2, "k"), ("t", 1, "l")]:
        await store.inner.write_log(run_id, place, key, body)
        named = f"entry '{key}' in the superstep log of run '{run_id}'"
        await expect_error(CheckpointCorrupt, store.open(run_id), named)


@rule_of_guards("summed", "sealed")
async def a_damaged_record_is_named_and_others_stay_readable(store: VerifiedStore) -> None:
    await fill(store, "r", 1, body=SECRET)
    await fill(store, "s", 1, body=SECRET)
    (whole,) = await store.inner.read("r")
    for damaged in make_damages(whole.body):
        await store.inner.rewrite("r", replace=[Record(whole.entry, damaged)])
        await check_refusal(store, "r", number=0)
    assert meanings(await store.history("s")) == meanings([record("s", 0, body=SECRET)])
    await store.inner.rewrite("r", replace=[whole])
    assert meanings(await store.history("r")) == meanings([record("r", 0, body=SECRET)])


async def check_refusal(store: VerifiedStore, run_id: str, *, number: int) -> None:
    """Check that every way of reading the record raises an error that names it."""
    named = f"checkpoint {id_of(run_id, number)} of run '{run_id}'"
    await expect_error(CheckpointCorrupt, store.open(run_id), named)
    await expect_error(CheckpointCorrupt, store.read(run_id), named)
    await expect_error(CheckpointCorrupt, store.read(run_id, number), named)
    await expect_error(CheckpointCorrupt, store.history(run_id), named)


def make_damages(body: bytes) -> Iterator[bytes]:
    """Yield the text with one of its strings cut short, or with one letter changed.

    The result is always JSON: a store may rely on that.
    """
    for damaged in _change_strings(json.loads(body)):
        yield text(damaged)


def _change_strings(value: Any) -> Iterator[Any]:
    if isinstance(value, str):
        yield value[: len(value) // 2]
        yield ("A" if value[0] != "A" else "B") + value[1:]
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from ({**value, key: damaged} for damaged in _change_strings(item))
