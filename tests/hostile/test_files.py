"""The files of a store, changed by somebody else: read, or refused by name; and other runs are read all the same."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.errors import DurabilityError
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.files.layout import run_name
from stepwell.stores.files.store import FileStore
from stepwell.testing import FailingDisk
from tests.hostile.texts import CORPUS, changed, flipped
from tests.hostile.victim import only_typed
from tests.support.payments import OUTPUTS, RUN, Payment

LOG, OTHER = Path("runs") / run_name(RUN), Path("runs") / run_name("other")


@cache
def sound() -> dict[Path, bytes]:
    """The files of a store with a run that waits, its log and its signals, and another run that is done."""

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
            "ready_runs": storage.ready_runs(),
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
    assert set(sound()) == {LOG, OTHER, Path("stepwell.json")}


@few
@given(st.data())
def test_a_file_with_other_bytes_is_read_or_refused(data: st.DataObject) -> None:
    read_with({LOG: data.draw(flipped(sound()[LOG]))})


def lines() -> list[tuple[dict[str, Any], bytes]]:
    """The lines of the log that is attacked, each with its body, if it has one."""
    rest, found = sound()[LOG].splitlines(), []
    while rest:
        line = json.loads(rest.pop(0))
        found.append((line, rest.pop(0) if line.get("size") else b""))
    return found


def written(made: list[tuple[Any, bytes]]) -> bytes:
    """A log of these lines, with the right sums: by somebody who knows how that is done."""
    content = b""
    for n, (line, body) in enumerate(made):
        if isinstance(line, dict):
            line.pop("sum", None)
        head = json.dumps(line, separators=(",", ":")).encode()[:-1]
        seed = crc32(RUN.encode()) if n else 0
        content += head + b',"sum":"%08x"}\n' % crc32(head, seed ^ len(content)) + (body + b"\n" if body else b"")
    return content


def test_a_log_can_be_written_by_somebody_else() -> None:
    assert written(lines()) == sound()[LOG]


@few
@given(st.data())
def test_a_line_that_says_something_else_is_read_or_refused(data: st.DataObject) -> None:
    made: list[tuple[Any, bytes]] = [*lines()]
    n = data.draw(st.integers(0, len(made) - 1))
    made[n] = (json.loads(data.draw(changed(made[n][0]))), made[n][1])
    read_with({LOG: written(made)})


@few
@given(st.data())
def test_a_body_that_says_something_else_is_read_or_refused(data: st.DataObject) -> None:
    made: list[tuple[Any, bytes]] = [*lines()]
    n = data.draw(st.sampled_from([n for n, (line, body) in enumerate(made) if body.startswith(b"{")]))
    body = data.draw(changed(json.loads(made[n][1])))
    made[n] = ({**made[n][0], "size": len(body), "crc": crc32(body)}, body)
    read_with({LOG: written(made)})


@pytest.mark.parametrize("name", sorted({*CORPUS} - {"nothing", "NULs"}))
def test_a_file_made_to_attack_is_refused_by_name(name: str, tmp_path: Path) -> None:
    lay_out(tmp_path, {LOG: CORPUS[name] + b"\n"})
    with pytest.raises(DurabilityError, match=str(tmp_path / LOG)):
        asyncio.run(_driven(tmp_path))


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


@pytest.mark.parametrize("name", sorted({*CORPUS} - {"a format twice"}))
def test_a_mark_made_to_attack_is_refused_and_left_alone(name: str, tmp_path: Path) -> None:
    lay_out(tmp_path, {Path("stepwell.json"): CORPUS[name]})
    is_a_mark = name in ("900 levels in a field", "10 MB of text", "10 MB of items")  # one that says more than is read
    with nullcontext() if is_a_mark else pytest.raises(DurabilityError, match=r"stepwell\.json"):
        asyncio.run(_driven(tmp_path))
    assert (tmp_path / "stepwell.json").read_bytes() == CORPUS[name]


def test_the_file_of_another_run_is_refused() -> None:
    assert read_with({LOG: sound()[OTHER]}) == 0


def test_links_and_folders_in_the_place_of_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"format": 1}')
    for kind in ("folder", "link", "link to nothing"):
        root = tmp_path / "store"
        lay_out(root, {})
        (root / LOG).unlink()
        if kind == "folder":
            (root / LOG).mkdir()
        else:
            (root / LOG).symlink_to(tmp_path / ("secret" if kind == "link" else "nothing"))
        with pytest.raises(DurabilityError):
            asyncio.run(_driven(root))
        shutil.rmtree(root)
    assert (tmp_path / "secret").read_text() == '{"format": 1}'
