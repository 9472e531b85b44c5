"""The files of a store, changed by somebody else: read, or refused by name; and other runs are read all the same."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.errors import DurabilityError
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.files.store import FileStore
from stepwell.testing import FailingDisk
from tests.hostile.texts import CORPUS, changed, flipped
from tests.hostile.victim import only_typed
from tests.support.payments import OUTPUTS, RUN, Payment

HOME = Path("payments") / RUN


@cache
def sound() -> dict[Path, bytes]:
    """The files of a store with a run that waits, its memory and its mail, and another run that is done."""

    async def made(root: Path) -> dict[Path, bytes]:
        store = FileStore(root)
        await Payment().drive(store, "other")
        await Payment().wait(store)
        await BuiltInStorage(store)._store.write_log(RUN, 1, "1.0/step/0/x", b'{"format":1,"due":""}')
        await BuiltInStorage(store)._store.send(RUN, "input/7/x", b'{"kind":"input","format":1,"value":1}')
        await store.close()
        return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    with TemporaryDirectory() as folder:
        return asyncio.run(made(Path(folder)))


def files() -> list[Path]:
    """Those of the run that is attacked."""
    return sorted(path for path in sound() if path.is_relative_to(HOME))


def lay_out(root: Path, changes: dict[Path, bytes]) -> None:
    for path, content in {**sound(), **changes}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)


async def read_everything(root: Path) -> int:
    """Read a store in every way. How much of it could be read."""
    store, done = FileStore(root), 0
    storage = BuiltInStorage(store)
    with FailingDisk(root):  # none fails, and none is waited for
        for what, work in {
            "list_checkpoints": storage.list_checkpoints(),
            "list_runs": storage.list_runs(),
            "pending_requests": storage.pending_requests(),
            "due_runs": storage.due_runs(),
            "get_latest": storage.get_latest(run_id=RUN),
            "event_history": storage.event_history(RUN),
            "run": Payment().drive(store, RUN),
        }.items():
            done += await only_typed(what, work)
        assert await Payment().drive(store, "other") == OUTPUTS
    await store.close()
    return done


def read_with(changes: dict[Path, bytes]) -> int:
    with TemporaryDirectory() as folder:
        lay_out(Path(folder), changes)
        return asyncio.run(read_everything(Path(folder)))


few = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


def test_what_was_not_touched_is_read() -> None:
    assert read_with({}) == 7
    assert len(files()) == 7


@few
@given(st.data())
def test_a_file_with_other_bytes_is_read_or_refused(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(files()))
    read_with({path: data.draw(flipped(sound()[path]))})


@few
@given(st.data())
def test_a_file_that_says_something_else_is_read_or_refused(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([path for path in files() if path.suffix == ".json"]))
    read_with({path: data.draw(changed(json.loads(sound()[path])))})


@pytest.mark.parametrize("name", CORPUS)
def test_a_file_made_to_attack_is_refused_by_name(name: str, tmp_path: Path) -> None:
    for path in (path for path in files() if path.suffix == ".json"):
        lay_out(tmp_path, {path: CORPUS[name]})
        with pytest.raises(DurabilityError, match=str(tmp_path)):
            asyncio.run(_driven(tmp_path))
        shutil.rmtree(tmp_path / "payments")


async def _driven(root: Path) -> None:
    store = FileStore(root)
    try:
        with FailingDisk(root):
            await store.history(RUN)
            await store.requests()
            await store.pending_signals(RUN)
            await store.open(RUN)
            await Payment().drive(store, RUN)
    finally:
        await store.close()


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\0" * 2000, b"x" * 32 + b"\n" + b"x" * 32 + b" a\n"])
def test_whatever_is_in_a_lock_is_no_news(content: bytes) -> None:
    assert read_with({HOME / ".lock": content}) == 7


@pytest.mark.parametrize("name", sorted({*CORPUS} - {"a format twice"}))
def test_a_mark_made_to_attack_is_refused_and_left_alone(name: str, tmp_path: Path) -> None:
    lay_out(tmp_path, {Path("stepwell.json"): CORPUS[name]})
    is_a_mark = name in ("900 levels in a field", "10 MB of text", "10 MB of items")  # one that says more than is read
    with nullcontext() if is_a_mark else pytest.raises(DurabilityError, match=r"stepwell\.json"):
        asyncio.run(_driven(tmp_path))
    assert (tmp_path / "stepwell.json").read_bytes() == CORPUS[name]


def swaps() -> Iterator[tuple[Path, Path]]:
    theirs = [path for path in sound() if path.parent == Path("payments/other") and path.suffix == ".json"]
    for mine in files():
        if mine.suffix == ".json":
            yield from ((mine, other) for other in theirs if mine.name[:6] == other.name[:6])


def test_files_of_another_run_are_refused() -> None:
    found = list(swaps())
    assert len(found) >= 4
    for mine, other in found:
        done = read_with({mine: sound()[other]})
        # who drove a run last may be anybody, and a page on which nothing is open may be anybody's
        assert done < 7 or mine.name in ("owner.json", "open.json"), mine


def test_links_and_folders_in_the_place_of_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"format": 1}')
    for path in (path for path in files() if path.suffix == ".json"):
        for kind in ("folder", "link", "link to nothing"):
            root = tmp_path / "store"
            lay_out(root, {})
            (root / path).unlink()
            if kind == "folder":
                (root / path).mkdir()
            else:
                (root / path).symlink_to(tmp_path / ("secret" if kind == "link" else "nothing"))
            with pytest.raises(DurabilityError):
                asyncio.run(_driven(root))
            shutil.rmtree(root)
    assert (tmp_path / "secret").read_text() == '{"format": 1}'
