"""Rules for guarded stores: text that was damaged, moved or not sealed is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from stepwell.errors import CheckpointCorrupt
from stepwell.storage.integrity import VerifiedStore
from stepwell.storage.stored_values import CommitEffects, Record
from stepwell.testing.store_rules.rule import rule_of_guards
from stepwell.testing.store_rules.samples import fill, id_of, logged, meanings, record, refused, signals_of, text

SECRET = "the secret of the house"


@rule_of_guards("sealed")
async def a_sealed_store_reveals_no_text(store: VerifiedStore) -> None:
    for number in range(3):
        await store.append(record("r", number, body=SECRET, is_snapshot=number == 0))
    await store.rewrite("s", insert=record("s", 7, body=SECRET))
    await store.rewrite("r", remove=[0], replace=[record("r", 1, body=SECRET)])
    reduced = CommitEffects(reduced=(record("r", 2, body=SECRET),))
    await store.append(record("r", 3, body=SECRET, is_snapshot=False), reduced)
    await store.rewrite(
        "s", insert=record("s", 8, body=SECRET), effects=CommitEffects(reduced=(record("s", 7, body=SECRET),))
    )
    await store.write_log("r", 3, "k", text(SECRET))
    await store.send("r", "k", text(SECRET))
    inner = store.inner
    bodies = [each.body for run_id in ("r", "s") for each in await inner.history(run_id)]
    bodies += [*(await logged(inner, "r", 3)).values(), *dict(await signals_of(inner, "r")).values()]
    assert len(bodies) == 7
    assert [body for body in bodies if b"secret" in body] == []
    assert all(isinstance(json.loads(body), dict) for body in bodies)  # sealed or not, a body is a JSON object


@rule_of_guards("sealed")
async def a_sealed_store_refuses_unsealed_text(store: VerifiedStore) -> None:
    await fill(store.inner, "r", 1)
    await store.inner.write_log("r", 1, "k", text(1))
    await store.inner.send("r", "k", text(1))
    await check_refusal(store, "r", number=0)
    await store.inner.write_log("s", 1, "k", text(1))
    with refused(CheckpointCorrupt, "entry 'k' in the superstep log of run 's' is not sealed"):
        await store.open("s")
    with refused(CheckpointCorrupt, "signal 'k' of run 'r' is not sealed"):
        await store.pending_signals("r")


@rule_of_guards("summed", "sealed")
async def a_record_moved_to_another_place_is_refused(store: VerifiedStore) -> None:
    for run_id in ("r", "s"):
        await store.append(record(run_id, 0, body="same"))
        await store.append(record(run_id, 1, body="same"))
    # Each text is bound to its run, number and checkpoint: move it to another of each.
    first, second = await store.inner.history("r")
    await store.inner.rewrite("r", replace=[Record(second.entry, first.body)])
    await check_refusal(store, "r", number=1)
    await store.inner.rewrite("s", replace=[Record(record("s", 1).entry, second.body)])
    await check_refusal(store, "s", number=1)
    await store.inner.rewrite("r", replace=[Record(replace(second.entry, checkpoint_id="another"), second.body)])
    with refused(CheckpointCorrupt, "checkpoint another of run 'r'"):
        await store.read("r")
    await store.inner.rewrite("r", replace=[second])
    assert meanings(await store.history("r")) == meanings([record("r", 0, body="same"), record("r", 1, body="same")])


@rule_of_guards("summed", "sealed")
async def a_signal_moved_to_another_place_is_refused(store: VerifiedStore) -> None:
    await store.send("r", "k", text("yes"))
    ((_, body),) = await signals_of(store.inner, "r")
    await store.inner.send("s", "k", body)
    with refused(CheckpointCorrupt, "signal 'k' of run 's'"):
        await store.pending_signals("s")
    with refused(CheckpointCorrupt, "signal 'k' of run 's'"):
        await store.open("s")
    await store.inner.send("r", "l", body)
    with refused(CheckpointCorrupt, "signal 'l' of run 'r'"):
        await store.pending_signals("r")


@rule_of_guards("summed", "sealed")
async def a_superstep_log_entry_moved_to_another_place_is_refused(store: VerifiedStore) -> None:
    await store.write_log("r", 1, "k", text("done"))
    assert await logged(store, "r", 1) == {"k": text("done")}
    body = (await logged(store.inner, "r", 1))["k"]
    for run_id, place, key in [("s", 1, "k"), ("r", 2, "k"), ("t", 1, "l")]:
        await store.inner.write_log(run_id, place, key, body)
        with refused(CheckpointCorrupt, f"entry '{key}' in the superstep log of run '{run_id}'"):
            await store.open(run_id)


@rule_of_guards("summed", "sealed")
async def a_damaged_record_is_named_and_others_stay_readable(store: VerifiedStore) -> None:
    for run_id in ("r", "s"):
        await store.append(record(run_id, 0, body=SECRET))
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
    with refused(CheckpointCorrupt, named):
        await store.open(run_id)
    with refused(CheckpointCorrupt, named):
        await store.read(run_id)
    with refused(CheckpointCorrupt, named):
        await store.read(run_id, number)
    with refused(CheckpointCorrupt, named):
        await store.history(run_id)


def make_damages(body: bytes) -> Iterator[bytes]:
    """Yield the text with one of its strings cut short, or with one letter changed.

    The result is always JSON: a store may rely on that.
    """
    for change in (_cut_short, _change_letter):
        for damaged in _change_strings(json.loads(body), change):
            yield text(damaged)


def _cut_short(text: str) -> str:
    return text[: len(text) // 2]


def _change_letter(text: str) -> str:
    return ("A" if text[0] != "A" else "B") + text[1:]


def _change_strings(value: dict[str, Any], change: Callable[[str], str]) -> Iterator[dict[str, Any]]:
    for key, item in value.items():
        changes = (
            [change(item)] if isinstance(item, str) else _change_strings(item, change) if isinstance(item, dict) else []
        )
        for damaged in changes:
            yield {**value, key: damaged}
