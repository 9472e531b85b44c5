"""A writer of the store in a directory is killed before each thing it does to the disk, one after the other."""

import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import CheckpointCorrupt
from stepwell.storage.lease import this_process
from stepwell.storage.port import CommitEffects
from stepwell.stores.files import layout as file_layout
from stepwell.stores.files import run_folder as file_run
from stepwell.stores.files.store import FileStore
from stepwell.testing.store_rules.samples import names, places, question, record, run_metadata
from tests.support.spies import spy

ACTS = ("replace", "rename", "unlink", "rmdir", "mkdir", "fsync", "utime", "pwrite")


class Killed(Exception):
    """Not an OSError, so that nobody thinks it can be handled."""


def is_under(root: Path, where: Any) -> bool:
    """Whether an act is one on a store: other threads of this process have files of their own."""
    path = os.readlink(f"/proc/self/fd/{where}") if isinstance(where, int) else os.fspath(where)
    return path.startswith(f"{root}/") or path == str(root)


@contextmanager
def killed_before(act: int, root: Path) -> Iterator[list[str]]:
    """Nothing reaches the store from that act on. Yields what was done."""
    done: list[str] = []

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def do(*args: Any, **kwargs: Any) -> Any:
            if not is_under(root, args[0]):
                return original(*args, **kwargs)
            if len(done) >= act:
                raise Killed
            done.append(name)
            return original(*args, **kwargs)

        return do

    with pytest.MonkeyPatch.context() as patch:
        for name in ACTS:
            patch.setattr(os, name, counting(name, getattr(os, name)))
        yield done


Action = Callable[[FileStore], Awaitable[object]]


async def seen(store: FileStore) -> dict[str, object]:
    """All that can be asked about run r, with the memory of the place where it is."""
    head = await store.head("r")
    return {
        "records": [(r.entry.number, r.entry.checkpoint_id, r.body) for r in await store.history("r")],
        "mail": await store.pending_signals("r"),
        "pending": names(await store.pending()),
        "wakes": [wake.at for wake in await store.wakes()],
        "memory": await store.read_log("r", head.entry.number if head else 0),
        "runs": await store.runs(inner=True),
        "order": places(await store.entries(run_id="r")),
    }


async def prepare(store: FileStore) -> None:
    await store.send("r", "a", b"1")
    opened = CommitEffects(
        asked=(question("r", "q1"), question("r", "q2")), wake="2026-01-01", metadata=run_metadata(team="red")
    )
    await store.append(record("r", 0), opened)
    await store.send("r", "b", b"2")
    await store.append(record("r", 1), CommitEffects(consumed=("a",), asked=(question("r", "q3"),), wake="2026-01-02"))
    await store.send("r", "c", b"3")
    await store.write_log("r", 0, "k", b"0")
    await store.write_log("r", 1, "k", b"1")


MORE = CommitEffects(consumed=("c", "unposted"), asked=(question("r", "q4"),), closed=("q1",), wake="2026-01-03")


REDUCING = CommitEffects(
    consumed=("c",),
    drop_below=4,
    reduced=(record("r", 2, body="reduced", is_snapshot=False, outputs=True),),
    wake="2026-01-02",
)


async def leave_one(store: FileStore) -> None:
    await prepare(store)
    await store.remove("r", 0)


async def prepare_more(store: FileStore) -> None:
    await prepare(store)
    await store.append(
        record("r", 2, outputs=True), CommitEffects(metadata=run_metadata(team="blue"), wake="2026-01-02")
    )
    await store.append(record("r", 3, is_snapshot=False), CommitEffects(wake="2026-01-02"))


async def prepare_dropped(store: FileStore) -> None:
    await prepare_more(store)
    await store.append(record("r", 4, at="2026-02-01T00:00:00Z"), CommitEffects(drop_below=4))


async def claimed(store: FileStore) -> None:
    await store.acquire("r", this_process("mine"), seconds=60)
    await prepare(store)


