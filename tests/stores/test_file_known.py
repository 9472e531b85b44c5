"""The store in a directory keeps in mind what it has read, and never relies on it when it is not so."""

import asyncio
import multiprocessing
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import CommitConflict, DurabilityError
from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import CommitEffects
from stepwell.stores.files import run_file, threads
from stepwell.stores.files.store import FileStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing.store_rules.samples import (
    fill,
    head,
    id_of,
    listed,
    meanings,
    numbers,
    question,
    record,
    run_metadata,
    signals_of,
    text,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def store(root: Path) -> AsyncIterator[FileStore]:
    made = FileStore(root)
    yield made
    await made.close()


async def test_what_is_kept_in_mind_is_bounded(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "CACHED_RUNS", 3)
    for number in range(3):
        for run_id in "abcde":
            await store.append(record(run_id, number))
            assert len(store._get_locked()._runs) <= 3
    for run_id in "abcde":
        assert numbers(await store.history(run_id)) == [0, 1, 2]


KEYS = [str(n) for n in range(40)]


class Operator:
    """Does the same at random to a model and to one of several stores on one directory."""

    def __init__(self, seed: int, model: SQLiteStore, stores: list[FileStore]) -> None:
        self._random, self._model, self._stores = random.Random(seed), model, stores
        self._count = 0

    async def step(self) -> None:
        store = self._random.choice(self._stores)
        newest = await head(self._model, "r")
        latest = newest.entry.number if newest else -1
        act = self._action(latest)
        assert await outcome(act(store)) == await outcome(act(self._model))
        place = self._random.choice(self._stores)
        assert await facts(place) == await facts(self._model)

    def _action(self, latest: int) -> Callable[[Store], Awaitable[object]]:
        chosen = self._random
        self._count += 1
        key, drive = chosen.choice(KEYS), chosen.choice("xy")
        number, at = chosen.randrange(max(latest, 0) + 2), f"{self._count:04}"
        effects = CommitEffects(
            drop_log_through=latest if chosen.random() < 0.5 else None,
            consumed=tuple(each for each in KEYS if chosen.random() < 0.05),
            asked=tuple(question("r", each) for each in "pq" if chosen.random() < 0.3),
            closed=tuple(each for each in "pq" if chosen.random() < 0.3),
            wake=chosen.choice(["2026", None]),
            metadata=run_metadata(team=chosen.choice("ab")) if chosen.random() < 0.2 else None,
            drop_below=chosen.randrange(latest + 1) if latest > 0 and chosen.random() < 0.2 else None,
        )
        entry: dict[str, Any] = {"outputs": chosen.random() < 0.2, "at": at, "body": "x" * chosen.choice([1, 300])}
        odd = {**entry, "checkpoint_id": f"c{self._count}"}
        actions: list[tuple[float, Callable[[Store], Awaitable[object]]]] = [
            (8, lambda store: store.append(record("r", latest + 1, **entry), effects)),
            (2, lambda store: store.append(record("r", latest + 1, **odd), effects)),
            (1, lambda store: store.append(record("r", number, **entry), effects)),
            (1, lambda store: store.rewrite("r", insert=record("r", number, **odd), effects=effects)),
            (1, lambda store: store.rewrite("r", insert=record("r", latest + 2, **entry), effects=effects)),
            (1, lambda store: store.rewrite("r", replace=[record("r", number, **entry)], remove=[number - 1])),
            (1, lambda store: store.rewrite("r", remove=[number], effects=effects)),
            (2, lambda store: store.rewrite("r", remove=[latest], effects=effects)),
            (0.3, lambda store: store.drop("r")),
            (0.5, compacted),
            (4, lambda store: store.send("r", key, text(key))),
            (2, lambda store: store.write_log("r", max(latest, 0), key, text(key))),
            (1, lambda store: acquired(store, drive)),
            (1, lambda store: store.release("r", this_process(drive))),
        ]
        return chosen.choices([act for _, act in actions], [weight for weight, _ in actions])[0]


async def compacted(store: Store) -> None:
    await store.compact()


async def acquired(store: Store, drive: str) -> bool:
    return await store.acquire("r", this_process(drive), seconds=60) > 0


async def outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except DurabilityError as error:
        return type(error)


async def facts(store: Store) -> dict[str, Any]:
    entries, of_run = await store.checkpoints(), CheckpointFilter(run_id="r")
    middle = entries[len(entries) // 2] if entries else record("r", 0).entry
    opened = await store.open("r")
    return {
        "opened": meanings(opened.records),
        "log": {(row.place, row.key): row.body for row in opened.log},
        "signals": await signals_of(store, "r"),
        "runs": await listed(store),
        "page": await store.checkpoints(limit=3),
        "page of the run": await store.checkpoints(of_run, limit=2),
        "page before": await store.checkpoints(of_run, limit=2, before=middle),
        "outputs": numbers(await store.history("r", outputs_only=True)),
        "history": meanings(await store.history("r")),
        "end": meanings(await store.history("r", after=middle.number)),
        "entries": entries,
        "located": [await store.locate(each.checkpoint_id) for each in (middle, record("r", 2).entry)],
        "numbers": await store.numbers("r"),
        "requests": await store.requests(),
        "signalled": (await asyncio.to_thread(store.renew, {"r": 10**6}, seconds=None)).signalled,
    }


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
async def test_stores_on_one_directory_never_differ_from_one_store(
    seed: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    # The state is written often, so that much of what is asked for lies before it.
    monkeypatch.setattr(run_file, "_STATE_EVERY", 1500)
    monkeypatch.setattr(run_file, "_STATE_SHARE", 0)
    stores = [FileStore(root) for _ in range(1 + seed % 3)]
    model = SQLiteStore(root.with_name("model.db"))
    operator = Operator(seed, model, stores)
    for step in range(120):
        await operator.step()
        if step % 10 == 0:  # as a process that has just started
            await stores[0].close()
            stores[0] = FileStore(root)
            operator._stores = stores
    for store in stores:
        await store.close()
    await model.close()


def append_in_child(store: FileStore) -> None:
    asyncio.run(fill_from(store, 3))


async def fill_from(store: FileStore, first: int) -> None:
    for number in range(first, first + 3):
        await store.append(record("r", number))
        await store.send("r", str(number), b"1")


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_parent_notices_what_its_forked_child_has_done_and_the_other_way_round(store: FileStore) -> None:
    await fill(store, "r", 3)
    child = multiprocessing.get_context("fork").Process(target=append_in_child, args=(store,))
    child.start()
    await asyncio.to_thread(child.join, 20)
    assert child.exitcode == 0
    assert not await store.send("r", "4", b"1")
    with pytest.raises(CommitConflict):
        await store.append(record("r", 3))
    await fill_from(store, 6)
    assert numbers(await store.history("r")) == list(range(9))
    assert [key for key, _ in await signals_of(store, "r")] == [str(number) for number in range(3, 9)]


async def test_a_file_that_was_replaced_by_one_of_the_same_size_is_noticed(store: FileStore, root: Path) -> None:
    """By another process that dropped the run and started it again."""
    other = FileStore(root)
    await fill(store, "r", 2)
    for _ in range(5):
        assert numbers(await store.history("r")) == [0, 1]
        await other.drop("r")
        await fill(other, "r", 1)
        await other.append(record("r", 1, body={"m": 1}))
        assert (await store.history("r"))[1].body == b'{"m":1}'
        assert await store.locate(id_of("r", 1)) == record("r", 1).entry
    await other.close()
