"""A writer of the store in a directory is killed before each thing it does to the disk, and in the middle of writes."""

import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import CheckpointCorrupt, StoreUnavailable
from stepwell.storage.filters import ALL_RUNS, CheckpointFilter
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects
from stepwell.stores.files.layout import run_name
from stepwell.stores.files.store import FileStore
from stepwell.stores.runs import transactions
from stepwell.testing.store_rules.samples import (
    head,
    listed,
    names,
    numbers,
    places,
    question,
    record,
    run_metadata,
    signals_of,
    text,
)

ACTS = ("replace", "unlink", "mkdir", "fsync", "pwrite", "ftruncate")
SECRET = b"secret"


class Killed(Exception):
    """Not an OSError, so that nobody thinks it can be handled."""


def is_under(root: Path, where: Any) -> bool:
    """Whether an act is one on a store: other threads of this process have files of their own."""
    path = os.readlink(f"/proc/self/fd/{where}") if isinstance(where, int) else os.fspath(where)
    return path.startswith(f"{root}/") or path == str(root)


@contextmanager
def killed_before(act: int, root: Path, *, half: int | None = None) -> Iterator[list[str]]:
    """Nothing reaches the store from that act on, but a part of a write: one in `half`. Yields what was done."""
    done: list[str] = []

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def do(*args: Any, **kwargs: Any) -> Any:
            if not is_under(root, args[0]):
                return original(*args, **kwargs)
            if len(done) >= act:
                if half and name == "pwrite" and len(done) == act:
                    original(args[0], args[1][: len(args[1]) // half], args[2])
                done.append("killed")
                raise Killed
            done.append(name)
            return original(*args, **kwargs)

        return do

    with pytest.MonkeyPatch.context() as patch:
        for name in ACTS:
            patch.setattr(os, name, counting(name, getattr(os, name)))
        yield done


Action = Callable[[FileStore], Awaitable[object]]


def file_of(root: Path, run_id: str = "r") -> Path:
    return root / "runs" / run_name(run_id)


async def seen(store: FileStore) -> dict[str, Any]:
    """All that can be asked about run r."""
    opened = await store.open("r")
    return {
        "records": [(r.entry.number, r.entry.checkpoint_id, r.body) for r in await store.history("r")],
        "newest": numbers(opened.records),
        "signals": await signals_of(store, "r"),
        "requests": names(await store.requests()),
        "wakes": [run.wake for run in await store.runs(ALL_RUNS)],
        "log": {(row.place, row.key): row.body for row in opened.log},
        "runs": await listed(store),
        "order": places(await store.checkpoints(CheckpointFilter(run_id="r"))),
        "numbers": await store.numbers("r"),
    }


async def prepare(store: FileStore) -> None:
    await store.send("r", "a", text(1))
    opened = CommitEffects(
        asked=(question("r", "q1"), question("r", "q2")), wake="2026-01-01", metadata=run_metadata(team="red")
    )
    await store.append(record("r", 0), opened)
    await store.send("r", "b", text(2))
    await store.append(record("r", 1), CommitEffects(consumed=("a",), asked=(question("r", "q3"),), wake="2026-01-02"))
    await store.send("r", "c", text("secret"))
    await store.write_log("r", 0, "k", text(0))
    await store.write_log("r", 1, "k", text(1))


MORE = CommitEffects(consumed=("c", "unsent"), asked=(question("r", "q4"),), closed=("q1",), wake="2026-01-03")
REDUCING = CommitEffects(
    consumed=("c",),
    drop_below=4,
    reduced=(record("r", 2, body="reduced", is_snapshot=False, outputs=True),),
    wake="2026-01-02",
)


async def leave_one(store: FileStore) -> None:
    await prepare(store)
    await store.rewrite("r", remove=[0])


async def prepare_more(store: FileStore) -> None:
    await prepare(store)
    await store.append(
        record("r", 2, outputs=True), CommitEffects(metadata=run_metadata(team="blue"), wake="2026-01-02")
    )
    await store.append(record("r", 3, is_snapshot=False), CommitEffects(wake="2026-01-02"))


async def prepare_dropped(store: FileStore) -> None:
    await prepare_more(store)
    await store.append(record("r", 4, at="2026-02-01T00:00:00Z"), CommitEffects(drop_below=4))


async def prepare_waste(store: FileStore) -> None:
    await prepare_more(store)
    for number in range(10):
        await store.write_log("r", number, "k", text("x" * 500))
    await store.append(record("r", 4), CommitEffects(drop_log_through=9))


async def leased(store: FileStore) -> None:
    await store.acquire("r", this_process("mine"), seconds=60)
    await prepare(store)


async def nothing(store: FileStore) -> None:
    pass


def remove(*removed: int, **effects: Any) -> Action:
    return lambda store: store.rewrite("r", remove=removed, effects=CommitEffects(**effects))


ACTIONS: dict[str, tuple[Action, Action]] = {
    "append": (prepare, lambda store: store.append(record("r", 2), MORE)),
    "append of a record alone": (prepare, lambda store: store.append(record("r", 2), CommitEffects(wake="2026-01-02"))),
    "append of a large record": (prepare, lambda store: store.append(record("r", 2, body="x" * 100_000), MORE)),
    "append that closes": (
        prepare,
        lambda store: store.append(record("r", 2), CommitEffects(closed=("q1", "q2", "q3"), drop_log_through=1)),
    ),
    "first append": (nothing, lambda store: store.append(record("r", 0), MORE)),
    "insert": (prepare, lambda store: store.rewrite("r", insert=record("r", 7), effects=MORE)),
    "insert in place": (prepare, lambda store: store.rewrite("r", insert=record("r", 1, body="new"), effects=MORE)),
    "insert of an old one": (prepare, lambda store: store.rewrite("r", insert=record("r", 0, body="x"), effects=MORE)),
    "replace": (prepare, lambda store: store.rewrite("r", replace=[record("r", 1, body="whole")], remove=[0])),
    "send": (prepare, lambda store: store.send("r", "d", text(4))),
    "log": (prepare, lambda store: store.write_log("r", 1, "more", text(1))),
    "remove the newest": (prepare, remove(1)),
    "remove the newest and ask": (prepare, remove(1, asked=(question("r", "q1"),))),
    "remove the newest and sleep": (prepare, remove(1, wake="2026-01-09")),
    "remove an older one": (prepare, remove(0, asked=(question("r", "q9"),))),
    "remove the newest that has tags": (prepare_more, remove(3)),
    "remove the last": (leave_one, remove(1)),
    "remove the last of a run that is driven": (leased, remove(0, 1)),
    "append that drops": (prepare_more, lambda store: store.append(record("r", 4), CommitEffects(drop_below=4))),
    "append that drops again": (
        prepare_dropped,
        lambda store: store.append(record("r", 5), CommitEffects(drop_below=5)),
    ),
    "append that reduces": (prepare_more, lambda store: store.append(record("r", 4), REDUCING)),
    "append after a drop": (prepare_dropped, lambda store: store.append(record("r", 5), MORE)),
    "drop": (prepare_more, lambda store: store.drop("r")),
    "drop of a run that is driven": (leased, lambda store: store.drop("r")),
    "compact": (prepare_waste, lambda store: store.compact()),
}
FOLLOWING: dict[str, Action] = {
    "nothing": nothing,
    "a signal": lambda store: store.send("r", "z", text(9)),
    "a refused signal": lambda store: store.send("r", "a", text(9)),
    "a log entry": lambda store: store.write_log("r", 6, "k", text(9)),
    "a lease": lambda store: store.acquire("r", this_process("mine"), seconds=60),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ACTIONS)
async def test_a_killed_writer_has_done_all_or_nothing(name: str, tmp_path: Path) -> None:
    preparing, action = ACTIONS[name]
    template, whole = tmp_path / "template", tmp_path / "whole"
    store = FileStore(template)
    await preparing(store)
    before = await seen(store)
    await store.close()
    if template.exists():
        shutil.copytree(template, whole)
    store = FileStore(whole)
    with killed_before(10**9, tmp_path) as acts:
        await action(store)
    after = await seen(store)
    await store.close()

    happened = []
    for act in range(len(acts)):
        for half in (None, 1, 2, 7) if acts[act] == "pwrite" else (None,):
            for then, following in FOLLOWING.items():
                root = tmp_path / f"{act} {half} {then}"
                if template.exists():
                    shutil.copytree(template, root)
                store = FileStore(root)
                with killed_before(act, tmp_path, half=half) as done, suppress(Killed, StoreUnavailable):
                    await action(store)
                assert "killed" in done
                await store.close()
                happened.append(await check_rest(root, before, after, then, following))
                shutil.rmtree(root)
    assert len(acts) > 1


async def check_rest(root: Path, before: Any, after: Any, then: str, following: Action) -> bool:
    """What a killed writer left is all or nothing, and whoever comes next can go on. Whether it is all."""
    store = FileStore(root)
    found = await seen(store)
    assert found in (before, after), then
    await following(store)
    again = await seen(store)
    assert again["requests"] == found["requests"]
    assert again["wakes"] == found["wakes"]
    assert again["records"] == found["records"]
    if then in ("nothing", "a lease") or (then == "a refused signal" and before["records"] and found["records"]):
        assert again == found
    newest = await head(store, "r")
    await store.append(record("r", newest.entry.number + 1 if newest else 0), CommitEffects(consumed=("z",)))
    last = await seen(store)
    assert last["requests"] == again["requests"]
    assert last["signals"] == [m for m in again["signals"] if m[0] != "z"]
    await store.close()
    other = FileStore(root)  # which knows nothing of what the first one has in mind
    assert await seen(other) == last
    assert not list(root.rglob("*.part"))
    if not any(key == "c" for key, _ in last["signals"]):
        assert SECRET not in file_of(root).read_bytes()
    await other.close()
    return bool(found == after)


@pytest.mark.parametrize("name", ["append", "append that drops again", "append that reduces", "send", "replace"])
@pytest.mark.parametrize("alone", [True, False])
async def test_a_store_with_a_run_in_mind_notices_that_a_write_was_cut_short(
    alone: bool, name: str, tmp_path: Path
) -> None:
    """Its own, as by an error of the disk, or that of another who was killed."""
    preparing, action = ACTIONS[name]
    store = FileStore(tmp_path / "whole")
    await preparing(store)
    before = await seen(store)
    with killed_before(10**9, tmp_path) as acts:
        await action(store)
    after = await seen(store)
    await store.close()
    for act in range(len(acts)):
        root = tmp_path / str(act)
        store = FileStore(root)
        await preparing(store)
        other = FileStore(root)
        with killed_before(act, tmp_path, half=2), pytest.raises((Killed, StoreUnavailable)):
            await action(store if alone else other)
        assert await seen(store) in (before, after)
        newest = await head(store, "r")
        assert newest is not None
        await store.append(record("r", newest.entry.number + 1), CommitEffects(consumed=("b",)))
        fresh = FileStore(root)
        assert await seen(fresh) == await seen(store)
        for each in (fresh, other, store):
            await each.close()


async def test_whatever_part_of_the_last_write_is_there_the_rest_is_as_it_was(tmp_path: Path) -> None:
    """Cut off at each byte, or with zeros from there on, as after a power failure."""
    store, path = FileStore(tmp_path), file_of(tmp_path)
    await prepare(store)
    before, content = await seen(store), path.read_bytes()
    safe = len(content)
    await store.append(record("r", 2, body="x" * 50), MORE)
    after = await seen(store)
    content += path.read_bytes()[safe:]  # nothing is blanked before the write is synced
    await store.close()
    for size in range(safe, len(content)):
        for left in (content[:size], content[:size] + bytes(len(content) - size)):
            path.write_bytes(left)
            store = FileStore(tmp_path)
            assert await seen(store) == before, size
            await store.append(record("r", 2, body="x" * 50), MORE)
            assert await seen(store) == after
            await store.close()
    # Blocks reach the disk in any order: the first ones may be zeros and the last ones there.
    for start in range(safe, len(content) - 60, 20):
        path.write_bytes(content[:safe] + bytes(start - safe + 20) + content[start + 20 :])
        store = FileStore(tmp_path)
        assert await seen(store) in (before, after), start
        await store.close()


async def test_of_writes_that_were_cut_off_together_none_is_taken_for_damage(tmp_path: Path) -> None:
    store, path = FileStore(tmp_path), file_of(tmp_path)
    await store.append(record("r", 0))
    run, threads = store._get_locked().run("r"), store._get_locked()
    with run.reading():
        safe = run.end
    entries = [record("r", number, body="y" * 100) for number in (1, 2, 3)]
    with run.writing():
        for entry in entries:
            transactions.append(run, entry, NO_EFFECTS, tuple)
    content = path.read_bytes()
    await threads.close()
    assert content[safe:].count(b'"joined":true') == 2
    for start in range(safe, len(content), 10):
        path.write_bytes(content[:safe] + bytes(start - safe) + content[start:])
        again = FileStore(tmp_path)
        assert numbers(await again.history("r"))[:1] == [0]
        await again.close()


async def test_damage_that_no_crash_leaves_is_named(tmp_path: Path) -> None:
    store, path = FileStore(tmp_path), file_of(tmp_path)
    await prepare(store)
    await store.append(record("other", 0))
    await store.close()
    content = path.read_bytes()
    starts = [0, *(at + 1 for at, byte in enumerate(content) if byte == 10)][:-1]
    lines = [start for start in starts if content[start:].startswith(b'{"line"')]
    for start in lines:
        for damaged in (
            content[: start + 9] + b"\xff" + content[start + 10 :],  # a byte
            content[:start] + bytes(40) + content[start + 40 :],  # a block, with lines after it
            content[:start] + content[content.index(b"\n", start) + 1 :],  # a line is missing
        ):
            path.write_bytes(damaged)
            again = FileStore(tmp_path)
            if start == lines[-1] and damaged[start : start + 40] == bytes(40):
                continue  # that is what a crash leaves of the last write
            calls: list[Awaitable[object]] = [
                again.open("r"),
                again.history("r"),
                again.runs(),
                again.append(record("r", 2)),
                again.send("r", "x", text(1)),
                again.acquire("r", this_process("mine"), seconds=1),
            ]
            for call in calls:
                with pytest.raises(CheckpointCorrupt, match=str(path)):
                    await call
            assert numbers(await again.history("other")) == [0]
            await again.append(record("new", 0))
            await again.drop("new")
            await again.close()
    path.write_bytes(content)