async def nothing(store: FileStore) -> None:
    pass


ACTIONS: dict[str, tuple[Action, Action]] = {
    "append": (prepare, lambda store: store.append(record("r", 2), MORE)),
    "append of a record alone": (prepare, lambda store: store.append(record("r", 2), CommitEffects(wake="2026-01-02"))),
    "append that closes": (
        prepare,
        lambda store: store.append(record("r", 2), CommitEffects(closed=("q1", "q2", "q3"))),
    ),
    "first append": (nothing, lambda store: store.append(record("r", 0), MORE)),
    "put in place": (prepare, lambda store: store.put(record("r", 1, body="put"), MORE)),
    "put under another name": (prepare, lambda store: store.put(record("r", 1, checkpoint_id="x"), MORE)),
    "put of an old one": (prepare, lambda store: store.put(record("r", 0, body="put"), MORE)),
    "post": (prepare, lambda store: store.send("r", "d", b"4")),
    "remember": (prepare, lambda store: store.write_log("r", 1, "more", b"1")),
    "remove the newest": (prepare, lambda store: store.remove("r", 1)),
    "remove the newest and ask": (prepare, lambda store: store.remove("r", 1, asked=(question("r", "q1"),))),
    "remove an older one": (prepare, lambda store: store.remove("r", 0, asked=(question("r", "q9"),))),
    "remove the newest and sleep": (prepare, lambda store: store.remove("r", 1, wake="2026-01-09")),
    "remove the newest that told tags": (prepare_more, lambda store: store.remove("r", 3)),
    "remove the last": (leave_one, lambda store: store.remove("r", 1)),
}
DROPPING: dict[str, tuple[Action, Action]] = {
    "append that drops": (prepare_more, lambda store: store.append(record("r", 4), CommitEffects(drop_below=4))),
    "append that drops again": (
        prepare_dropped,
        lambda store: store.append(record("r", 5), CommitEffects(drop_below=5)),
    ),
    "append that reduces": (prepare_more, lambda store: store.append(record("r", 4), REDUCING)),
    "append after a drop": (prepare_dropped, lambda store: store.append(record("r", 5), MORE)),
    "put that drops": (prepare_more, lambda store: store.put(record("r", 3, body="put"), CommitEffects(drop_below=3))),
    "put of an old one with tags": (
        prepare,
        lambda store: store.put(record("r", 0), CommitEffects(metadata=run_metadata(team="b"))),
    ),
    "put of one that was dropped": (prepare_dropped, lambda store: store.put(record("r", 1))),
    "drop": (prepare_more, lambda store: store.drop("r")),
    "drop of a claimed run": (claimed, lambda store: store.drop("r")),
}
FOLLOWING: dict[str, Action] = {
    "nothing": nothing,
    "a post": lambda store: store.send("r", "z", b"9"),
    "a refused post": lambda store: store.send("r", "a", b"9"),
    "a memory": lambda store: store.write_log("r", 6, "k", b"9"),
    "a put of an old one": lambda store: store.put(record("r", 0, body="afterwards")),
}


@pytest.mark.long
@pytest.mark.parametrize("name", [*ACTIONS, *DROPPING])
async def test_a_killed_writer_has_done_all_or_nothing(name: str, tmp_path: Path) -> None:
    preparing, action = {**ACTIONS, **DROPPING}[name]
    followings = FOLLOWING if name in ACTIONS else {"nothing": nothing, "a put": FOLLOWING["a put of an old one"]}
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
        for then, following in followings.items():
            root = tmp_path / f"{act} {then}"
            if template.exists():
                shutil.copytree(template, root)
            store = FileStore(root)
            with killed_before(act, tmp_path) as done, pytest.raises(Killed):
                await action(store)
            assert done == acts[:act]
            await store.close()

            store = FileStore(root)
            found = await seen(store)
            assert found in (before, after), (act, then)
            happened.append(found == after)
            await following(store)
            again = await seen(store)
            if then in ("nothing", "a refused post"):
                if name not in ("first append", "remove the last", "drop", "drop of a claimed run"):
                    assert again == found
            elif not then.startswith("a put"):
                assert again["pending"] == found["pending"]
                assert again["wakes"] == found["wakes"]
                assert [m for m in again["mail"] if m[0] != "z"] == found["mail"]  # type: ignore[attr-defined]
            head = await store.head("r")
            await store.append(record("r", head.entry.number + 1 if head else 0), CommitEffects(consumed=("z",)))
            last = await seen(store)
            assert last["pending"] == again["pending"]
            assert last["mail"] == [m for m in again["mail"] if m[0] != "z"]  # type: ignore[attr-defined]
            assert not [*root.rglob(".tmp-*"), *root.rglob(".reduced-*"), *root.glob(".gone/*")]
            tombstones = [json.loads(path.read_text()) for path in root.rglob("*.consumed")]
            assert all(one["body"] is None for one in tombstones)
            await store.close()
            shutil.rmtree(root)
    assert happened == sorted(happened), "once it has happened it stays so"


CUT_SHORT = [
    "append",
    "put in place",
    "put under another name",
    "post",
    "remove the newest",
    "append that drops again",
    "append that reduces",
]


@pytest.mark.long
@pytest.mark.parametrize("name", CUT_SHORT)
@pytest.mark.parametrize("alone", [True, False])
async def test_a_store_with_a_run_in_mind_notices_that_a_write_was_cut_short(
    alone: bool, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own, as by an error of the disk, or that of another who was killed. No time stamp warns it."""
    monkeypatch.setattr(file_run, "_change_times", lambda folder: (0, 0))
    preparing, action = {**ACTIONS, **DROPPING}[name]
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
        with killed_before(act, tmp_path), pytest.raises(Killed):
            await action(store if alone else other)
        assert await seen(store) in (before, after)
        head = await store.head("r")
        assert head is not None
        await store.append(record("r", head.entry.number + 1), CommitEffects(consumed=("b",)))
        fresh = FileStore(root)
        assert await seen(fresh) == await seen(store)
        assert not list(root.rglob(".tmp-*"))
        for each in (fresh, other, store):
            await each.close()


async def test_a_record_deleted_by_hand_takes_what_it_opened_with_it(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await prepare(store)
    (tmp_path / "w" / "r" / "000001-r-1.json").unlink()
    assert names(await store.pending()) == [("r", "q1"), ("r", "q2")]
    await store.append(record("r", 1), CommitEffects(closed=("q1",)))
    await store.append(record("r", 2))
    assert names(await store.pending()) == [("r", "q2")]
    for path in (tmp_path / "w" / "r").glob("0*.json"):
        path.unlink()
    assert await store.pending() == []
    await store.append(record("r", 0))
    assert await store.pending() == []
    await store.close()


async def test_pending_and_wakes_read_one_small_file_of_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    for run_id in ("a", "b", "c"):
        await store.append(record(run_id, 0), CommitEffects(asked=(question(run_id, "q"),), wake="2026"))
        for number in range(1, 4):
            await store.append(record(run_id, number), CommitEffects(wake="2026"))
    read: list[str] = []
    monkeypatch.setattr(Path, "read_bytes", spy(Path.read_bytes, read, lambda path: path.name))
    assert len(await store.pending()) == 3
    assert len(await store.wakes()) == 3
    assert read == ["open.json"] * 6
    await store.close()


async def test_a_run_that_asks_nothing_has_no_further_files(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    for number in range(3):
        await store.append(record("r", number), CommitEffects(drop_log_through=number))
    assert sorted(os.listdir(tmp_path / "w" / "r")) == [".lock", *(f"{n:06d}-r-{n}.json" for n in range(3))]
    await store.close()


@pytest.mark.parametrize("name", ["open.json", "mail/000001-b.json"])
async def test_damaged_mail_and_questions_are_named(tmp_path: Path, name: str) -> None:
    store = FileStore(tmp_path)
    await prepare(store)
    path = tmp_path / "w" / "r" / name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CheckpointCorrupt, match=name):
        await store.pending_signals("r")
    await store.close()
    store = FileStore(tmp_path)  # one that comes later: the first one knows what was open
    if name == "open.json":
        for call in (store.pending(), store.wakes(), store.append(record("r", 2)), store.send("r", "z", b"1")):
            with pytest.raises(CheckpointCorrupt, match=name):
                await call
    await store.close()


async def test_files_that_were_exchanged_are_named(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await prepare(store)
    await store.append(record("s", 0))
    home = tmp_path / "w"
    shutil.copy(home / "r" / "open.json", home / "s" / "open.json")
    with pytest.raises(CheckpointCorrupt, match=r"s/open\.json belongs to run 'r'"):
        await store.pending()
    (home / "r" / "mail" / "000001-b.json").rename(home / "r" / "mail" / "000007-x.json")
    with pytest.raises(CheckpointCorrupt, match="000007-x"):
        await store.pending_signals("r")
    await store.close()


async def test_a_person_finds_and_reads_mail_and_questions(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await prepare(store)
    home = tmp_path / "w" / "r"
    assert sorted(os.listdir(home / "mail")) == ["000000-a.consumed", "000001-b.json", "000002-c.json"]
    assert '"key": "b",\n  "body": 2\n' in (home / "mail" / "000001-b.json").read_text()
    assert '"request_id": "q3"' in (home / "open.json").read_text()
    await store.close()


async def test_a_full_disk_leaves_mail_and_questions_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    await prepare(store)
    before = await seen(store)
    original = file_layout.write

    def full(path: Path, *args: Any, **kwargs: Any) -> None:
        if path.name == "000002-r-2.json":
            raise OSError(28, "No space left on device")
        original(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(file_layout, "write", full)
        with pytest.raises(Exception, match="No space left"):
            await store.append(record("r", 2), MORE)
    assert await seen(store) == before
    await store.append(
        record("r", 2), CommitEffects(wake="2026-01-02")
    )  # a record of the same name, with other company
    anyway = {"records": None, "memory": None}
    found, before = await seen(store), {**before, **anyway}
    assert {**found, **anyway, "order": None, "runs": None} == {**before, "order": None, "runs": None}
    await store.close()


@pytest.mark.long
async def test_whenever_thinning_out_is_killed_what_is_there_can_be_read(tmp_path: Path) -> None:
    """Each act is the last one: what stays is as it was or whole, nothing beside the records changes, the rest goes."""
    whole = record("r", 3, body="whole", checkpoint_id="r-3")
    going = [0, 1, 2]

    async def look(store: FileStore) -> dict[str, object]:
        found = await seen(store)
        return {name: found[name] for name in ("mail", "pending", "wakes", "runs")}

    act = 0
    while True:
        path = tmp_path / str(act)
        store = FileStore(path)
        await prepare_more(store)
        await store.append(record("r", 4, is_snapshot=False), CommitEffects(wake="2026-01-02"))
        before = await look(store)
        with killed_before(act, path) as done, suppress(Killed):
            await store.thin_out("r", going, rewritten=[whole])
        await store.close()
        again = FileStore(path)
        assert await look(again) == before
        for one in await again.history("r"):
            assert (await again.chain("r", one.entry.number))[-1] == one
        assert len(await again.chain("r", 4)) in (2, 3)
        await again.thin_out("r", going, rewritten=[whole])
        assert [one.entry.number for one in await again.history("r")] == [3, 4]
        assert await look(again) == before
        await again.append(record("r", 5), CommitEffects(wake="2026-01-02"))
        await again.close()
        if len(done) < act:
            break
        act += 1
    assert act > 4
